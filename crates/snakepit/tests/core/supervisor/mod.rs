//! How a pool starts, replaces and ends its workers.

mod combined_faults;
mod crash_loops;
mod event_order;
mod interrupted_stop;
mod kills_under_load;
mod model;
mod recycling;
mod reload_failures;
mod reload_policies;
mod replacement;
mod resize;
mod restarts;
mod sizing;
mod status;
mod stop;
