//! A service that is restarted repeatedly while messages arrive loses none, answers each once, and buries none.
//!
//! `SNAKEPIT_RESTARTS=10000` sets the number of restarts.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use snakepit::mailbox::{
    MAX_MESSAGES, Mailbox, MessageCounts, Receipt, ReceiveOptions, SendOptions, SqliteMailbox,
};
use snakepit_proving::random::SeededRandom;
use snakepit_proving::{random, rounds};

use super::{LooperProcess, block_on, dir, worker};

/// The minimum number of messages that wait while the service is stopped and started.
const BACKLOG: u64 = 80;
/// How long the sender waits for the service to say something.
const PATIENCE: Duration = Duration::from_mins(1);
/// The number of services, each with its own file.
const SERVICES: usize = 2;

/// What handles the messages of a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum HandledBy {
    Host,
    /// A pool with one worker, for which most calls wait.
    Pool,
}

/// How a service is asked to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stop {
    /// One signal: what has begun completes.
    Finish,
    /// Two signals: what has begun is cancelled.
    Now,
}

/// The results of one service.
#[derive(Default, Debug)]
struct ServiceTotals {
    restarts: usize,
    sent: u64,
    answered: BTreeSet<u64>,
    /// Messages that were received but not begun when the service was asked to end.
    given_back: u64,
    /// The deliveries that have counted although their messages were not answered.
    earlier_deliveries: u64,
    /// How often a second signal has stopped the service.
    cuts: u64,
}

struct RestartedService {
    handled_by: HandledBy,
    path: PathBuf,
    requests: SqliteMailbox,
    replies: SqliteMailbox,
    sent: AtomicU64,
    is_over: AtomicBool,
    /// Told of each line of the service, and of the end.
    hears: Sender<()>,
}

impl RestartedService {
    fn count(&self) -> MessageCounts {
        block_on(self.requests.count()).expect("counted")
    }

    /// Sends messages whenever the service has taken some. A sender that counted all the time would leave workers no
    /// time to start.
    fn send(&self, heard: &Receiver<()>) {
        while !self.is_over.load(Ordering::SeqCst) {
            if self.count().visible >= BACKLOG {
                let _ = heard.recv_timeout(PATIENCE);
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
struct StopOnDrop<'a>(&'a RestartedService);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::SeqCst);
        let _ = self.0.hears.send(());
    }
}

/// What a service has said of its messages in one life.
#[derive(Default)]
struct LifeReport {
    /// The messages that it has begun or answered.
    messages: u64,
    /// Their deliveries before the last one.
    earlier_deliveries: u64,
}

impl LifeReport {
    fn read(&mut self, line: &str) {
        let delivery: Option<u64> =
            line.strip_prefix("answered at delivery ").map(|delivery| delivery.parse().expect("a number"));
        self.messages += u64::from(delivery.is_some() || line == "begun");
        self.earlier_deliveries += delivery.map_or(0, |delivery| delivery - 1);
    }
}

/// Starts a service, lets it begin some messages, and ends it.
fn life(dir: &std::path::Path, world: &RestartedService, begun: u64, stop: Stop, year: &mut ServiceTotals) {
    let (file, worker) = (world.path.to_string_lossy(), worker());
    let words = match world.handled_by {
        HandledBy::Host => vec!["answer", &file],
        HandledBy::Pool => vec!["answer", &file, "pool", &worker],
    };
    let mut service = LooperProcess::start(dir, &words, None);
    let mut report = LifeReport::default();
    let mut serves = false;
    while !serves || report.messages < begun {
        let line = service.0.hear().unwrap_or_else(|| panic!("it ended by itself"));
        let _ = world.hears.send(());
        serves |= line.trim_end() == "serving";
        report.read(line.trim_end());
    }
    let in_flight = world.count().in_flight;
    service.0.process().signal(Signal::TERM);
    if stop == Stop::Now {
        service.0.process().signal(Signal::INT);
    }
    let before = report.messages;
    while let Some(line) = service.0.hear() {
        report.read(line.trim_end());
    }
    let ended = service.0.wait();
    let expected: &[i32] = match stop {
        Stop::Finish => &[0],
        // Whichever signal came last, or none of them cut anything short.
        Stop::Now => &[128 + 2, 128 + 15, 0],
    };
    assert!(ended.code().is_some_and(|code| expected.contains(&code)), "{stop:?}: {ended:?}");
    assert_eq!(world.count().in_flight, 0, "all of it was finished or given back");
    year.given_back += in_flight.saturating_sub(report.messages - before);
    year.earlier_deliveries += report.earlier_deliveries;
    year.cuts += u64::from(stop == Stop::Now);
}

fn year(handled_by: HandledBy, restarts: usize, seed: u64) -> ServiceTotals {
    let dir = dir();
    let path = dir.path().join("mail");
    let open = |queue: &str| SqliteMailbox::open_named(&path, queue).expect("the mailbox");
    let (requests, replies) = (open("requests"), open("replies"));
    let (hears, heard) = mpsc::channel();
    let (sent, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let world = RestartedService { handled_by, path, requests, replies, sent, is_over, hears };
    let mut random = SeededRandom::new(seed);
    let mut year = ServiceTotals { restarts, ..ServiceTotals::default() };
    std::thread::scope(|scope| {
        let world = &world;
        scope.spawn(move || world.send(&heard));
        let _over = StopOnDrop(world);
        for _ in 0..restarts {
            let is_cut = handled_by == HandledBy::Pool && random.below(2) == 0;
            let stop = if is_cut { Stop::Now } else { Stop::Finish };
            life(dir.path(), world, random.below(12), stop, &mut year);
            world.read_answers(&mut year.answered);
        }
    });
    year.sent = world.sent.load(Ordering::SeqCst);
    // Nothing is sent any more, and one more life answers the rest.
    let left = year.sent - year.answered.len() as u64;
    life(dir.path(), &world, left, Stop::Finish, &mut year);
    world.read_answers(&mut year.answered);
    assert_eq!(world.count(), MessageCounts::default(), "nothing is left, and nothing is buried");
    assert_eq!(year.answered, (0..year.sent).collect(), "each message is answered");
    let (counted, cuts) = (year.earlier_deliveries, year.cuts);
    // A worker has begun one call. What it was sent ahead behind a short call counts as begun, too, but all that waits in
    // the pool's queue, which is most of the window, does not.
    assert!(counted <= 2 * cuts, "{cuts} cuts, each of one call that was begun, cost {counted} deliveries");
    year
}

#[test]
fn rounds_of_restarts_under_load_lose_nothing_answer_all_once_and_bury_nothing() {
    restart_repeatedly(HandledBy::Host);
}

#[test]
fn rounds_of_restarts_of_a_pool_loop_by_one_signal_or_two_bury_nothing_either() {
    restart_repeatedly(HandledBy::Pool);
}

fn restart_repeatedly(handled_by: HandledBy) {
    let asked = std::env::var("SNAKEPIT_RESTARTS").ok().map(|number| number.parse().expect("a number"));
    let all: usize = asked.unwrap_or_else(|| rounds(200, 10));
    let seed = random::below(u64::MAX);
    println!("seed {seed}");
    let began = Instant::now();
    std::thread::scope(|scope| {
        let years: Vec<_> = (0..SERVICES)
            .map(|number| {
                let (restarts, seed) = (all.div_ceil(SERVICES), seed.wrapping_add(number as u64));
                scope.spawn(move || year(handled_by, restarts, seed))
            })
            .collect();
        for year in years {
            let ServiceTotals { restarts, sent, answered, given_back, .. } = year.join().expect("a service");
            let answered = answered.len();
            println!(
                "{restarts} restarts: {sent} sent, {answered} answered, {given_back} given back, none buried"
            );
        }
    });
    println!("{all} restarts in {:?}", began.elapsed());
}
