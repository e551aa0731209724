//! Turns errors and panics into one line of text, or ignores panics.

use std::any::Any;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Returns the text of an error and of its causes. A cause that the text already contains is not repeated.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let reason = cause.to_string();
        if !text.contains(&reason) {
            text = format!("{text}: {reason}");
        }
        next = cause.source();
    }
    text
}

/// Returns the message of a panic.
pub fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("it did not say why")
}

/// Runs code whose panic must not change how a worker, an engine or a process ends. Logging panics if the log cannot be
/// written.
pub fn ignoring_panics(work: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(work));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Cause(&'static str, #[source] Option<Box<Cause>>);

    #[test]
    fn each_cause_appears_once() {
        let cause = Cause("no such file", None);
        let middle = Cause("cannot read x: no such file", Some(Box::new(cause)));
        let error = Cause("pool p does not start", Some(Box::new(middle)));
        assert_eq!(with_causes(&error), "pool p does not start: cannot read x: no such file");
    }
}
