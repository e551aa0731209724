//! Processes that are killed at every step of a transaction, while others go on: the checker finds nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use snakepit::mailbox::sqlite::{BootClock, Clock};
use snakepit::mailbox::{Extension, Mailbox, Message, Receipt, Receive, SqliteMailbox};
use snakepit_proving::mailbox::history::{Delivery, Digest, Event, Moment, Way, What};
use snakepit_proving::mailbox::load::Dice;
use snakepit_proving::mailbox::{Ending, History, Rule, Terms, check};
use snakepit_proving::{random, rounds};

use super::child::Mailer;
use super::{block_on, dir};

/// All steps at which a process can be killed, and how often each is reached in one life, about.
const STEPS: [(&str, u64); 9] = [
    ("begin", 20),
    ("begun", 20),
    ("statement", 30),
    ("order", 20),
    ("commit", 20),
    ("committed", 20),
    ("bell", 10),
    ("rung", 10),
    ("answered", 20),
];

/// How many rounds share a file.
const ROUNDS_OF_A_FILE: usize = 25;

/// What all processes have told.
#[derive(Default)]
struct Notes {
    events: Vec<Event>,
    /// Bodies by their ids, for those replies that were accepted for sure.
    replied: BTreeSet<String>,
    /// The message of each receipt.
    owners: BTreeMap<String, String>,
}

fn now() -> u64 {
    BootClock.since_boot().as_nanos() as u64
}

/// Without an order until all moments are known.
fn moment(time: &Value) -> Moment {
    Moment { order: 0, time: time.as_u64().expect("a time") }
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

impl Notes {
    /// What one process has told: questions, each followed by its answer, but for the last.
    fn hear(&mut self, who: usize, lines: &[String]) {
        let lines: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let answers: BTreeMap<u64, &Value> =
            lines.iter().filter(|line| line["told"].is_u64()).map(|line| (number(line), line)).collect();
        for asked in lines.iter().filter(|line| line["asked"].is_u64()) {
            let told = answers.get(&number(asked)).copied();
            let what = self.what(asked, told);
            let returned = told.map(|told| moment(&told["told"]));
            self.events.push(Event { who, invoked: moment(&asked["asked"]), returned, what });
        }
    }

    fn what(&mut self, asked: &Value, told: Option<&Value>) -> What {
        let done = told.map_or("unknown", |told| told["done"].as_str().unwrap_or("yes"));
        let is_accepted = match done {
            "yes" => Some(true),
            "no" => Some(false),
            _ => None,
        };
        let lease = || Duration::from_nanos(asked["lease"].as_u64().expect("a time"));
        let receipt = || Receipt::from(text(&asked["receipt"]));
        let end = |way| What::End { receipt: receipt(), way, is_accepted };
        match text(&asked["op"]) {
            "send" => What::Send {
                body: Digest::of(text(&asked["body"]).as_bytes()),
                id: told.and_then(|told| told["id"].as_str()).map(|id| id.parse().expect("an id")),
                is_refused: done == "no",
            },
            "receive" => What::Receive { lease: lease(), deliveries: self.deliveries(told) },
            "extend" => What::Extend {
                receipt: receipt(),
                lease: lease(),
                extension: Extension::AtLeast,
                is_accepted,
            },
            "ack" => end(Way::Ack),
            "nack" => end(Way::Nack),
            "bury" => end(Way::Bury),
            "reply" => {
                if is_accepted == Some(true) {
                    self.replied.insert(self.owners[text(&asked["receipt"])].clone());
                }
                end(Way::Reply)
            }
            other => panic!("what is {other}?"),
        }
    }

    fn deliveries(&mut self, told: Option<&Value>) -> Vec<Delivery> {
        let Some(told) = told else { return Vec::new() };
        let deliveries = told["deliveries"].as_array().expect("a list");
        for delivery in deliveries {
            self.owners.insert(text(&delivery["receipt"]).into(), text(&delivery["id"]).into());
        }
        let delivery = |it: &Value| Delivery {
            id: text(&it["id"]).parse().expect("an id"),
            body: Digest::of(text(&it["body"]).as_bytes()),
            receipt: Receipt::from(text(&it["receipt"])),
            number: it["delivery"].as_u64().expect("a number") as u32,
        };
        deliveries.iter().map(delivery).collect()
    }

    /// Receives and acknowledges what is left.
    fn drain(&mut self, mailbox: &SqliteMailbox) {
        let lease = Duration::from_mins(1);
        loop {
            let mut began = now();
            let options =
                Receive::new().max_messages(10).visibility_timeout(lease).wait(Duration::from_millis(500));
            let messages = block_on(mailbox.receive(options)).expect("a receive");
            let delivery = |message: &Message| Delivery {
                id: message.id,
                body: Digest::of(&message.body),
                receipt: message.receipt.clone().expect("a receipt"),
                number: message.delivery_count,
            };
            self.own(
                &mut began,
                What::Receive { lease, deliveries: messages.iter().map(delivery).collect() },
            );
            for message in &messages {
                block_on(message.ack()).expect("an ack");
                let receipt = message.receipt.clone().expect("a receipt");
                self.own(&mut began, What::End { receipt, way: Way::Ack, is_accepted: Some(true) });
            }
            let count = block_on(mailbox.count()).expect("a count");
            if messages.is_empty() && count.in_flight + count.delayed + count.visible == 0 {
                return;
            }
        }
    }

    /// Something that this process did since `began`.
    fn own(&mut self, began: &mut u64, what: What) {
        let (invoked, returned) = (Moment { order: 0, time: *began }, Moment { order: 0, time: now() });
        self.events.push(Event { who: usize::MAX, invoked, returned: Some(returned), what });
        *began = returned.time;
    }

    /// Gives all moments their order.
    fn put_in_order(&mut self) {
        let mut moments: Vec<&mut Moment> = Vec::new();
        for event in &mut self.events {
            moments.push(&mut event.invoked);
            moments.extend(event.returned.as_mut());
        }
        moments.sort_by_key(|moment| moment.time);
        for (order, moment) in moments.into_iter().enumerate() {
            moment.order = order as u64;
        }
        self.events.sort_by_key(|event| event.invoked);
    }
}

fn number(line: &Value) -> u64 {
    line["number"].as_u64().expect("a number")
}

/// Two processes at a time, one of which is killed; whether it was.
fn round(path: &Path, who: usize, dice: &mut Dice, notes: &mut Notes) -> bool {
    let (step, times) = STEPS[who % STEPS.len()];
    let fault = format!("{step}:kill:{}", 1 + dice.below(times));
    let seed = || (random::below(u64::MAX) >> 1).to_string();
    let mut killed = Mailer::start(path, "work", &[&seed(), "25"], Some(&fault));
    let mut other = Mailer::start(path, "work", &[&seed(), "15"], None);
    let (of_killed, of_other) = (killed.rest(), other.rest());
    notes.hear(2 * who, &of_killed);
    notes.hear(2 * who + 1, &of_other);
    let was_killed = !killed.child.wait().expect("a status").success();
    assert!(other.child.wait().expect("a status").success(), "the other one failed");
    was_killed
}

fn check_file(path: &Path, mut notes: Notes) -> BTreeMap<Rule, u64> {
    let mailbox = SqliteMailbox::open(path).expect("the mailbox");
    notes.drain(&mailbox);
    notes.put_in_order();
    let mut ending = block_on(Ending::of(&History::new(), &mailbox)).expect("it can be looked at");
    ending.at = now();
    let report = check(&notes.events, &ending, Terms { max_deliveries: 5, slack: Duration::ZERO });
    // Cuts of the power and jumps of the clock have tests of their own.
    report.assert_clean(&[Rule::Q8, Rule::Q9, Rule::Q10]);
    check_replies(path, &notes, &ending);
    report.fired
}

/// A reply and the end of what it answers are one step: there is never one without the other, and never two.
fn check_replies(path: &Path, notes: &Notes, ending: &Ending) {
    let replies = SqliteMailbox::open_named(path, "replies").expect("the mailbox");
    let bodies: Vec<String> = block_on(replies.peek(100_000))
        .expect("a peek")
        .iter()
        .map(|reply| reply.read().expect("the id of what it answers"))
        .collect();
    let answered: BTreeSet<&String> = bodies.iter().collect();
    assert_eq!(answered.len(), bodies.len(), "something was answered twice");
    assert!(notes.replied.iter().all(|id| answered.contains(id)), "a reply is lost");
    for (id, ..) in &ending.dead {
        assert!(!answered.contains(&id.to_string()), "{id} was answered, and is dead");
    }
    let acked: BTreeSet<&String> = notes
        .events
        .iter()
        .filter_map(|event| match &event.what {
            What::End { receipt, way: Way::Ack, is_accepted: Some(true) } => {
                notes.owners.get(&receipt.to_string())
            }
            _ => None,
        })
        .collect();
    assert!(answered.is_disjoint(&acked), "something was answered, and acknowledged as well");
}

#[test]
fn a_process_that_is_killed_at_any_step_of_any_operation_breaks_no_rule() {
    let seed = random::below(u64::MAX);
    println!("seed {seed}");
    let mut dice = Dice::new(seed);
    let (mut kills, mut done) = (BTreeMap::new(), 0);
    let mut fired: BTreeMap<Rule, u64> = BTreeMap::new();
    let all = rounds(500, 18);
    while done < all {
        let dir = dir();
        let path = dir.path().join("mail");
        let mut notes = Notes::default();
        for who in done..all.min(done + ROUNDS_OF_A_FILE) {
            let was_killed = round(&path, who, &mut dice, &mut notes);
            *kills.entry(STEPS[who % STEPS.len()].0).or_insert(0) += usize::from(was_killed);
        }
        done = all.min(done + ROUNDS_OF_A_FILE);
        for (rule, times) in check_file(&path, notes) {
            *fired.entry(rule).or_default() += times;
        }
    }
    println!("{all} rounds, killed at {kills:?}, rules asked {fired:?}");
    for (step, _) in STEPS {
        assert!(kills.get(step).is_some_and(|kills| *kills > 0), "nobody was killed at {step}: {kills:?}");
    }
}
