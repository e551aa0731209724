//! What a spawn gives to a worker, and what it refuses.

mod command;
mod error;
mod request;
