//! Reads the lines that [`TracedMailbox`](super::TracedMailbox) writes into a history, including those of killed
//! processes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;
use snakepit::mailbox::{LeaseExtension, Mailbox, Message, Receipt, ReceiveOptions};

use super::traced_mailbox::now;
use snakepit::mailbox_conformance::history::{
    BodyDigest, ClientOperation, Delivery, HistoryEvent, HistoryMoment, LeaseEnd,
};

/// The operations of all processes.
#[derive(Debug, Default)]
pub struct OperationTrace {
    /// The events, which are in order only after [`OperationTrace::put_in_order`].
    pub events: Vec<HistoryEvent>,
    /// The ids of messages whose replies were certainly accepted.
    pub replied: BTreeSet<String>,
    /// The message of each receipt.
    pub owners: BTreeMap<String, String>,
}

/// Creates a moment that gets its order once all moments are known.
fn moment(time: &Value) -> HistoryMoment {
    HistoryMoment { order: 0, time: time.as_u64().expect("a time") }
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

impl OperationTrace {
    /// Adds the lines of one process: operations and their answers. The last answers may be missing.
    pub fn hear(&mut self, who: usize, lines: &[String]) {
        let lines: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let answers: BTreeMap<u64, &Value> =
            lines.iter().filter(|line| line["told"].is_u64()).map(|line| (number(line), line)).collect();
        for asked in lines.iter().filter(|line| line["asked"].is_u64()) {
            let told = answers.get(&number(asked)).copied();
            let what = self.what(asked, told);
            let returned = told.map(|told| moment(&told["told"]));
            self.events.push(HistoryEvent { who, invoked: moment(&asked["asked"]), returned, what });
        }
    }

    fn what(&mut self, asked: &Value, told: Option<&Value>) -> ClientOperation {
        let done = told.map_or("unknown", |told| told["done"].as_str().unwrap_or("yes"));
        let is_accepted = match done {
            "yes" => Some(true),
            "no" => Some(false),
            _ => None,
        };
        let lease = || Duration::from_nanos(asked["lease"].as_u64().expect("a time"));
        let receipt = || Receipt::from(text(&asked["receipt"]));
        let end = |way| ClientOperation::End { receipt: receipt(), way, is_accepted };
        match text(&asked["op"]) {
            "send" => ClientOperation::Send {
                body: BodyDigest::of(text(&asked["body"]).as_bytes()),
                id: told.and_then(|told| told["id"].as_str()).map(|id| id.parse().expect("an id")),
                is_refused: done == "no",
            },
            "receive" => ClientOperation::Receive { lease: lease(), deliveries: self.deliveries(told) },
            "extend" => ClientOperation::Extend {
                receipt: receipt(),
                lease: lease(),
                extension: LeaseExtension::AtLeast,
                is_accepted,
            },
            "ack" => end(LeaseEnd::Ack),
            "nack" => end(LeaseEnd::Nack),
            "release" => end(LeaseEnd::Release),
            "bury" => end(LeaseEnd::Bury),
            "reply" => {
                if is_accepted == Some(true) {
                    self.replied.insert(self.owners[text(&asked["receipt"])].clone());
                }
                end(LeaseEnd::Reply)
            }
            other => panic!("what is {other}?"),
        }
    }

    fn deliveries(&mut self, told: Option<&Value>) -> Vec<Delivery> {
        // A receive that was never answered, or that failed, has no deliveries.
        let Some(deliveries) = told.and_then(|told| told["deliveries"].as_array()) else { return Vec::new() };
        for delivery in deliveries {
            self.owners.insert(text(&delivery["receipt"]).into(), text(&delivery["id"]).into());
        }
        let delivery = |it: &Value| Delivery {
            id: text(&it["id"]).parse().expect("an id"),
            body: BodyDigest::of(text(&it["body"]).as_bytes()),
            receipt: Receipt::from(text(&it["receipt"])),
            number: it["delivery"].as_u64().expect("a number") as u32,
        };
        deliveries.iter().map(delivery).collect()
    }

    /// Receives and acknowledges what is left.
    pub async fn drain(&mut self, mailbox: &dyn Mailbox) {
        let lease = Duration::from_mins(1);
        loop {
            let mut began = now();
            let options = ReceiveOptions::new()
                .max_messages(10)
                .visibility_timeout(lease)
                .wait(Duration::from_millis(500));
            let messages = mailbox.receive(options).await.expect("a receive");
            let delivery = |message: &Message| Delivery {
                id: message.id,
                body: BodyDigest::of(&message.body),
                receipt: message.receipt.clone().expect("a receipt"),
                number: message.delivery_count,
            };
            self.own(
                &mut began,
                ClientOperation::Receive { lease, deliveries: messages.iter().map(delivery).collect() },
            );
            for message in &messages {
                message.ack().await.expect("an ack");
                let receipt = message.receipt.clone().expect("a receipt");
                self.own(
                    &mut began,
                    ClientOperation::End { receipt, way: LeaseEnd::Ack, is_accepted: Some(true) },
                );
            }
            let count = mailbox.count().await.expect("a count");
            if messages.is_empty() && count.in_flight + count.delayed + count.visible == 0 {
                return;
            }
        }
    }

    /// Adds an operation of this process, which lasted from `began` until now.
    fn own(&mut self, began: &mut u64, what: ClientOperation) {
        let (invoked, returned) =
            (HistoryMoment { order: 0, time: *began }, HistoryMoment { order: 0, time: now() });
        self.events.push(HistoryEvent { who: usize::MAX, invoked, returned: Some(returned), what });
        *began = returned.time;
    }

    /// Orders all moments by time.
    pub fn put_in_order(&mut self) {
        let mut moments: Vec<&mut HistoryMoment> = Vec::new();
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
