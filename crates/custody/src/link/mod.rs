//! The host's link to its keeper.
//!
//! Owns the messages, the socket, the start of the keeper's program, and the thread that listens to the keeper and
//! replaces it when it dies. It must not know what a command, a pool or a call is.
//!
//! In the order in which a message passes them: `wire` (also compiled into the keeper) → `keeper_setup` → `keeper_link`
//! → `keeper_thread`.

#[cfg_attr(portable, path = "../portable/keeper_link.rs")]
pub(crate) mod keeper_link;
pub(crate) mod keeper_setup;
pub(crate) mod keeper_thread;
#[expect(dead_code, reason = "each side uses its half of the wire")]
pub(crate) mod wire;
