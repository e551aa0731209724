//! `[service]`: how the loops of a file run together.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize};

use crate::loops::{LoopGroup, SHUTDOWN_TIMEOUT, Watchdog};
use snakepit_settings::{HumanTime, settings};

/// The settings for running the loops of a file together.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ServiceConfig {
    /// The time limit of a shutdown.
    pub shutdown_timeout: Duration,
    /// The address on which probes are answered, or `None` to answer none.
    pub health: Option<SocketAddr>,
    /// The limits after which messages and loops count as stuck.
    pub watchdog: Watchdog,
}

impl ServiceConfig {
    /// Returns an empty group with these settings.
    pub fn group(&self, name: impl Into<String>) -> LoopGroup {
        LoopGroup::new(name).shutdown_timeout(self.shutdown_timeout).watchdog(self.watchdog)
    }
}

impl Default for ServiceConfig {
    fn default() -> Self {
        Self { shutdown_timeout: SHUTDOWN_TIMEOUT, health: None, watchdog: Watchdog::new() }
    }
}

settings! {
    keys of ServiceConfig {
        /// The time limit of a shutdown. Until then, messages that are being handled are completed.
        shutdown_timeout: Duration as HumanTime,
        /// The address on which probes are answered: a port that is reachable only from this machine, or an address,
        /// such as `"0.0.0.0:8080"` for Kubernetes. Unset: none. Example: `health = 8080`.
        health: Option<SocketAddr> as Option<ProbeAddress>,
    }
    parts { watchdog: Watchdog }
}

/// A port of the loopback interface, such as `8080`, or an address, such as `"0.0.0.0:8080"`.
#[derive(Serialize)]
struct ProbeAddress(SocketAddr);

impl<'de> Deserialize<'de> for ProbeAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AddressVisitor)
    }
}

settings!(notation ProbeAddress of SocketAddr);

struct AddressVisitor;

impl Visitor<'_> for AddressVisitor {
    type Value = ProbeAddress;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a port of this machine such as 8080, or an address such as \"0.0.0.0:8080\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<ProbeAddress, E> {
        text.parse().map(ProbeAddress).map_err(|_| {
            E::custom(format_args!(
                "{text:?} is not an address: write 8080 for a port that only this machine reaches, or \"0.0.0.0:8080\" for all machines"
            ))
        })
    }

    fn visit_i64<E: de::Error>(self, port: i64) -> Result<ProbeAddress, E> {
        let port = u16::try_from(port).map_err(|_| E::invalid_value(de::Unexpected::Signed(port), &self))?;
        Ok(ProbeAddress((Ipv4Addr::LOCALHOST, port).into()))
    }
}
