//! What a caller asks of a pool, and waits for.
//!
//! A request says what is wanted (`builder`, `stream`, `map`), becomes a [`Call`](crate::call::Call) that its pool places, and keeps
//! its time (`pending`, `timeout`). It makes a lost call again (`attempts`, `retry`) and tells its end (`telemetry`).

mod attempts;
mod builder;
pub(crate) mod direct_call;
mod map;
mod pending;
mod retry;
mod stream;
mod telemetry;
mod timeout;
mod withdrawal;

pub use builder::CallBuilder;
pub use map::{MapAsTheyCome, MapBuilder, MapInOrder};
pub(crate) use pending::CallPlan;
pub use pending::PendingCall;
pub use stream::{CallStream, StreamBuilder};
pub use withdrawal::Withdrawal;
