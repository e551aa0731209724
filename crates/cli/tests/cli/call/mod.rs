//! `snakepit call`.

mod config;
mod results;
mod run;
