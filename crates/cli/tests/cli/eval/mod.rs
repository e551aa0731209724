//! `snakepit eval`.

mod datasets;
mod evaluators;
mod fixture;
mod page;
mod run;
mod worker_deaths;
