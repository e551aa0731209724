//! What processes have told of what they did to a mailbox, as [`telling`](super::telling) writes it: a history, also of those
//! who were killed in the middle.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;
use snakepit::mailbox::{Extension, Mailbox, Message, Receipt, Receive};

use super::history::{Delivery, Digest, Event, Moment, Way, What};
use super::telling::now;

/// What all processes have told.
#[derive(Debug, Default)]
pub struct Notes {
    /// In the order of [`Notes::put_in_order`].
    pub events: Vec<Event>,
    /// The ids of messages whose replies were accepted for sure.
    pub replied: BTreeSet<String>,
    /// The message of each receipt.
    pub owners: BTreeMap<String, String>,
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
    pub fn hear(&mut self, who: usize, lines: &[String]) {
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
            "release" => end(Way::Release),
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
        // There are none in what was never answered, nor where the mailbox failed.
        let Some(deliveries) = told.and_then(|told| told["deliveries"].as_array()) else { return Vec::new() };
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
    pub async fn drain(&mut self, mailbox: &dyn Mailbox) {
        let lease = Duration::from_mins(1);
        loop {
            let mut began = now();
            let options =
                Receive::new().max_messages(10).visibility_timeout(lease).wait(Duration::from_millis(500));
            let messages = mailbox.receive(options).await.expect("a receive");
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
                message.ack().await.expect("an ack");
                let receipt = message.receipt.clone().expect("a receipt");
                self.own(&mut began, What::End { receipt, way: Way::Ack, is_accepted: Some(true) });
            }
            let count = mailbox.count().await.expect("a count");
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
    pub fn put_in_order(&mut self) {
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
