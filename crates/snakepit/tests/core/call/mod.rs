//! The call itself: its values, several at a time in one worker, and the races for its answer.

mod concurrency;
mod races;
mod stream_memory;
mod values;
