//! What a pool does about failures, load and age. The folder mirrors `crates/policy/src`.

mod breaker;
mod limit;
mod liveness;
mod quarantine;
mod recycling;
mod restarts;
mod sizing;
mod taint;
