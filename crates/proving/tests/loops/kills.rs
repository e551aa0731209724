//! Hosts of a loop are killed at every step of a message, one after another over one file. The checker finds no
//! violation.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::Value;
use snakepit::mailbox::{DeadReason, Mailbox, SendOptions, SqliteMailbox};
use snakepit::mailbox_conformance::history::ClientOperation;
use snakepit::mailbox_conformance::{FinalState, History, Rule, Terms, check};
use snakepit_proving::mailbox_faults::OperationTrace;
use snakepit_proving::mailbox_faults::traced_mailbox::now;
use snakepit_proving::random::SeededRandom;
use snakepit_proving::{is_full, random, rounds};

use super::{LooperProcess, assert_no_runs, block_on, dir, worker};

/// All steps at which a host can be killed, and roughly how often one life reaches each step at least.
const STEPS: [(&str, u64); 16] = [
    ("receive", 4),
    ("received", 3),
    ("handle", 6),
    ("handled", 6),
    ("reply", 2),
    ("replied", 2),
    ("ack", 2),
    ("acked", 2),
    ("nack", 2),
    ("nacked", 2),
    ("bury", 2),
    ("buried", 2),
    ("extend", 3),
    ("extended", 3),
    ("giveback", 1),
    ("givenback", 1),
];

/// The number of deliveries after which a message is given up.
const LIMIT: u32 = 5;

/// The text of a request. Everything else about the request follows from it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct LoopRequest {
    kind: String,
    number: u64,
}

impl LoopRequest {
    fn of(body: &str) -> Self {
        let Ok(body) = serde_json::from_str::<Value>(body) else {
            let number = body.rsplit(' ').next().and_then(|number| number.parse().ok());
            return Self { kind: "undecodable".into(), number: number.expect("a number") };
        };
        let kind = body["kind"].as_str().expect("a kind").to_owned();
        Self { kind, number: body["number"].as_u64().expect("a number") }
    }

    /// Reports whether the request can be handled. The others end as dead letters.
    fn is_good(&self) -> bool {
        matches!(self.kind.as_str(), "fine" | "slow")
    }
}

/// What all lives over one file have reported.
#[derive(Default)]
struct LoopLives {
    notes: OperationTrace,
    /// The sent requests, and whether the send is certain.
    sent: BTreeMap<LoopRequest, bool>,
    /// The request of each receipt.
    given: BTreeMap<String, LoopRequest>,
    heard: usize,
}

impl LoopLives {
    fn hear(&mut self, lines: &[String], handler_tells: bool) {
        self.notes.hear(self.heard, lines);
        self.heard += 1;
        let lines: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let answered: BTreeSet<u64> = lines
            .iter()
            .filter(|line| line["done"] == "yes")
            .filter_map(|line| line["number"].as_u64())
            .collect();
        let mut handled: BTreeSet<&str> = BTreeSet::new();
        for line in &lines {
            if let Some(receipt) = line["handled"].as_str() {
                handled.insert(receipt);
            }
            for delivery in line["deliveries"].as_array().into_iter().flatten() {
                let text = |key: &str| delivery[key].as_str().expect("a text");
                self.given.insert(text("receipt").to_owned(), LoopRequest::of(text("body")));
            }
            let op = line["op"].as_str().unwrap_or_default();
            if op == "send" {
                let request = LoopRequest::of(line["body"].as_str().expect("a body"));
                let is_sure = line["number"].as_u64().is_some_and(|number| answered.contains(&number));
                self.sent.insert(request, is_sure);
            }
            if let (Some(receipt), true) = (line["receipt"].as_str(), handler_tells) {
                let request = &self.given[receipt];
                let is_handled = handled.contains(receipt);
                let is_right = match op {
                    "ack" | "reply" => is_handled && request.is_good(),
                    "bury" => !is_handled && !request.is_good(),
                    "nack" => !is_handled,
                    _ => true,
                };
                assert!(is_right, "{op} of {request:?}, which was handled: {is_handled}");
            }
        }
    }

    /// Checks the rules of mailboxes, then those of loops.
    fn check(mut self, path: &Path) -> BTreeMap<Rule, u64> {
        let mailbox = SqliteMailbox::open_named(path, "requests").expect("the mailbox");
        self.notes.put_in_order();
        let mut ending = block_on(FinalState::of(&History::new(), &mailbox)).expect("it can be looked at");
        ending.at = now();
        let report =
            check(&self.notes.events, &ending, Terms { max_deliveries: LIMIT, slack: Duration::ZERO });
        // Power cuts and jumps of the clock have their own tests.
        report.assert_clean(&[Rule::Q8, Rule::Q9, Rule::Q10]);
        self.check_ends(path, &mailbox);
        report.fired
    }

    /// Asserts that every request is answered or acknowledged once, or is dead for a reason. A request that can be
    /// handled dies only with its hosts.
    fn check_ends(&self, path: &Path, mailbox: &SqliteMailbox) {
        let replies = SqliteMailbox::open_named(path, "replies").expect("the mailbox");
        let numbers: Vec<u64> = block_on(replies.peek(100_000))
            .expect("a peek")
            .iter()
            .map(|reply| reply.read().expect("the number of what it answers"))
            .collect();
        let answered: BTreeSet<u64> = numbers.iter().copied().collect();
        assert_eq!(answered.len(), numbers.len(), "something was answered twice");
        let mut dead = BTreeMap::new();
        for letter in block_on(mailbox.dead_letters(100_000)).expect("dead letters") {
            let request = LoopRequest::of(&String::from_utf8_lossy(&letter.message.body));
            let deliveries = letter.message.delivery_count;
            match letter.reason {
                DeadReason::Deliveries => assert_eq!(deliveries, LIMIT, "{request:?}"),
                DeadReason::Undecodable { .. } => assert_eq!(request.kind, "undecodable"),
                DeadReason::Failed { error } => {
                    assert!(!request.is_good(), "{request:?} is dead: {error}");
                    let is_given_up = deliveries == LIMIT || request.kind == "hopeless";
                    assert!(is_given_up, "{request:?} was given up after {deliveries}: {error}");
                }
                reason => panic!("{request:?} is dead: {reason:?}"),
            }
            assert!(
                dead.insert(request.number, request.clone()).is_none(),
                "{request:?} has two dead letters"
            );
        }
        for number in &answered {
            assert!(!dead.contains_key(number), "{number} was answered, and is dead");
        }
        for (request, is_sure) in &self.sent {
            let (is_answered, is_dead) =
                (answered.contains(&request.number), dead.contains_key(&request.number));
            let asks = asks(request);
            assert!(!is_answered || (asks && request.is_good()), "{request:?} was answered");
            if *is_sure && (asks || !request.is_good()) {
                assert!(is_answered || is_dead, "{request:?} is neither answered nor dead");
            }
        }
    }

    /// Returns how often messages were delivered again, which shows that kills have an effect.
    fn repeated(&self) -> usize {
        let again = |what: &ClientOperation| match what {
            ClientOperation::Receive { deliveries, .. } => {
                deliveries.iter().filter(|it| it.number > 1).count()
            }
            _ => 0,
        };
        self.notes.events.iter().map(|event| again(&event.what)).sum()
    }
}

/// Reports whether `looper` asks for a reply when it sends this request.
fn asks(request: &LoopRequest) -> bool {
    match request.kind.as_str() {
        "fine" => matches!(request.number % 100, 0 | 6),
        "slow" | "fail" | "hopeless" => true,
        _ => false,
    }
}

/// The results over all files.
struct KillTally {
    all: usize,
    random: SeededRandom,
    kills: BTreeMap<&'static str, usize>,
    /// The same including the lives that are under way.
    planned: BTreeMap<&'static str, usize>,
    fired: BTreeMap<Rule, u64>,
    lives: u64,
    repeated: usize,
}

impl KillTally {
    fn done(&self) -> usize {
        self.kills.values().sum()
    }

    /// Returns the number of the next life and where to kill it, or `None` if there were enough kills.
    fn next(&mut self) -> Option<(u64, &'static str, String)> {
        if self.done() >= self.all && self.kills.values().all(|kills| *kills > 0) {
            return None;
        }
        self.lives += 1;
        assert!(self.lives < 3 * self.all as u64 + 50, "too few are killed: {:?}", self.kills);
        // The step with the fewest kills is next.
        let (step, times) = STEPS.into_iter().min_by_key(|(step, _)| self.planned[step]).expect("a step");
        self.note(step, 1);
        Some((self.lives, step, format!("{step}:{}", 1 + self.random.below(times))))
    }

    fn note(&mut self, step: &'static str, change: isize) {
        let planned = self.planned.get_mut(step).expect("a step");
        *planned = planned.saturating_add_signed(change);
    }

    /// Records the end of a life that was to be killed at this step.
    fn ended(&mut self, step: &'static str, was_killed: bool) {
        if was_killed {
            *self.kills.get_mut(step).expect("a step") += 1;
        } else {
            self.note(step, -1);
        }
    }
}

/// Kills hosts until there were this many kills, equally often at each step, over many files, `at_once` of them at a
/// time, because a life mostly waits.
fn kill_rounds(all: usize, of_a_file: usize, at_once: usize, handled_by: Option<&str>) {
    let seed = random::below(u64::MAX);
    println!("seed {seed}");
    let tally = Mutex::new(KillTally {
        all,
        random: SeededRandom::new(seed),
        kills: STEPS.iter().map(|(step, _)| (*step, 0)).collect(),
        planned: STEPS.iter().map(|(step, _)| (*step, 0)).collect(),
        fired: BTreeMap::new(),
        lives: 0,
        repeated: 0,
    });
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| while kill_over_a_file(&tally, of_a_file, handled_by) {});
        }
    });
    let KillTally { kills, fired, lives, repeated, .. } = tally.into_inner().expect("no panic");
    let took = began.elapsed();
    println!(
        "{lives} lives in {took:?}, killed at {kills:?}, {repeated} deliveries again, rules asked {fired:?}"
    );
    assert!(kills.values().all(|kills| *kills > 0), "no process was killed at some step: {kills:?}");
    assert!(repeated > 0, "nothing was ever delivered again");
}

/// Runs lives over one file, then one that handles the rest, and then checks. Returns `false` if there were already
/// enough kills.
fn kill_over_a_file(tally: &Mutex<KillTally>, of_a_file: usize, handled_by: Option<&str>) -> bool {
    let dir = dir();
    let path = dir.path().join("mail");
    let file = path.to_string_lossy().into_owned();
    let pool: Vec<&str> = handled_by.map_or_else(Vec::new, |worker| vec!["pool", worker]);
    let mut told = LoopLives::default();
    for _ in 0..of_a_file {
        let Some((life, step, fault)) = tally.lock().expect("no panic").next() else { break };
        let seed = life.to_string();
        let words: Vec<&str> = ["work", &file, &seed].into_iter().chain(pool.clone()).collect();
        let (lines, was_killed) = LooperProcess::life(dir.path(), &words, Some(&fault));
        told.hear(&lines, handled_by.is_none());
        tally.lock().expect("no panic").ended(step, was_killed);
    }
    if told.heard == 0 {
        return false;
    }
    let words: Vec<&str> = ["rest", &file].into_iter().chain(pool).collect();
    let (lines, was_killed) = LooperProcess::life(dir.path(), &words, None);
    assert!(!was_killed);
    told.hear(&lines, handled_by.is_none());
    let repeated = told.repeated();
    let fired = told.check(&path);
    assert_no_runs(dir.path());
    let mut tally = tally.lock().expect("no panic");
    tally.repeated += repeated;
    for (rule, times) in fired {
        *tally.fired.entry(rule).or_default() += times;
    }
    true
}

#[test]
fn rounds_of_kills_at_every_step_of_a_message_break_no_rule() {
    // Two thousand with `SNAKEPIT_FULL`.
    kill_rounds(if is_full() { 2000 } else { rounds(500, 32) }, 25, 6, None);
}

#[test]
fn a_message_that_kills_its_process_is_given_up_after_its_deliveries() {
    let dir = dir();
    let path = dir.path().join("mail");
    let mailbox = SqliteMailbox::open_named(&path, "requests").expect("the mailbox");
    for kind in ["kill", "fine"] {
        let body = format!("{{\"kind\": \"{kind}\", \"number\": 0}}");
        block_on(mailbox.send(body.into_bytes(), SendOptions::new())).expect("sent");
    }
    let file = path.to_string_lossy().into_owned();
    let lives =
        (0..2 * LIMIT).take_while(|_| LooperProcess::life(dir.path(), &["rest", &file], None).1).count();
    assert_eq!(lives, LIMIT as usize, "each delivery costs a life, and then it is over");
    let dead = block_on(mailbox.dead_letters(10)).expect("dead letters");
    let poison = dead.iter().find(|letter| letter.message.body.starts_with(b"{\"kind\": \"kill\""));
    let poison = poison.unwrap_or_else(|| panic!("it is not among {dead:?}"));
    assert_eq!((&poison.reason, poison.message.delivery_count), (&DeadReason::Deliveries, LIMIT));
    let count = block_on(mailbox.count()).expect("a count");
    assert_eq!(count.visible + count.in_flight + count.delayed, 0, "{count:?}");
}

#[test]
fn rounds_of_kills_of_a_host_whose_messages_python_workers_handle_break_no_rule() {
    kill_rounds(rounds(64, 16), 8, 2, Some(&worker()));
}
