//! Power cuts: a VFS records what SQLite writes, and a test rebuilds the files as a cut after any write could leave
//! them. Synced writes survive. The others survive at random.

mod disk_image;
mod vfs;
mod write_log;

pub use disk_image::DiskImage;
pub use vfs::{RecordedSync, VFS_NAME, fail_syncs, install};
pub use write_log::{FileChange, WriteLog, WriteLogEntry};
