//! Files that cannot be written, not even by root or through an open descriptor. They imitate a file system that
//! becomes read-only during a run. (A mount cannot become read-only while a file is open for writing.)

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

/// Paths that cannot be written while this value lives.
#[derive(Debug)]
pub struct ImmutablePaths(Vec<PathBuf>);

impl ImmutablePaths {
    /// Makes a run's directory and its ledger immutable. Returns `None` if the file system does not know the flag or
    /// ignores it for a file that is already open.
    pub fn run(dir: &Path) -> Option<Self> {
        let probe = dir.with_file_name("immutable-probe");
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(&probe).expect("a probe");
        let heeded = Self(Vec::new()).add(&probe).is_some_and(|_held| file.write_at(b"x", 0).is_err());
        std::fs::remove_file(&probe).expect("remove the probe");
        heeded.then(|| Self(Vec::new()).add(&dir.join("ledger"))?.add(dir))?
    }

    fn add(mut self, path: &Path) -> Option<Self> {
        change(path, |flags| flags | IFlags::IMMUTABLE).ok()?;
        self.0.push(path.to_owned());
        Some(self)
    }
}

impl Drop for ImmutablePaths {
    fn drop(&mut self) {
        for path in &self.0 {
            // This fails only for a path that has been removed.
            let _ = change(path, |flags| flags - IFlags::IMMUTABLE);
        }
    }
}

fn change(path: &Path, to: impl FnOnce(IFlags) -> IFlags) -> std::io::Result<()> {
    let file = File::open(path)?;
    Ok(ioctl_setflags(&file, to(ioctl_getflags(&file)?))?)
}
