//! Decisions about calls and devices that keep killing workers.

mod breaker;
mod quarantine;
mod taint;
