//! The texts of all errors of loops and groups.

use std::io;

use snakepit_error_texts::{ErrorTexts, every_variant};

use crate::lifecycle::CoordinatorError;
use crate::mailbox::MailboxError;
use crate::{GroupError, LoopError};

fn panicked() -> LoopError {
    LoopError::Panicked { name: "numbers".into(), reason: "index out of bounds: the len is 0".into() }
}

#[test]
fn errors_of_loops_and_groups() {
    let no_thread = || io::Error::from_raw_os_error(11);
    let mut texts = ErrorTexts::new();
    every_variant!(texts, LoopError {
        RunsAlready => [LoopError::RunsAlready("numbers".into())],
        Options => [LoopError::Options(MailboxError::OutOfRange {
            option: "wait",
            value: "60s".into(),
            range: "between 0s and 20s".into(),
        })],
        Panicked => [panicked()],
        Failed => [LoopError::Failed {
            name: "numbers".into(),
            reason: "pool numbers has no command adds; did you mean add?".into(),
        }],
    });
    every_variant!(texts, GroupError {
        Crashed => [GroupError::Crashed { name: "numbers".into(), source: panicked() }],
        Run => [GroupError::Run(LoopError::RunsAlready("numbers".into()))],
        SignalHandling => [GroupError::SignalHandling(CoordinatorError::Thread(no_thread()))],
        Watchdog => [GroupError::Watchdog(no_thread())],
    });
    insta::assert_snapshot!(texts);
}
