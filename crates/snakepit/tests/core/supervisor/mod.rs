//! How a pool starts, replaces and ends its workers.

mod combined_faults;
mod event_order;
mod interrupted_stop;
mod kills_under_load;
mod model;
mod reload;
mod resize;
mod stop;
