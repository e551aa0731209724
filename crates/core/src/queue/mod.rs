//! Decides which call goes to which worker, and when.
//!
//! Owns admission (`admission`), the choice of a worker for each call (`scheduler`, `placement`), batches (`batch`) and
//! sessions (`session`). Knows workers only through [`crate::adapter::Handle`]: no adapter, no protocol.

pub(crate) mod admission;
mod batch;
pub(crate) mod batch_timer;
mod call_timer;
mod command;
mod event;
pub(crate) mod outcomes;
mod placement;
pub(crate) mod scheduler;
pub(crate) mod session;
mod shared;
mod worker_queue;

pub(crate) use admission::AdmissionPermit;
pub use admission::{CircuitRow, CircuitScope, CircuitTable, Suspect};
pub(crate) use call_timer::CallTimer;
pub(crate) use event::{command_of, worker_died};
pub(crate) use outcomes::CallOutcome;
pub use outcomes::Outcomes;
pub(crate) use placement::{Location, OfferResult, Placement, QueueLimit};
pub use session::SessionInfo;
pub use shared::PoolHealth;
pub(crate) use shared::PoolInner;
