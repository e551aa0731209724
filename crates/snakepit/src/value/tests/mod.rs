//! What holds for values and their bytes.

mod args;
mod building;
mod errors;
mod typed;
mod vectors;
