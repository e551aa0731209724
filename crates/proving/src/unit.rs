//! Measured values, formatted for people.

/// The unit of a measured value.
#[derive(Clone, Copy, Debug)]
pub enum Unit {
    /// A time.
    Seconds,
    /// A rate.
    PerSecond,
    /// Memory.
    Mebibytes,
}

impl Unit {
    /// Formats the value with its unit.
    pub fn show(self, value: f64) -> String {
        match self {
            Self::Seconds if value < 10e-6 => format!("{:.2} µs", value * 1e6),
            Self::Seconds if value < 1e-3 => format!("{:.0} µs", value * 1e6),
            Self::Seconds => format!("{:.2} ms", value * 1e3),
            Self::PerSecond => format!("{value:.0}/s"),
            Self::Mebibytes => format!("{value:.3} MiB"),
        }
    }
}
