//! The link to the keeper.

mod keeper_thread;
