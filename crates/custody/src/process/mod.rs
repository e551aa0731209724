//! Processes as the system shows them: their identity, what they belong to, and waiting for them.
//!
//! Owns ids, identities, `/proc` and cgroups. It must not know why a caller looks, nor decide what happens to a
//! process: an error during a look is an error, never an empty result.
//!
//! From names to proof: `id` → `pid_scope` → `proc_stat` → `machine` (what `/proc` shows) → `identity` (is it the
//! recorded process?) → `cgroup` → `wait`. `digest` distinguishes names.

#[cfg_attr(portable, path = "../portable/cgroup.rs")]
pub(crate) mod cgroup;
pub(crate) mod digest;
pub(crate) mod id;
#[cfg_attr(portable, path = "../portable/identity.rs")]
pub(crate) mod identity;
#[cfg_attr(portable, path = "../portable/machine.rs")]
pub(crate) mod machine;
pub(crate) mod pid_scope;
#[cfg(not(portable))]
#[expect(dead_code, reason = "the keepers use the rest")]
pub(crate) mod proc_stat;
pub(crate) mod wait;
