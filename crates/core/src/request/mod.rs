//! What callers ask of a pool, and wait for.
//!
//! A request describes a call (`builder`, `stream`, `map`), becomes a [`Call`](crate::call::Call) that the pool places,
//! and watches the deadline (`pending`, `timeout`). It repeats a lost call (`attempts`, `retry`) and reports the end of
//! the call (`telemetry`).

mod attempts;
mod builder;
mod call_timer;
pub(crate) mod direct_call;
mod map;
mod pending;
mod retry;
mod stream;
mod telemetry;
mod timeout;
mod withdrawal;

pub use builder::CallBuilder;
pub(crate) use call_timer::ListedCalls;
pub use map::{MapAsTheyCome, MapBuilder, MapInOrder};
pub(crate) use pending::CallPlan;
pub use pending::PendingCall;
pub use stream::{CallStream, StreamBuilder};
pub use withdrawal::Withdrawal;
