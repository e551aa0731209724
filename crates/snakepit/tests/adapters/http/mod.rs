//! The adapter for workers that serve HTTP.

mod calls;
mod hung_servers;
mod readiness;
mod request;
mod security;
