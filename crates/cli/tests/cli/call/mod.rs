//! `snakepit call`.

mod adapters;
mod config;
mod interruption;
mod progress;
mod results;
