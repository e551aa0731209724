//! Turns: participants are measured one after another in each round, so that noise affects all of them alike.

use std::time::Duration;

use snakepit_bench::{BenchResult, Comparand, ReportRow, RowTarget, SampleSet, Side, Unit};

/// Something that answers a payload with the same payload.
pub(crate) trait EchoCaller {
    /// Makes `calls` calls one after another.
    fn one(&mut self, bytes: usize, calls: usize) -> BenchResult<CallTimes>;

    /// Makes `calls` calls, with at most `in_flight` at a time per worker.
    fn many(&mut self, bytes: usize, calls: usize, in_flight: usize) -> BenchResult<CallTimes>;

    /// Returns the pace, which decides how many calls make a turn that is long enough to measure and short enough to be
    /// fair.
    fn pace(&self) -> CallPace;
}

/// The order of magnitude of a caller's throughput.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallPace {
    /// Hundreds of thousands of calls per second.
    Fast,
    /// Thousands of calls per second.
    Slow,
}

/// The result of one turn of calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallTimes {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) rate: f64,
}

impl CallTimes {
    pub(crate) fn new(total: Duration, times: impl IntoIterator<Item = f64>) -> Self {
        let times: SampleSet = times.into_iter().collect();
        let rate = f64::from(times.len() as u32) / total.as_secs_f64();
        Self { p50: times.median(), p99: times.quantile(0.99), rate }
    }
}

/// A participant that was started, or the reason why it was not.
pub(crate) enum Availability<T> {
    Available(T),
    Absent(String),
}

impl<T> Availability<T> {
    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> Availability<U> {
        match self {
            Self::Available(it) => Availability::Available(change(it)),
            Self::Absent(why) => Availability::Absent(why),
        }
    }

    pub(crate) fn as_mut(&mut self) -> Availability<&mut T> {
        match self {
            Self::Available(it) => Availability::Available(it),
            Self::Absent(why) => Availability::Absent(why.clone()),
        }
    }
}

/// One measurement of one participant.
pub(crate) type MeasuredTurn<'a, T> = Availability<Box<dyn FnMut() -> BenchResult<T> + 'a>>;

/// The results of all turns of one participant.
pub(crate) type TurnValues<T> = Availability<Vec<T>>;

/// Runs the turns in rounds, A B C A B C …, after one round that does not count.
pub(crate) fn by_turns<T>(
    mut turns: Vec<MeasuredTurn<'_, T>>,
    rounds: usize,
) -> BenchResult<Vec<TurnValues<T>>> {
    let mut values: Vec<TurnValues<T>> =
        turns.iter_mut().map(|turn| turn.as_mut().map(|_| Vec::new())).collect();
    for round in 0..=rounds {
        for (turn, values) in turns.iter_mut().zip(&mut values) {
            if let (Availability::Available(play), Availability::Available(values)) = (turn, values) {
                let result = play()?;
                if round > 0 {
                    values.push(result);
                }
            }
        }
    }
    Ok(values)
}

/// The number of a turn that the ratio is computed from.
#[derive(Clone, Copy)]
pub(crate) enum HeadlineMetric {
    Latency,
    Throughput,
}

impl HeadlineMetric {
    fn unit(self) -> Unit {
        match self {
            Self::Latency => Unit::Seconds,
            Self::Throughput => Unit::PerSecond,
        }
    }

    fn side(self, values: &TurnValues<CallTimes>) -> Side {
        let laps = match values {
            Availability::Available(laps) => laps,
            Availability::Absent(why) => return Side::Absent(why.clone()),
        };
        let each = |pick: fn(&CallTimes) -> f64| laps.iter().map(pick).collect::<SampleSet>();
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

    /// Returns a row of the table from the turns of two participants.
    pub(crate) fn row(
        self,
        what: String,
        ours: &TurnValues<CallTimes>,
        (name, theirs): (&str, &TurnValues<CallTimes>),
        target: RowTarget,
    ) -> ReportRow {
        let beside = Comparand { name: name.to_owned(), side: self.side(theirs) };
        ReportRow { what, unit: self.unit(), ours: self.side(ours), beside: Some(beside), target }
    }
}

/// Converts one number per turn.
pub(crate) fn plain(values: &TurnValues<f64>) -> Side {
    match values {
        Availability::Available(values) => values.iter().copied().collect::<SampleSet>().into(),
        Availability::Absent(why) => Side::Absent(why.clone()),
    }
}

/// Formats a number of bytes with the largest unit that divides it.
pub(crate) fn show_bytes(bytes: usize) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes / 1024),
        _ => format!("{} MiB", bytes / 1_048_576),
    }
}
