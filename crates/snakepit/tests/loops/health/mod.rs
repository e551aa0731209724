//! Probes and the watchdog.

mod health_server;
mod long_handlers;
