//! Calls as callers make them: answers, errors, streams, maps, deadlines and cancellation.

mod calls;
mod cancel;
mod concurrency;
mod maps;
mod outcomes;
mod races;
mod retry;
mod stream_memory;
mod streams;
mod timeouts;
mod values;
