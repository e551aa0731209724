//! Processes are killed at every step of a transaction while others continue. The checker finds no violation.
//!
//! About `crates/mailbox/src/sqlite/transaction/mod.rs` and `crates/mailbox/src/sqlite/writer/mod.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use snakepit::mailbox::{Mailbox, SqliteMailbox};
use snakepit::mailbox_conformance::history::{ClientOperation, FoundDeadLetter, LeaseEnd};
use snakepit::mailbox_conformance::{FinalState, History, Rule, Terms, check};
use snakepit_proving::mailbox_faults::OperationTrace;
use snakepit_proving::mailbox_faults::traced_mailbox::now;
use snakepit_proving::random::SeededRandom;
use snakepit_proving::{random, rounds};

use super::mailer_process::MailerProcess;
use super::{block_on, dir};

/// All steps at which a process can be killed, and roughly how often one life reaches each step.
const STEPS: [(&str, u64); 9] = [
    ("begin", 20),
    ("begun", 20),
    ("statement", 30),
    ("operation", 20),
    ("commit", 20),
    ("committed", 20),
    ("notify", 10),
    ("notified", 10),
    ("answered", 20),
];

/// The number of rounds that share a file.
const ROUNDS_OF_A_FILE: usize = 25;

/// Runs two processes at the same time, one of which should be killed. Returns whether it was.
fn round(path: &Path, who: usize, random: &mut SeededRandom, notes: &mut OperationTrace) -> bool {
    let (step, times) = STEPS[who % STEPS.len()];
    let fault = format!("{step}:kill:{}", 1 + random.below(times));
    let seed = || (random::below(u64::MAX) >> 1).to_string();
    let mut killed = MailerProcess::start(path, "work", &[&seed(), "25"], Some(&fault));
    let mut other = MailerProcess::start(path, "work", &[&seed(), "15"], None);
    let (of_killed, of_other) = (killed.rest(), other.rest());
    notes.hear(2 * who, &of_killed);
    notes.hear(2 * who + 1, &of_other);
    let was_killed = !killed.child.wait().expect("a status").success();
    assert!(other.child.wait().expect("a status").success(), "the other one failed");
    was_killed
}

fn check_file(path: &Path, mut notes: OperationTrace) -> BTreeMap<Rule, u64> {
    let mailbox = SqliteMailbox::open(path).expect("the mailbox");
    block_on(notes.drain(&mailbox));
    notes.put_in_order();
    let mut ending = block_on(FinalState::of(&History::new(), &mailbox)).expect("it can be looked at");
    ending.at = now();
    let report = check(&notes.events, &ending, Terms { max_deliveries: 5, slack: Duration::ZERO });
    // Power cuts and jumps of the clock have their own tests.
    report.assert_clean(&[Rule::Q8, Rule::Q9, Rule::Q10]);
    check_replies(path, &notes, &ending);
    report.fired
}

/// Asserts that a reply and the end of its request are one step: there is never one without the other, and never two.
fn check_replies(path: &Path, notes: &OperationTrace, ending: &FinalState) {
    let replies = SqliteMailbox::open_named(path, "replies").expect("the mailbox");
    let bodies: Vec<String> = block_on(replies.peek(100_000))
        .expect("a peek")
        .iter()
        .map(|reply| reply.read().expect("the id of what it answers"))
        .collect();
    let answered: BTreeSet<&String> = bodies.iter().collect();
    assert_eq!(answered.len(), bodies.len(), "something was answered twice");
    assert!(notes.replied.iter().all(|id| answered.contains(id)), "a reply is lost");
    for FoundDeadLetter { id, .. } in &ending.dead {
        assert!(!answered.contains(&id.to_string()), "{id} was answered, and is dead");
    }
    let acked: BTreeSet<&String> = notes
        .events
        .iter()
        .filter_map(|event| match &event.what {
            ClientOperation::End { receipt, way: LeaseEnd::Ack, is_accepted: Some(true) } => {
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
    let mut random = SeededRandom::new(seed);
    let (mut kills, mut done) = (BTreeMap::new(), 0);
    let mut fired: BTreeMap<Rule, u64> = BTreeMap::new();
    let all = rounds(500, 18);
    while done < all {
        let dir = dir();
        let path = dir.path().join("mail");
        let mut notes = OperationTrace::default();
        for who in done..all.min(done + ROUNDS_OF_A_FILE) {
            let was_killed = round(&path, who, &mut random, &mut notes);
            *kills.entry(STEPS[who % STEPS.len()].0).or_insert(0) += usize::from(was_killed);
        }
        done = all.min(done + ROUNDS_OF_A_FILE);
        for (rule, times) in check_file(&path, notes) {
            *fired.entry(rule).or_default() += times;
        }
    }
    println!("{all} rounds, killed at {kills:?}, rules asked {fired:?}");
    for (step, _) in STEPS {
        assert!(kills.get(step).is_some_and(|kills| *kills > 0), "none was killed at {step}: {kills:?}");
    }
}
