//! Groups of loops: restarts, crashes, and the end of all.

mod crash_policy;
mod run;
