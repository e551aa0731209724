//! Custody of real processes. The folders are those of `src/`.

mod doctor;
mod keeper;
mod link;
#[cfg(portable)]
mod portable;
mod reap;
mod run;
mod serve;
mod spawn;
mod stop;
mod support;
