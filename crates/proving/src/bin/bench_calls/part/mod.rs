//! The parts of the table: each starts its participants, lets them take turns and adds its rows.

pub(crate) mod many;
pub(crate) mod map;
pub(crate) mod memory;
pub(crate) mod one;
pub(crate) mod start;
pub(crate) mod stream;

use snakepit_proving::bench::Outcome;

use crate::Bench;
use crate::turns::{Caller, Laps, Played, Start, Turn, by_turns};
use crate::who::Who;

/// Those who take part, started.
struct Cast(Vec<(Who, Start<Box<dyn Caller>>)>);

/// What their turns came to.
struct Scores(Vec<(Who, Played<Laps>)>);

impl Cast {
    fn start(bench: &Bench, workers: usize, whos: impl IntoIterator<Item = Who>) -> Outcome<Self> {
        let start = |who: Who| {
            let started = who.start(bench, workers).map_err(|error| format!("{}: {error}", who.name()))?;
            Ok((who, started))
        };
        whos.into_iter().map(start).collect::<Outcome<_>>().map(Self)
    }

    /// Lets all of them take turns at the same question.
    fn play(
        &mut self,
        rounds: usize,
        question: impl Fn(&mut dyn Caller) -> Outcome<Laps>,
    ) -> Outcome<Scores> {
        let question = &question;
        let (whos, turns): (Vec<Who>, Vec<Turn<'_, Laps>>) = self
            .0
            .iter_mut()
            .map(|(who, caller)| {
                let who = *who;
                let turn = caller.as_mut().map(|caller| -> Box<dyn FnMut() -> Outcome<Laps> + '_> {
                    Box::new(move || {
                        question(caller.as_mut()).map_err(|error| format!("{}: {error}", who.name()).into())
                    })
                });
                (who, turn)
            })
            .unzip();
        Ok(Scores(whos.into_iter().zip(by_turns(turns, rounds)?).collect()))
    }
}

impl Scores {
    fn of(&self, who: Who) -> &Played<Laps> {
        &self.0.iter().find(|(it, _)| *it == who).expect("everyone who is compared takes part").1
    }
}
