//! Handlers, and what their errors mean.

mod failure;
mod pool_loop;
