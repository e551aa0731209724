//! Where answers come from.

mod pool_caller;
mod responder;
