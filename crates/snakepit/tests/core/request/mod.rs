//! Calls as callers make them: answers, errors, streams, maps, retries, time limits and cancellation.

mod calls;
mod cancel;
mod map;
mod retry;
mod stream;
mod timeout;
