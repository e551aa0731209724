//! The texts that errors and events of pools carry: how a worker ended, and why another one takes its place.

use snakepit_error_texts::{ErrorTexts, every_text, every_variant};
use snakepit_policy::RecycleReason;

use crate::adapter::{CreditUnit, ReplaceReason, WorkerChannel};
use crate::call::error::autopsy;
use crate::custody::{Exit, ExitStatus, Pid};
use crate::{Autopsy, OomVerdict};

#[test]
fn every_ending_of_a_worker_is_in_words() {
    let crash = || Autopsy { output: Vec::new(), ..autopsy::crash() };
    let ended = |status| {
        let exit = Some(Exit::new(status));
        Autopsy { exit, ..crash() }
    };
    let fault = Some("it closed its socket".into());
    let mut texts = ErrorTexts::new();
    for oom in [OomVerdict::Yes, OomVerdict::No, OomVerdict::Unknown] {
        texts.add_text(
            &format!("{oom:?}"),
            &Autopsy { oom, rss: Some(30 << 20), ..ended(ExitStatus::Signal(9)) },
        );
    }
    for signal in [1, 2, 4, 6, 7, 8, 11, 13, 15, 24, 25, 31, 64] {
        texts.add_text("Signal", &ended(ExitStatus::Signal(signal)));
    }
    for status in [ExitStatus::Code(3), ExitStatus::Lost, ExitStatus::ShimKilled] {
        texts.add_text(&format!("{status:?}"), &ended(status));
    }
    texts.add_text("Fault", &Autopsy { fault, calls: 2, ..crash() });
    texts.add_text("Unseen", &Autopsy { exit: None, pid: Pid::new(4711), ..crash() });
    insta::assert_snapshot!(texts);
}

#[test]
fn every_channel_unit_and_replacement_is_in_words() {
    let mut texts = ErrorTexts::new();
    every_text!(texts, WorkerChannel {
        Socket => [WorkerChannel::Socket],
        StandardInput => [WorkerChannel::StandardInput],
        StandardOutput => [WorkerChannel::StandardOutput],
        Link => [WorkerChannel::Link],
        Connection => [WorkerChannel::Connection],
    });
    every_text!(texts, CreditUnit {
        Items => [CreditUnit::Items],
        Bytes => [CreditUnit::Bytes],
    });
    every_variant!(texts, ReplaceReason {
        Recycled => [ReplaceReason::Recycled(RecycleReason::ByHand)],
        Reloaded => [ReplaceReason::Reloaded],
        ReloadGivenUp => [ReplaceReason::ReloadGivenUp],
        OneCallEach => [ReplaceReason::OneCallEach],
    });
    insta::assert_snapshot!(texts);
}
