//! `snakepit eval`.

mod datasets;
mod evaluators;
mod fixture;
mod html;
mod reports;
mod worker_deaths;
