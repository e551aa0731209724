//! The end of what a worker started, for shim and keeper alike.
//!
//! Owns KILL: to children, to whole trees that fork faster than they die, and to cgroups; and what happens to those who do
//! not end. It must not know how a worker was started.
//!
//! From the common case to the stubborn one: `children` → `descendants` → `cgroup` → `overdue`.

pub(crate) mod cgroup;
pub(crate) mod children;
pub(crate) mod descendants;
mod overdue;

pub(crate) use overdue::DueEnd;
