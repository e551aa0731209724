//! SIGTERM in every phase of a service, once, twice and three times.

use std::sync::Arc;

use rustix::process::Signal;
use snakepit::mailbox::{Mailbox, MessageCounts, SendOptions, SqliteMailbox};
use snakepit_proving::rounds;
use tempfile::TempDir;

use super::{LooperProcess, block_on, dir};

/// The status of a service that a signal has interrupted.
const CUT_SHORT: i32 = 128 + 15;

/// A service in a separate process, with one message for it.
struct LoopService {
    looper: LooperProcess,
    dir: TempDir,
}

impl LoopService {
    fn start(message: Option<&str>) -> Self {
        let dir = dir();
        let path = dir.path().join("mail");
        if let Some(message) = message {
            let mailbox = SqliteMailbox::open(&path).expect("the mailbox");
            let body = serde_json::to_vec(message).expect("JSON");
            block_on(mailbox.send(body, SendOptions::new())).expect("sent");
        }
        let looper = LooperProcess::start(dir.path(), &["serve", &path.to_string_lossy()], None);
        let mut service = Self { looper, dir };
        service.must_say("starting");
        service
    }

    fn must_say(&mut self, wanted: &str) {
        loop {
            let line = self.looper.0.hear().unwrap_or_else(|| panic!("it ended without saying {wanted}"));
            if line.trim_end() == wanted {
                return;
            }
        }
    }

    fn say(&mut self, line: &str) {
        self.looper.0.say(line);
    }

    fn terminate(&self) {
        self.looper.0.process().signal(Signal::TERM);
    }

    fn drain(&mut self) {
        self.terminate();
        self.must_say("draining");
    }

    fn stop_now(&mut self) {
        self.drain();
        self.terminate();
        self.must_say("stopping now");
    }

    /// Asserts that the service exits with this status and leaves this many messages visible and in flight.
    fn must_end(mut self, status: i32, left: (u64, u64)) {
        let ended = self.looper.0.wait();
        assert_eq!(ended.code(), Some(status), "{ended:?}");
        let mailbox: Arc<dyn Mailbox> =
            Arc::new(SqliteMailbox::open(self.dir.path().join("mail")).expect("the mailbox"));
        let MessageCounts { visible, in_flight, dead, .. } = block_on(mailbox.count()).expect("a count");
        assert_eq!((visible, in_flight, dead), (left.0, left.1, 0));
    }
}

#[test]
fn a_signal_during_the_start_ends_the_service_with_0_before_it_receives() {
    let mut service = LoopService::start(Some("fine"));
    service.drain();
    service.say("go");
    service.must_say("stopped 0");
    service.say("leave");
    service.must_end(0, (1, 0));
}

#[test]
fn two_signals_during_the_start_cut_the_service_short() {
    let mut service = LoopService::start(Some("fine"));
    service.stop_now();
    service.say("go");
    service.must_say("stopped 143");
    service.say("leave");
    service.must_end(CUT_SHORT, (1, 0));
}

#[test]
fn three_signals_during_the_start_end_the_service() {
    let mut service = LoopService::start(Some("fine"));
    service.stop_now();
    service.terminate();
    service.must_end(CUT_SHORT, (1, 0));
}

#[test]
fn a_service_that_waits_for_messages_ends_with_0() {
    let mut service = LoopService::start(None);
    service.say("go");
    service.must_say("receiving");
    service.terminate();
    service.must_say("stopped 0");
    service.say("leave");
    service.must_end(0, (0, 0));
}

#[test]
fn a_service_that_handles_a_message_completes_it_and_ends_with_0() {
    let mut service = LoopService::start(Some("fine"));
    service.say("go");
    service.must_say("handling");
    service.drain();
    service.say("let");
    service.must_say("stopped 0");
    service.say("leave");
    service.must_end(0, (0, 0));
}

#[test]
fn a_second_signal_during_the_drain_gives_the_message_back() {
    let mut service = LoopService::start(Some("fine"));
    service.say("go");
    service.must_say("handling");
    service.stop_now();
    service.must_say("stopped 143");
    service.say("leave");
    service.must_end(CUT_SHORT, (1, 0));
}

#[test]
fn a_service_whose_handler_blocks_is_gone_after_the_third_signal() {
    let mut service = LoopService::start(Some("block"));
    service.say("go");
    service.must_say("handling");
    service.stop_now();
    service.terminate();
    let ended = service.looper.0.wait();
    assert_eq!(ended.code(), Some(CUT_SHORT), "{ended:?}");
    let mailbox = SqliteMailbox::open(service.dir.path().join("mail")).expect("the mailbox");
    let count = block_on(mailbox.count()).expect("a count");
    // Given back, or leased until the lease is over: in both cases the message still exists.
    assert_eq!(count.visible + count.in_flight, 1, "{count:?}");
}

#[test]
fn a_signal_to_a_service_that_has_stopped_changes_nothing_but_the_third_ends_it() {
    let mut service = LoopService::start(None);
    service.say("go");
    service.must_say("receiving");
    service.terminate();
    service.must_say("stopped 0");
    service.terminate();
    service.must_say("stopping now");
    service.say("leave");
    service.must_end(0, (0, 0));

    let mut service = LoopService::start(None);
    service.say("go");
    service.must_say("receiving");
    service.stop_now();
    service.terminate();
    service.must_end(CUT_SHORT, (0, 0));
}

#[test]
fn l13_a_signal_that_interrupts_the_holder_of_the_locks_needs_none_of_them() {
    // The signal comes at any moment, and in many of them the lock is held.
    for _ in 0..rounds(60, 20) {
        let dir = dir();
        let mut looper = LooperProcess::start(dir.path(), &["contend"], None);
        assert_eq!(looper.0.hear().as_deref(), Some("starting\n"));
        looper.0.process().signal(Signal::TERM);
        let ended = looper.0.wait();
        assert_eq!(ended.code(), Some(0), "{ended:?}");
    }
}
