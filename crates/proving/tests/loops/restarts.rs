//! A service that is restarted repeatedly while messages arrive loses none, answers each once, and buries none.
//!
//! `SNAKEPIT_RESTARTS=10000` sets the number of restarts.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use rustix::process::Signal;
use snakepit::mailbox::{
    MAX_MESSAGES, Mailbox, MessageCounts, Receipt, ReceiveOptions, SendOptions, SqliteMailbox,
};
use snakepit_proving::random::SeededRandom;
use snakepit_proving::{random, rounds};

use super::{LooperProcess, block_on, dir};

/// The minimum number of messages that wait while the service is stopped and started.
const BACKLOG: u64 = 40;
/// The number of services, each with its own file.
const SERVICES: usize = 2;

/// The results of one service.
#[derive(Default, Debug)]
struct ServiceTotals {
    restarts: usize,
    sent: u64,
    answered: BTreeSet<u64>,
    /// Messages that were received but not begun when the service was asked to end.
    given_back: u64,
}

struct RestartedService {
    requests: SqliteMailbox,
    replies: SqliteMailbox,
    sent: AtomicU64,
    is_over: AtomicBool,
}

impl RestartedService {
    fn count(&self) -> MessageCounts {
        block_on(self.requests.count()).expect("counted")
    }

    /// Sends messages all the time.
    fn send(&self) {
        while !self.is_over.load(Ordering::SeqCst) {
            if self.count().visible >= BACKLOG {
                std::thread::yield_now();
                continue;
            }
            let first = self.sent.load(Ordering::SeqCst);
            let some = (first..first + BACKLOG)
                .map(|number| (number.to_string().into_bytes(), SendOptions::new().reply_to("replies")));
            block_on(self.requests.send_all(some.collect())).expect("sent");
            self.sent.fetch_add(BACKLOG, Ordering::SeqCst);
        }
    }

    /// Reads the available answers. None of them may come a second time.
    fn read_answers(&self, answered: &mut BTreeSet<u64>) {
        loop {
            let received = block_on(self.replies.receive(ReceiveOptions::new().max_messages(MAX_MESSAGES)));
            let received = received.expect("received");
            if received.is_empty() {
                return;
            }
            for reply in &received {
                let number = reply.read().expect("a number");
                assert!(answered.insert(number), "{number} was answered twice");
            }
            let receipts: Vec<Receipt> = received.into_iter().filter_map(|reply| reply.receipt).collect();
            assert_eq!(block_on(self.replies.ack_all(&receipts)).expect("acknowledged"), receipts.len());
        }
    }
}

/// Ends the sender, even if the test fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Starts a service, lets it begin some messages, and ends it. Returns how many messages it gave back.
fn life(dir: &std::path::Path, file: &str, world: &RestartedService, begun: u64) -> u64 {
    let mut service = LooperProcess::start(dir, &["answer", file], None);
    let mut left = begun + 1;
    while left > 0 {
        let line = service.0.hear().unwrap_or_else(|| panic!("it ended by itself"));
        left -= u64::from(["serving", "begun"].contains(&line.trim_end()));
    }
    let in_flight = world.count().in_flight;
    service.0.process().signal(Signal::TERM);
    let mut after = 0;
    while service.0.hear().is_some() {
        after += 1;
    }
    let ended = service.0.wait();
    assert_eq!(ended.code(), Some(0), "a service that finishes what it has begun: {ended:?}");
    assert_eq!(world.count().in_flight, 0, "all of it was finished or given back");
    in_flight.saturating_sub(after)
}

fn year(restarts: usize, seed: u64) -> ServiceTotals {
    let dir = dir();
    let path = dir.path().join("mail");
    let open = |queue: &str| SqliteMailbox::open_named(&path, queue).expect("the mailbox");
    let (requests, replies) = (open("requests"), open("replies"));
    let world =
        RestartedService { requests, replies, sent: AtomicU64::new(0), is_over: AtomicBool::new(false) };
    let file = path.to_string_lossy().into_owned();
    let mut random = SeededRandom::new(seed);
    let mut year = ServiceTotals { restarts, ..ServiceTotals::default() };
    std::thread::scope(|scope| {
        scope.spawn(|| world.send());
        let _over = StopOnDrop(&world.is_over);
        for _ in 0..restarts {
            year.given_back += life(dir.path(), &file, &world, random.below(12));
            world.read_answers(&mut year.answered);
        }
    });
    year.sent = world.sent.load(Ordering::SeqCst);
    // Nothing is sent any more, and one more life answers the rest.
    let left = year.sent - year.answered.len() as u64;
    life(dir.path(), &file, &world, left);
    world.read_answers(&mut year.answered);
    assert_eq!(world.count(), MessageCounts::default(), "nothing is left, and nothing is buried");
    assert_eq!(year.answered, (0..year.sent).collect(), "each message is answered");
    year
}

#[test]
fn rounds_of_restarts_under_load_lose_nothing_answer_all_once_and_bury_nothing() {
    let asked = std::env::var("SNAKEPIT_RESTARTS").ok().map(|number| number.parse().expect("a number"));
    let all: usize = asked.unwrap_or_else(|| rounds(200, 10));
    let seed = random::below(u64::MAX);
    println!("seed {seed}");
    let began = Instant::now();
    std::thread::scope(|scope| {
        let years: Vec<_> = (0..SERVICES)
            .map(|number| scope.spawn(move || year(all.div_ceil(SERVICES), seed.wrapping_add(number as u64))))
            .collect();
        for year in years {
            let ServiceTotals { restarts, sent, answered, given_back } = year.join().expect("a service");
            let answered = answered.len();
            println!(
                "{restarts} restarts: {sent} sent, {answered} answered, {given_back} given back, none buried"
            );
        }
    });
    println!("{all} restarts in {:?}", began.elapsed());
}
