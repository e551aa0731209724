//! A mailbox against the simplest thing that behaves like one, through random sequences of everything that can be done to it.
//!
//! A sequence that does not agree is made as short as it can be, and printed.

mod simple;
mod steps;

use std::collections::HashMap;
use std::sync::Arc;

use proptest::test_runner::{Config, TestRunner};
use snakepit::mailbox::{
    DeadLetterPolicy, DeadReason, Extension, Mailbox, MailboxError, Message, MessageId, Nack, Receipt,
    Receive, Send, SettingsChange,
};

use super::Fixture;
use crate::random;
use simple::{Fate, Name, Simple, Try};
use steps::{Step, steps};

/// After so many deliveries a message is given up.
const LIMIT: u32 = 3;

/// Plays so many random sequences with fresh mailboxes of the fixture.
pub fn run(fixture: &dyn Fixture, cases: u32) {
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 2000, ..Config::default() };
    let outcome = TestRunner::new(config).run(&steps(), |steps| {
        fixture.runtime().block_on(async {
            let mut game = Game::new(fixture).await;
            for step in steps {
                game.play(step).await;
            }
        });
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

/// A mailbox and its model, side by side.
struct Game<'a> {
    fixture: &'a dyn Fixture,
    mailbox: Arc<dyn Mailbox>,
    model: Simple,
    /// What the model calls a message.
    names: HashMap<MessageId, Name>,
    ids: Vec<MessageId>,
    /// Every receipt that was ever given out.
    receipts: Vec<Receipt>,
}

impl<'a> Game<'a> {
    async fn new(fixture: &'a dyn Fixture) -> Self {
        let policy = DeadLetterPolicy::new().max_deliveries(LIMIT);
        let mailbox = fixture.open(&random::word(), policy).await.expect("a fresh mailbox");
        let model = Simple::new(LIMIT);
        Self { fixture, mailbox, model, names: HashMap::new(), ids: Vec::new(), receipts: Vec::new() }
    }

    fn units(&self, units: u32) -> std::time::Duration {
        self.fixture.unit() * units
    }

    fn name(&self, id: MessageId) -> Name {
        *self.names.get(&id).unwrap_or_else(|| panic!("{id} was never sent"))
    }

    /// The names of messages that were received or looked at, and their deliveries.
    fn seen(&self, messages: &[Message]) -> Vec<(Name, u32)> {
        for message in messages {
            let name = self.name(message.id);
            assert_eq!(message.body, format!("body {name}").into_bytes(), "the body of {name}");
            self.compare_attempts(name, message);
        }
        messages.iter().map(|message| (self.name(message.id), message.delivery_count)).collect()
    }

    fn compare_attempts(&self, name: Name, message: &Message) {
        let told: Vec<Try> =
            message.attempts.iter().map(|it| (it.delivery, it.end, it.error.clone())).collect();
        assert_eq!(told, self.model.attempts(name), "the attempts of {name}");
        assert_eq!(message.max_deliveries, self.model.limit(), "the limit of {name}");
    }

    fn options(&self, step: &steps::Sending) -> Send {
        let mut options = Send::new().priority(step.priority).delay(self.units(step.delay));
        if let Some(time) = step.time_to_live {
            options = options.time_to_live(self.units(time));
        }
        if let Some(key) = step.key {
            options = options.dedup_key(format!("key {key}"));
        }
        options
    }

    fn learn(&mut self, id: MessageId, name: Name) {
        match self.names.insert(id, name) {
            Some(known) => assert_eq!(known, name, "two messages have one id, or a dedup key was forgotten"),
            None => self.ids.push(id),
        }
    }

    /// One of the receipts, whichever the number says.
    fn receipt(&self, number: usize) -> Option<(usize, Receipt)> {
        let place = number.checked_rem(self.receipts.len())?;
        Some((place, self.receipts[place].clone()))
    }

    async fn play(&mut self, step: Step) {
        match step {
            Step::Send(sending) => self.send(vec![sending]).await,
            Step::SendAll(sendings) => self.send(sendings).await,
            Step::Receive { most, lease } => {
                let options = Receive::new().max_messages(most).visibility_timeout(self.units(lease));
                let messages = self.mailbox.receive(options).await.expect("it can be received");
                assert_eq!(self.seen(&messages), self.model.receive(most, lease), "received");
                self.receipts.extend(messages.into_iter().filter_map(|message| message.receipt));
            }
            Step::Pass(units) => {
                self.fixture.pass(self.units(units)).await;
                self.model.pass(units);
            }
            Step::SetLimit(limit) => {
                let change = SettingsChange::new().max_deliveries(limit);
                let settings = self.mailbox.configure(change).await.expect("it is set");
                self.model.set_limit(limit);
                assert_eq!(settings.max_deliveries, limit, "the limit");
            }
            Step::Reopen => {
                if self.mailbox.capabilities().outlives_process.is_ok() {
                    self.mailbox = self.fixture.reopen(self.mailbox.as_ref()).await;
                }
            }
            Step::Ack(_)
            | Step::AckAll(_)
            | Step::Nack(..)
            | Step::Release(_)
            | Step::Extend(..)
            | Step::Bury(_) => {
                self.use_receipt(step).await;
            }
            Step::Peek | Step::Purge | Step::Dead | Step::Redrive(_) | Step::PurgeDead => {
                self.look(step).await;
            }
        }
        let count = self.mailbox.count().await.expect("messages can be counted");
        assert_eq!(count, self.model.count(), "after {} units", self.model.clock());
    }

    async fn send(&mut self, sendings: Vec<steps::Sending>) {
        let mut next = self.model.sent();
        let names: Vec<Name> = sendings.iter().map(|sending| self.model.send(sending)).collect();
        let bodies = sendings.iter().zip(&names).map(|(sending, name)| {
            // A message that is not put in again says something else, so that it would be noticed.
            let is_new = *name == next;
            next += usize::from(is_new);
            let body = if is_new { format!("body {name}") } else { "a copy".to_owned() };
            (body.into_bytes(), self.options(sending))
        });
        let mut bodies: Vec<(Vec<u8>, Send)> = bodies.collect();
        let ids = match bodies.len() {
            1 => {
                let (body, options) = bodies.remove(0);
                vec![self.mailbox.send(body, options).await.expect("it is sent")]
            }
            _ => self.mailbox.send_all(bodies).await.expect("they are sent"),
        };
        for (id, name) in ids.into_iter().zip(names) {
            self.learn(id, name);
        }
    }

    async fn use_receipt(&mut self, step: Step) {
        let number = match &step {
            Step::Ack(number)
            | Step::Nack(number, _)
            | Step::Release(number)
            | Step::Extend(number, ..)
            | Step::Bury(number) => *number,
            Step::AckAll(numbers) => {
                let chosen: Vec<(usize, Receipt)> =
                    numbers.iter().filter_map(|number| self.receipt(*number)).collect();
                let receipts: Vec<Receipt> = chosen.iter().map(|(_, receipt)| receipt.clone()).collect();
                let acked = self.mailbox.ack_all(&receipts).await.expect("acks");
                let expected = chosen.iter().filter(|(place, _)| self.model.end(*place, Fate::Gone)).count();
                return assert_eq!(acked, expected, "acks");
            }
            _ => return,
        };
        let Some((place, receipt)) = self.receipt(number) else { return };
        let (outcome, expected) = match step {
            Step::Ack(_) => (self.mailbox.ack(&receipt).await, self.model.end(place, Fate::Gone)),
            Step::Nack(_, pause) => {
                let error = format!("failure {place}");
                let options = Nack::new().visibility(self.units(pause)).error(&error);
                let outcome = self.mailbox.nack(&receipt, options).await;
                (outcome, self.model.end(place, Fate::Back(pause, error)))
            }
            Step::Release(_) => {
                let released = self.mailbox.release(std::slice::from_ref(&receipt)).await.expect("a release");
                let outcome = if released == 1 { Ok(()) } else { Err(MailboxError::ReceiptExpired) };
                (outcome, self.model.end(place, Fate::Undone))
            }
            Step::Extend(_, time, extension) => {
                let outcome = self.mailbox.extend(&receipt, self.units(time), extension).await;
                (outcome, self.model.extend(place, time, extension == Extension::Exactly))
            }
            _ => {
                let reason = DeadReason::Failed { error: "buried".into() };
                let outcome = self.mailbox.bury(&receipt, reason.clone()).await;
                (outcome, self.model.end(place, Fate::Dead(reason)))
            }
        };
        match outcome {
            Ok(()) => assert!(expected, "{receipt} was accepted"),
            Err(MailboxError::ReceiptExpired) => assert!(!expected, "{receipt} was refused"),
            Err(error) => panic!("{error}"),
        }
    }

    async fn look(&mut self, step: Step) {
        match step {
            Step::Peek => {
                let seen = self.mailbox.peek(1000).await.expect("a look");
                assert_eq!(self.seen(&seen), self.model.visible(), "peek");
            }
            Step::Purge => {
                assert_eq!(self.mailbox.purge().await.expect("a purge"), self.model.purge(), "purge");
            }
            Step::PurgeDead => {
                let purged = self.mailbox.purge_dead_letters().await.expect("a purge");
                assert_eq!(purged, self.model.purge_dead(), "purge of dead letters");
            }
            Step::Redrive(chosen) => {
                self.compare_dead_letters().await;
                let ids = chosen.map(|numbers| {
                    let id = |number: &usize| Some(self.ids[number.checked_rem(self.ids.len())?]);
                    numbers.iter().filter_map(id).collect::<Vec<_>>()
                });
                let redriven = self.mailbox.redrive(ids.as_deref()).await.expect("a redrive");
                let names = ids.map(|ids| ids.iter().map(|id| self.name(*id)).collect::<Vec<_>>());
                assert_eq!(redriven, self.model.redrive(names.as_deref()), "redrive");
            }
            _ => self.compare_dead_letters().await,
        }
    }

    /// Those that died at the same time may come in any order; the model takes it over, since a redrive keeps it.
    async fn compare_dead_letters(&mut self) {
        let letters = self.mailbox.dead_letters(1000).await.expect("dead letters can be listed");
        for letter in &letters {
            self.compare_attempts(self.name(letter.message.id), &letter.message);
        }
        let listed: Vec<(Name, DeadReason, u32)> = letters
            .into_iter()
            .map(|letter| (self.name(letter.message.id), letter.reason, letter.message.delivery_count))
            .collect();
        self.model.agree_on_dead_letters(&listed);
    }
}
