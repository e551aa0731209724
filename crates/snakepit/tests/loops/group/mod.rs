//! Groups of loops: restarts, crashes, and the end of all.

mod crashes;
mod run;
