//! Dead runs, found and cleared.

mod reaper;
