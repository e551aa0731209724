//! Why a script failed.

use super::mode::ArgumentError;
use crate::{CallError, EngineError};

/// The reason why a script failed.
///
/// ```no_run
/// use snakepit::lifecycle::ExitMode;
/// use snakepit::{CallError, ScriptError, Snakepit, python};
///
/// # async fn example() {
/// let script = snakepit::script(Snakepit::builder().pool(python("worker.py"))).exit_mode(ExitMode::None);
/// match script.run(async |pit| pit.call::<i64>("count", ("data.csv",)).await).await {
///     Ok(rows) => println!("{rows} rows"),
///     Err(ScriptError::Function(error)) => eprintln!("the rows were not counted: {error}"),
///     Err(error) => eprintln!("the script did not begin: {error}"),
/// }
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScriptError<E> {
    /// An option has an unknown value. Nothing was started.
    #[error(transparent)]
    Argument(#[from] ArgumentError),
    /// The engine did not start.
    #[error(transparent)]
    Start(EngineError),
    /// The engine is running, but its pools did not become ready in time.
    #[error("the pools of the script were not ready in time: see the cause, or set a longer await_timeout")]
    NotReady(#[source] CallError),
    /// The function failed.
    #[error("{0}")]
    Function(E),
}
