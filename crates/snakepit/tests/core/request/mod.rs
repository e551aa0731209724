//! Calls as callers make them: answers, errors, streams, maps, retries, time limits and cancellation.

mod calls;
mod cancel;
mod maps;
mod outcomes;
mod retry;
mod streams;
mod timeouts;
