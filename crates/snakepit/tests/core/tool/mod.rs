//! Functions of the host that workers call.

mod calls;
mod limits;
