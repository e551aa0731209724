//! Workers while they serve.

mod worker_process;
