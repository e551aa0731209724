//! The texts of all errors of loops and groups.

use std::io;
use std::time::Duration;

use snakepit_error_texts::{ErrorTexts, every_variant};

use crate::lifecycle::CoordinatorError;
use crate::mailbox::{MailboxError, check_wait};
use crate::{GroupError, HandlerFailure, LoopError};

fn panicked() -> LoopError {
    LoopError::Panicked { name: "numbers".into(), reason: "index out of bounds: the len is 0".into() }
}

#[test]
fn every_error_says_the_thing_the_place_and_the_way_out() {
    let mut texts = ErrorTexts::new();
    errors_of_loops_and_groups(&mut texts);
    insta::assert_snapshot!(texts);
}

fn errors_of_loops_and_groups(texts: &mut ErrorTexts) {
    let no_thread = || io::Error::from_raw_os_error(11);
    every_variant!(texts, LoopError {
        RunsAlready => [LoopError::RunsAlready("numbers".into())],
        Options => [LoopError::Options(check_wait(Duration::from_mins(1)).expect_err("too long"))],
        Panicked => [panicked()],
        NoPools => [LoopError::NoPools { name: "sums".into() }],
        NoSuchPool => [LoopError::NoSuchPool {
            name: "sums".into(),
            pool: "nubmers".into(),
            known: "did you mean `numbers`?".into(),
        }],
        NoSuchCommand => [LoopError::NoSuchCommand {
            name: "sums".into(),
            pool: "numbers".into(),
            command: "sub".into(),
            known: "there is add, count".into(),
        }],
        NoSuchMailbox => [LoopError::NoSuchMailbox {
            name: "sums".into(),
            mailbox: "nubmers in mail.db".into(),
            nearest: Some("numbers".into()),
        }],
        Mailbox => [LoopError::Mailbox { name: "sums".into(), source: MailboxError::Closed("numbers".into()) }],
        Thread => [LoopError::Thread { name: "sums".into(), source: no_thread() }],
        Signals => [LoopError::Signals(CoordinatorError::Thread(no_thread()))],
        Failed => [LoopError::Failed { name: "sums".into(), reason: "the printer has no paper".into() }],
    });
    every_variant!(texts, GroupError {
        Crashed => [GroupError::Crashed { name: "numbers".into(), source: panicked() }],
        Run => [GroupError::Run(LoopError::RunsAlready("numbers".into()))],
        SignalHandling => [GroupError::SignalHandling(CoordinatorError::Thread(no_thread()))],
        Watchdog => [GroupError::Watchdog(no_thread())],
    });
    for failure in [
        HandlerFailure::from(no_thread()),
        HandlerFailure::from(check_wait(Duration::from_mins(1)).expect_err("too long")),
        HandlerFailure::new("NotText", ""),
        HandlerFailure::of_panic(&"index out of bounds: the len is 0"),
        HandlerFailure::of_panic(&7),
    ] {
        texts.add_text("HandlerFailure", &failure);
    }
}
