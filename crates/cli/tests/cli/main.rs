//! The program `snakepit`, run as a user runs it. One module per command, as in `src/`.

mod bench;
mod call;
mod cleanup;
mod doctor;
mod documentation;
mod env;
mod errors;
mod eval;
mod exec;
mod init;
mod ledger;
mod loops;
mod mailbox;
mod new_adapter;
mod sdk;
mod shared;
mod state_dir;
mod support;
