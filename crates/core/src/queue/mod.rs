//! Decides which call goes to which worker, and when.
//!
//! Owns admission (`admission`), the choice of a worker for each call (`scheduler`, `placement`), batches (`batch`) and
//! sessions (`session`). Knows workers only through [`crate::adapter::Handle`]: no adapter, no protocol.

pub(crate) mod admission;
mod batch;
pub(crate) mod batch_timer;
mod dispatch;
mod placement;
pub(crate) mod scheduler;
pub(crate) mod session;

pub(crate) use admission::AdmissionPermit;
pub use admission::{CircuitRow, CircuitScope, CircuitTable, Suspect};
pub use dispatch::answer_together;
pub(crate) use placement::{Location, OfferResult, Placement, QueueLimit};
pub use session::SessionInfo;
pub(crate) use session::StoreError;
