//! The ledger as its readers see it: what was recorded about a run, and which records are damaged.
//!
//! Owns the format on disk. It must not know where the file is or who may write it. The keeper writes it
//! (`keeper/ledger.rs`). The host writes it only before its first keeper starts and after a keeper was lost.
//!
//! `record` (one slot; also compiled into the keeper) → `opening_record` (the text of the first record) → `contents` (a whole
//! file). The folder uses only std, so fuzz targets can compile it on its own.

pub(crate) mod contents;
pub(crate) mod opening_record;
pub(crate) mod record;
