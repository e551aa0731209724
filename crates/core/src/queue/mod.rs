//! Which call goes to which worker, and when.
//!
//! Owns who comes in (`admission`), who serves which call (`scheduler`, `placement`), which calls travel together
//! (`batch`) and which belong together (`session`). Knows workers only through [`crate::adapter::Handle`]: no adapter, no protocol.

pub(crate) mod admission;
mod batch;
pub(crate) mod batch_timer;
mod dispatch;
mod placement;
pub(crate) mod scheduler;
pub(crate) mod session;

pub(crate) use admission::AdmissionPermit;
pub use admission::{CircuitScope, CircuitTable, Suspect};
pub(crate) use placement::{Location, OfferResult, Placement, QueueLimit};
pub use session::SessionInfo;
pub(crate) use session::StoreError;
