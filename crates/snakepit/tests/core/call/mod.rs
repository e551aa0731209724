//! The call itself: its values, several at a time in one worker, and the races for its answer.

mod concurrency;
mod credit;
mod races;
mod values;
