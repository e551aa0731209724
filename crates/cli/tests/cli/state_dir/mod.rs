//! The state directory that all commands share.

mod damage;
mod limits;
mod trust;
