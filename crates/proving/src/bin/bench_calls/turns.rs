//! Who is measured, and the rule that all take turns: noise of the machine then hits all of them alike.

use std::time::Duration;

use snakepit_proving::bench::{Beside, Outcome, Row, Samples, Side, Target, Unit};

/// Something that can be called with bytes and answers the same bytes.
pub(crate) trait Caller {
    /// So many calls one after another.
    fn one(&mut self, bytes: usize, calls: usize) -> Outcome<Laps>;

    /// So many calls, at most `in_flight` of them at a time for each worker.
    fn many(&mut self, bytes: usize, calls: usize, in_flight: usize) -> Outcome<Laps>;

    /// How many calls make a turn long enough to be measured and short enough to be fair.
    fn pace(&self) -> Pace;
}

/// The order of magnitude of a caller's throughput.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Hundreds of thousands of calls a second.
    Fast,
    /// Thousands.
    Slow,
}

/// What one turn of calls came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Laps {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) rate: f64,
}

impl Laps {
    pub(crate) fn new(total: Duration, times: impl IntoIterator<Item = f64>) -> Self {
        let times: Samples = times.into_iter().collect();
        let rate = f64::from(times.len() as u32) / total.as_secs_f64();
        Self { p50: times.median(), p99: times.quantile(0.99), rate }
    }
}

/// A participant that was started, or why it was not.
pub(crate) enum Start<T> {
    Here(T),
    Absent(String),
}

impl<T> Start<T> {
    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> Start<U> {
        match self {
            Self::Here(it) => Start::Here(change(it)),
            Self::Absent(why) => Start::Absent(why),
        }
    }

    pub(crate) fn as_mut(&mut self) -> Start<&mut T> {
        match self {
            Self::Here(it) => Start::Here(it),
            Self::Absent(why) => Start::Absent(why.clone()),
        }
    }
}

/// One measurement of one participant.
pub(crate) type Turn<'a, T> = Start<Box<dyn FnMut() -> Outcome<T> + 'a>>;

/// What all turns of one participant came to.
pub(crate) type Played<T> = Start<Vec<T>>;

/// Lets all play so many rounds, A B C A B C …, after one round that does not count.
pub(crate) fn by_turns<T>(mut turns: Vec<Turn<'_, T>>, rounds: usize) -> Outcome<Vec<Played<T>>> {
    let mut played: Vec<Played<T>> = turns.iter_mut().map(|turn| turn.as_mut().map(|_| Vec::new())).collect();
    for round in 0..=rounds {
        for (turn, played) in turns.iter_mut().zip(&mut played) {
            if let (Start::Here(play), Start::Here(played)) = (turn, played) {
                let result = play()?;
                if round > 0 {
                    played.push(result);
                }
            }
        }
    }
    Ok(played)
}

/// Which number of a turn the ratio is made of.
#[derive(Clone, Copy)]
pub(crate) enum Headline {
    Latency,
    Throughput,
}

impl Headline {
    fn unit(self) -> Unit {
        match self {
            Self::Latency => Unit::Seconds,
            Self::Throughput => Unit::PerSecond,
        }
    }

    fn side(self, played: &Played<Laps>) -> Side {
        let laps = match played {
            Start::Here(laps) => laps,
            Start::Absent(why) => return Side::Absent(why.clone()),
        };
        let each = |pick: fn(&Laps) -> f64| laps.iter().map(pick).collect::<Samples>();
        let p99 = format!("p99 {}", Unit::Seconds.show(each(|it| it.p99).median()));
        match self {
            Self::Latency => {
                let rate = Unit::PerSecond.show(each(|it| it.rate).median());
                Side::Measured { samples: each(|it| it.p50), aside: vec![p99, rate] }
            }
            Self::Throughput => {
                let p50 = format!("p50 {}", Unit::Seconds.show(each(|it| it.p50).median()));
                Side::Measured { samples: each(|it| it.rate), aside: vec![p50, p99] }
            }
        }
    }

    /// A line of the table out of two participants' turns.
    pub(crate) fn row(
        self,
        what: String,
        ours: &Played<Laps>,
        (name, theirs): (&str, &Played<Laps>),
        target: Target,
    ) -> Row {
        let beside = Beside { name: name.to_owned(), side: self.side(theirs) };
        Row { what, unit: self.unit(), ours: self.side(ours), beside: Some(beside), target }
    }
}

/// One number for each turn.
pub(crate) fn plain(played: &Played<f64>) -> Side {
    match played {
        Start::Here(values) => values.iter().copied().collect::<Samples>().into(),
        Start::Absent(why) => Side::Absent(why.clone()),
    }
}

/// A megabyte at a time, or 64 bytes: as people read it.
pub(crate) fn show_bytes(bytes: usize) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes / 1024),
        _ => format!("{} MiB", bytes / 1_048_576),
    }
}
