//! The keeper, seen from its host.

mod kill;
mod ledger;
