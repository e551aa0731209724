//! What the benchmarks share: samples and tables, the programs' options, and what several of them start.
//!
//! The programs are in `src/bin/`. A table puts our number beside a floor (the minimum cost of the same mechanism) or a
//! peer (what people use today), measured by turns in the same run. `comparison` judges one build beside another.

#![expect(clippy::cast_precision_loss, reason = "statistics over small counts")]

pub mod comparison;
pub mod memory;
pub mod pool;
pub mod program;
pub mod python;
pub mod redis;
pub mod report;
pub mod sample;
pub mod summary;
pub mod time;

pub use memory::ProcessMemory;
pub use program::{BenchPart, BenchProgram, Effort};
pub use report::{BenchReport, Comparand, ReportPage, ReportRow, RowTarget, Side};
pub use sample::SampleSet;
pub use snakepit_proving::machine;
pub use snakepit_proving::unit::Unit;
pub use summary::SummaryRow;

/// The result of a benchmark, which recovers from no error: it prints the error and ends.
pub type BenchResult<T> = Result<T, Box<dyn std::error::Error>>;

/// The same inside a task, whose error must be `Send`.
pub type TaskResult<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
