//! What a loop receives, and when.

mod message_window;
mod pool_gate;
mod submitted_calls;
