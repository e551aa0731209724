//! `[service]`: how the loops of a file are run together.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

use super::units::Time;
use crate::loops::{LoopGroup, SHUTDOWN_TIMEOUT, Watchdog};

/// What a file says of the group of its loops.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ServiceConfig {
    /// How long a shutdown may take.
    pub shutdown_timeout: Duration,
    /// Where probes are answered, if they are.
    pub health: Option<SocketAddr>,
    /// Which messages and loops are told to be stuck.
    pub watchdog: Watchdog,
}

impl ServiceConfig {
    /// A group as the file has it, without loops.
    pub fn group(&self, name: impl Into<String>) -> LoopGroup {
        LoopGroup::new(name).shutdown_timeout(self.shutdown_timeout).watchdog(self.watchdog)
    }
}

/// The keys of `[service]`.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct ServiceTable {
    shutdown_timeout: Option<Time>,
    health: Option<Address>,
    message_limit: Option<Time>,
    liveness_limit: Option<Time>,
    turn_limit: Option<Time>,
}

impl ServiceTable {
    pub(super) fn into_config(self) -> ServiceConfig {
        let mut watchdog = Watchdog::new();
        let time = |time: Option<Time>, usual| time.map_or(usual, |time| time.0);
        watchdog.message_limit = time(self.message_limit, watchdog.message_limit);
        watchdog.turn_limit = time(self.turn_limit, watchdog.turn_limit);
        watchdog.liveness_limit = self.liveness_limit.map(|time| time.0);
        ServiceConfig {
            shutdown_timeout: time(self.shutdown_timeout, SHUTDOWN_TIMEOUT),
            health: self.health.map(|address| address.0),
            watchdog,
        }
    }
}

/// `8080`, a port of the loopback, or `"0.0.0.0:8080"`.
struct Address(SocketAddr);

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AddressVisitor)
    }
}

struct AddressVisitor;

impl Visitor<'_> for AddressVisitor {
    type Value = Address;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a port of this machine such as 8080, or an address such as \"0.0.0.0:8080\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Address, E> {
        text.parse().map(Address).map_err(|_| {
            E::custom(format_args!(
                "{text:?} is no address: write 8080 for a port that only this machine reaches, \"0.0.0.0:8080\" for all"
            ))
        })
    }

    fn visit_i64<E: de::Error>(self, port: i64) -> Result<Address, E> {
        let port = u16::try_from(port).map_err(|_| E::invalid_value(de::Unexpected::Signed(port), &self))?;
        Ok(Address((Ipv4Addr::LOCALHOST, port).into()))
    }
}
