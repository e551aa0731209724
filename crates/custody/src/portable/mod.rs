//! Replacements for files that use Linux features: the tier `group` for macOS and FreeBSD, built on Linux with `--cfg
//! snakepit_portable`.
//!
//! The folders `process`, `link`, `reap` and `doctor` use these files instead of their own: `identity`, `machine` and
//! `cgroup`; `keeper_link`; `search`; `tiers`. The files have the same names and types, so nothing else differs.
//! `keeper/` is a second, smaller keeper. This folder must not know more of the library than the files that it
//! replaces.
//!
//! Two files serve both the library and the keeper: `libc_abi` (the system's constants and structures, which
//! `libc_check` compares with the libc crate) and `process_state` (what the system reports about a pid).

mod libc_check;
pub(crate) mod process_state;
