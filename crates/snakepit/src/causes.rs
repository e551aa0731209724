//! An error in one line: what it says, and why.

use std::error::Error;

/// The error and its causes. Some say their cause themselves; it is not said twice.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let said = cause.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Said(&'static str, #[source] Option<Box<Said>>);

    #[test]
    fn each_cause_is_said_once() {
        let cause = Said("no such file", None);
        let middle = Said("cannot read x: no such file", Some(Box::new(cause)));
        let error = Said("pool p does not start", Some(Box::new(middle)));
        assert_eq!(with_causes(&error), "pool p does not start: cannot read x: no such file");
    }
}
