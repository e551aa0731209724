//! Power cuts: what SQLite writes is recorded by a file layer of ours, and the files are built again as they could be found
//! if the power had gone at any point: what was synced is there, of the rest chance decides.

mod layer;
mod log;
mod remains;

pub use layer::{LAYER, RecordedSync, fail_syncs, install};
pub use log::{Change, Entry, Log};
pub use remains::Remains;
