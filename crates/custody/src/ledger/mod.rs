//! The ledger as its readers see it: what was recorded of a run, and what of it is damaged.
//!
//! Owns the format on disk. It must not know where the file lies or who may write it: the keeper writes it
//! (`keeper/ledger.rs`); the host writes only before its first keeper starts and after one was lost.
//!
//! `record` (one slot; compiled into the keeper, too) → `opening` (the text of the first record) → `contents` (a whole file).
//! Nothing but std here, so that fuzz targets can compile this folder by itself.

pub(crate) mod contents;
pub(crate) mod opening;
pub(crate) mod record;
