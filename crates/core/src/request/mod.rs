//! What callers ask of a pool, and wait for.
//!
//! A request describes a call (`builder`, `stream`, `map`), becomes a [`Call`](crate::call::Call) that the pool places,
//! and watches the deadline (`pending`, `timeout`). `attempts` is the one state machine that decides what follows a lost
//! attempt, for calls and streams (`retry`) and for maps. `telemetry` reports the end of the call.

mod attempts;
mod builder;
mod cancel;
pub(crate) mod direct_call;
mod engine_calls;
mod map;
mod pending;
mod retry;
mod stream;
mod telemetry;
mod timeout;
mod withdrawal;

pub use builder::CallBuilder;
pub use map::{MapAsTheyCome, MapBuilder, MapInOrder};
pub use pending::PendingCall;
pub use stream::{CallStream, StreamBuilder};
pub use withdrawal::Withdrawal;
