//! Ends what a worker started, for both shim and keeper.
//!
//! Owns KILL: to children, to whole trees that fork faster than they die, and to cgroups. Also owns what happens to
//! processes that do not end. It must not know how a worker was started.
//!
//! From the common case to the hardest one: `children` → `descendants` → `cgroup` → `stuck_processes`.

pub(crate) mod cgroup;
pub(crate) mod children;
pub(crate) mod descendants;
mod stuck_processes;

pub(crate) use stuck_processes::DueEnd;
