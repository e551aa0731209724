//! The state of one loop, as probes show it.

use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::{Control, EndOrder, InFlight, Intake};

/// The largest number of messages that the health of a loop lists.
const MAX_LISTED: usize = 10;

/// The state of one loop of a group.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct LoopHealth {
    /// The loop's name.
    pub name: String,
    /// Whether the loop has ever run.
    pub has_begun: bool,
    /// Whether the loop is running.
    pub running: bool,
    /// Whether the loop takes messages.
    pub intake: Intake,
    /// Whether and how the loop must end.
    pub end: EndOrder,
    /// What keeps the loop from working.
    pub trouble: Option<String>,
    /// How long ago the loop's last heartbeat was. In JSON all durations are in seconds.
    #[serde(serialize_with = "seconds")]
    pub heartbeat: Duration,
    /// How many messages are being handled.
    pub in_flight: usize,
    /// How long the oldest message in flight has been handled.
    #[serde(serialize_with = "seconds_if_any")]
    pub oldest: Option<Duration>,
    /// The messages that have been handled for longest, at most ten.
    pub messages: Vec<MessageHealth>,
}

/// The state of a message that is being handled.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct MessageHealth {
    /// The message's id.
    pub id: String,
    /// How long the message has been handled.
    #[serde(serialize_with = "seconds")]
    pub lasted: Duration,
    /// How long ago the handler last reported progress or was started.
    #[serde(serialize_with = "seconds")]
    pub since_beat: Duration,
}

impl LoopHealth {
    pub(crate) fn of(control: &Control) -> Self {
        let (orders, in_flight) = (control.wanted(), control.in_flight_messages());
        Self {
            name: control.name().to_owned(),
            has_begun: control.has_begun(),
            running: control.running(),
            intake: orders.intake,
            end: orders.end,
            trouble: control.trouble(),
            heartbeat: control.heartbeat().age(),
            in_flight: control.in_flight(),
            oldest: in_flight.first().map(|held| held.since.elapsed()),
            messages: in_flight.iter().take(MAX_LISTED).map(MessageHealth::of).collect(),
        }
    }
}

impl MessageHealth {
    fn of(held: &InFlight) -> Self {
        let (lasted, since_beat) = (held.since.elapsed(), held.last_beat.elapsed());
        Self { id: held.message.clone(), lasted, since_beat }
    }
}

fn seconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}

#[expect(clippy::ref_option, reason = "serde requires this signature")]
fn seconds_if_any<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    duration.map(|duration| duration.as_secs_f64()).serialize(serializer)
}
