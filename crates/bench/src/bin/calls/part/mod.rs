//! The parts of the table. Each starts its participants, lets them take turns and adds its rows.

pub(crate) mod adapters;
pub(crate) mod batch;
pub(crate) mod latency;
pub(crate) mod map;
pub(crate) mod memory;
pub(crate) mod start;
pub(crate) mod stream;
pub(crate) mod throughput;

use snakepit_bench::BenchResult;

use crate::CallBench;
use crate::participant::Participant;
use crate::turns::{Availability, CallTimes, EchoCaller, MeasuredTurn, TurnValues, by_turns};

/// The participants of a part, started.
struct Participants(Vec<(Participant, Availability<Box<dyn EchoCaller>>)>);

/// The results of each participant's turns.
struct TurnResults(Vec<(Participant, TurnValues<CallTimes>)>);

impl Participants {
    fn start(
        bench: &CallBench,
        workers: usize,
        participants: impl IntoIterator<Item = Participant>,
    ) -> BenchResult<Self> {
        let start = |participant: Participant| {
            let started = participant
                .start(bench, workers)
                .map_err(|error| format!("{}: {error}", participant.name()))?;
            Ok((participant, started))
        };
        participants.into_iter().map(start).collect::<BenchResult<_>>().map(Self)
    }

    /// Lets all participants take turns at the same measurement.
    fn play(
        &mut self,
        rounds: usize,
        question: impl Fn(&mut dyn EchoCaller) -> BenchResult<CallTimes>,
    ) -> BenchResult<TurnResults> {
        let question = &question;
        let (participants, turns): (Vec<Participant>, Vec<MeasuredTurn<'_, CallTimes>>) = self
            .0
            .iter_mut()
            .map(|(participant, caller)| {
                let participant = *participant;
                let turn = caller.as_mut().map(|caller| -> Box<dyn FnMut() -> BenchResult<CallTimes> + '_> {
                    Box::new(move || {
                        question(caller.as_mut())
                            .map_err(|error| format!("{}: {error}", participant.name()).into())
                    })
                });
                (participant, turn)
            })
            .unzip();
        Ok(TurnResults(participants.into_iter().zip(by_turns(turns, rounds)?).collect()))
    }
}

impl TurnResults {
    fn of(&self, participant: Participant) -> &TurnValues<CallTimes> {
        &self.0.iter().find(|(it, _)| *it == participant).expect("everyone who is compared takes part").1
    }
}
