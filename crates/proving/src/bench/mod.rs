//! What the benchmarks share: samples, the one table with its verdicts, and what is said about the machine.

#![expect(clippy::cast_precision_loss, reason = "statistics over small counts")]

pub mod line;
pub mod machine;
pub mod redis;
pub mod report;
pub mod sample;

pub use line::Line;
pub use report::{Beside, Page, Report, Row, Side, Target, Unit};
pub use sample::Samples;

/// A benchmark has nobody to recover for: what fails is printed.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error>>;
