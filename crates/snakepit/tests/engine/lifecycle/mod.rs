//! How engines and the programs around them start and end.

mod ready;
mod script;
mod stop;
mod stop_time;
mod wrappers;
