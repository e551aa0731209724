//! How engines and the programs around them start and end.

mod script;
mod shutdown;
mod stop_time;
mod wrappers;
