//! `snakepit doctor`.

mod environment;
mod report;
