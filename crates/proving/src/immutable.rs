//! Files that nobody may write, root and open descriptors included, until they are let go: what a file system
//! looks like that has become read-only under a run. (A mount cannot be made so while a file is open for writing.)

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

/// Paths that cannot be written while this lives.
#[derive(Debug)]
pub struct Immutable(Vec<PathBuf>);

impl Immutable {
    /// A run's directory and its ledger. `None` where the file system does not know the flag, or does not heed
    /// it for a file that is open already.
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

impl Drop for Immutable {
    fn drop(&mut self) {
        for path in &self.0 {
            // Only a path that is gone cannot be let go.
            let _ = change(path, |flags| flags - IFlags::IMMUTABLE);
        }
    }
}

fn change(path: &Path, to: impl FnOnce(IFlags) -> IFlags) -> std::io::Result<()> {
    let file = File::open(path)?;
    Ok(ioctl_setflags(&file, to(ioctl_getflags(&file)?))?)
}
