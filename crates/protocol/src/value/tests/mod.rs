//! Tests of values and their bytes.

mod args;
mod building;
mod errors;
mod hostile;
mod items;
mod properties;
mod shown;
mod speed;
mod typed;
pub(crate) mod vectors;
