//! The greeting: the host's first frame to a worker.

use serde::Serialize;

/// The features of this host: it takes several items of a stream in one frame.
pub(crate) const FEATURES: &[&str] = &["items"];

/// What a worker must know before its first call.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Hello {
    pub(crate) protocol: u32,
    pub(crate) engine: &'static str,
    pub(crate) pool: String,
    pub(crate) worker: String,
    pub(crate) concurrency: usize,
    pub(crate) max_frame: usize,
    /// What the host understands beyond what every host does.
    pub(crate) features: &'static [&'static str],
}
