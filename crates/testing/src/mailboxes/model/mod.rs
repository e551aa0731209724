//! Compares a mailbox with a simple model in random sequences of all operations.
//!
//! If the two differ, the sequence is shrunk and printed.

mod model_mailbox;
mod steps;

use std::collections::HashMap;
use std::sync::Arc;

use proptest::test_runner::{Config, TestRunner};
use snakepit_mailbox::{
    DeadLetterPolicy, DeadReason, LeaseExtension, Mailbox, MailboxError, Message, MessageId, NackOptions,
    Receipt, ReceiveOptions, SendOptions, SettingsChange,
};

use super::fixture::{Fixture, fresh_name};
use model_mailbox::{LeaseOutcome, MessageNumber, ModelAttempt, ModelMailbox};
use steps::{MailboxStep, ReceiptUse, steps};

/// The number of deliveries after which a message is given up.
const LIMIT: u32 = 3;

/// Runs random sequences, each with a fresh mailbox of the fixture.
pub fn run(fixture: &dyn Fixture, cases: u32) {
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 2000, ..Config::default() };
    let outcome = TestRunner::new(config).run(&steps(), |steps| {
        fixture.runtime().block_on(async {
            let mut game = ModelRun::new(fixture).await;
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
struct ModelRun<'a> {
    fixture: &'a dyn Fixture,
    mailbox: Arc<dyn Mailbox>,
    model: ModelMailbox,
    /// The model's number of each message.
    names: HashMap<MessageId, MessageNumber>,
    ids: Vec<MessageId>,
    /// Every receipt that the mailbox issued.
    receipts: Vec<Receipt>,
}

impl<'a> ModelRun<'a> {
    async fn new(fixture: &'a dyn Fixture) -> Self {
        let policy = DeadLetterPolicy::new().max_deliveries(LIMIT);
        let mailbox = fixture.open(&fresh_name(), policy).await.expect("a fresh mailbox");
        let model = ModelMailbox::new(LIMIT);
        Self { fixture, mailbox, model, names: HashMap::new(), ids: Vec::new(), receipts: Vec::new() }
    }

    fn units(&self, units: u32) -> std::time::Duration {
        self.fixture.unit() * units
    }

    fn name(&self, id: MessageId) -> MessageNumber {
        *self.names.get(&id).unwrap_or_else(|| panic!("{id} was never sent"))
    }

    /// Returns the numbers of the messages, and how often each was delivered.
    fn seen(&self, messages: &[Message]) -> Vec<(MessageNumber, u32)> {
        for message in messages {
            let name = self.name(message.id);
            assert_eq!(message.body, format!("body {name}").into_bytes(), "the body of {name}");
            self.compare_attempts(name, message);
        }
        messages.iter().map(|message| (self.name(message.id), message.delivery_count)).collect()
    }

    fn compare_attempts(&self, name: MessageNumber, message: &Message) {
        let told: Vec<ModelAttempt> =
            message.attempts.iter().map(|it| (it.delivery, it.end, it.error.clone())).collect();
        assert_eq!(told, self.model.attempts(name), "the attempts of {name}");
        assert_eq!(message.max_deliveries, self.model.limit(), "the limit of {name}");
    }

    fn options(&self, step: &steps::ModelSend) -> SendOptions {
        let mut options = SendOptions::new().priority(step.priority).delay(self.units(step.delay));
        if let Some(time) = step.time_to_live {
            options = options.time_to_live(self.units(time));
        }
        if let Some(key) = step.key {
            options = options.dedup_key(format!("key {key}"));
        }
        options
    }

    fn learn(&mut self, id: MessageId, name: MessageNumber) {
        match self.names.insert(id, name) {
            Some(known) => assert_eq!(known, name, "two messages have one id, or a dedup key was forgotten"),
            None => self.ids.push(id),
        }
    }

    /// Returns the receipt that the number selects.
    fn receipt(&self, number: usize) -> Option<(usize, Receipt)> {
        let place = number.checked_rem(self.receipts.len())?;
        Some((place, self.receipts[place].clone()))
    }

    async fn play(&mut self, step: MailboxStep) {
        match step {
            MailboxStep::Send(sending) => self.send(vec![sending]).await,
            MailboxStep::SendAll(sendings) => self.send(sendings).await,
            MailboxStep::Receive { most, lease } => {
                let options = ReceiveOptions::new().max_messages(most).visibility_timeout(self.units(lease));
                let messages = self.mailbox.receive(options).await.expect("it can be received");
                assert_eq!(self.seen(&messages), self.model.receive(most, lease), "received");
                self.receipts.extend(messages.into_iter().filter_map(|message| message.receipt));
            }
            MailboxStep::Pass(units) => {
                self.fixture.pass(self.units(units)).await;
                self.model.pass(units);
            }
            MailboxStep::SetLimit(limit) => {
                let change = SettingsChange::new().max_deliveries(limit);
                let settings = self.mailbox.configure(change).await.expect("it is set");
                self.model.set_limit(limit);
                assert_eq!(settings.max_deliveries, limit, "the limit");
            }
            MailboxStep::Reopen => {
                if self.mailbox.capabilities().outlives_process.reason_against().is_none() {
                    self.mailbox =
                        self.fixture.reopen(self.mailbox.as_ref()).await.expect("the mailbox again");
                }
            }
            MailboxStep::Use(number, how) => self.use_receipt(number, how).await,
            MailboxStep::AckAll(numbers) => self.ack_all(&numbers).await,
            MailboxStep::Peek => {
                let seen = self.mailbox.peek(1000).await.expect("a look");
                assert_eq!(self.seen(&seen), self.model.visible(), "peek");
            }
            MailboxStep::Purge => {
                assert_eq!(self.mailbox.purge().await.expect("a purge"), self.model.purge(), "purge");
            }
            MailboxStep::Dead => self.compare_dead_letters().await,
            MailboxStep::PurgeDead => {
                let purged = self.mailbox.purge_dead_letters().await.expect("a purge");
                assert_eq!(purged, self.model.purge_dead(), "purge of dead letters");
            }
            MailboxStep::Redrive(chosen) => self.redrive(chosen).await,
        }
        let count = self.mailbox.count().await.expect("messages can be counted");
        assert_eq!(count, self.model.count(), "after {} units", self.model.clock());
    }

    async fn send(&mut self, sendings: Vec<steps::ModelSend>) {
        let mut next = self.model.sent();
        let names: Vec<MessageNumber> = sendings.iter().map(|sending| self.model.send(sending)).collect();
        let bodies = sendings.iter().zip(&names).map(|(sending, name)| {
            // A duplicate has another body, so the comparison would notice its delivery.
            let is_new = *name == next;
            next += usize::from(is_new);
            let body = if is_new { format!("body {name}") } else { "a copy".to_owned() };
            (body.into_bytes(), self.options(sending))
        });
        let mut bodies: Vec<(Vec<u8>, SendOptions)> = bodies.collect();
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

    async fn ack_all(&mut self, numbers: &[usize]) {
        let chosen: Vec<(usize, Receipt)> =
            numbers.iter().filter_map(|number| self.receipt(*number)).collect();
        let receipts: Vec<Receipt> = chosen.iter().map(|(_, receipt)| receipt.clone()).collect();
        let acked = self.mailbox.ack_all(&receipts).await.expect("acks");
        let expected = chosen.iter().filter(|(place, _)| self.model.end(*place, LeaseOutcome::Gone)).count();
        assert_eq!(acked, expected, "acks");
    }

    async fn use_receipt(&mut self, number: usize, how: ReceiptUse) {
        let Some((place, receipt)) = self.receipt(number) else { return };
        let (outcome, expected) = match how {
            ReceiptUse::Ack => (self.mailbox.ack(&receipt).await, self.model.end(place, LeaseOutcome::Gone)),
            ReceiptUse::Nack(pause) => {
                let error = format!("failure {place}");
                let options = NackOptions::new().visibility(self.units(pause)).error(&error);
                let outcome = self.mailbox.nack(&receipt, options).await;
                (outcome, self.model.end(place, LeaseOutcome::Back(pause, error)))
            }
            ReceiptUse::Release => {
                let released = self.mailbox.release(std::slice::from_ref(&receipt)).await.expect("a release");
                let outcome = if released == 1 { Ok(()) } else { Err(MailboxError::ReceiptExpired) };
                (outcome, self.model.end(place, LeaseOutcome::Undone))
            }
            ReceiptUse::Extend(time, extension) => {
                let outcome = self.mailbox.extend(&receipt, self.units(time), extension).await;
                (outcome, self.model.extend(place, time, extension == LeaseExtension::Exactly))
            }
            ReceiptUse::Bury => {
                let reason = DeadReason::Failed { error: "buried".into() };
                let outcome = self.mailbox.bury(&receipt, reason.clone()).await;
                (outcome, self.model.end(place, LeaseOutcome::Dead(reason)))
            }
        };
        match outcome {
            Ok(()) => assert!(expected, "{receipt} was accepted"),
            Err(MailboxError::ReceiptExpired) => assert!(!expected, "{receipt} was refused"),
            Err(error) => panic!("{error}"),
        }
    }

    async fn redrive(&mut self, chosen: Option<Vec<usize>>) {
        self.compare_dead_letters().await;
        let ids = chosen.map(|numbers| {
            let id = |number: &usize| Some(self.ids[number.checked_rem(self.ids.len())?]);
            numbers.iter().filter_map(id).collect::<Vec<_>>()
        });
        let redriven = self.mailbox.redrive(ids.as_deref()).await.expect("a redrive");
        let names = ids.map(|ids| ids.iter().map(|id| self.name(*id)).collect::<Vec<_>>());
        assert_eq!(redriven, self.model.redrive(names.as_deref()), "redrive");
    }

    /// Compares the dead letters. Messages that died at the same time may come in any order. The model adopts this
    /// order, because a redrive keeps it.
    async fn compare_dead_letters(&mut self) {
        let letters = self.mailbox.dead_letters(1000).await.expect("dead letters can be listed");
        for letter in &letters {
            self.compare_attempts(self.name(letter.message.id), &letter.message);
        }
        let listed: Vec<(MessageNumber, DeadReason, u32)> = letters
            .into_iter()
            .map(|letter| (self.name(letter.message.id), letter.reason, letter.message.delivery_count))
            .collect();
        self.model.agree_on_dead_letters(&listed);
    }
}
