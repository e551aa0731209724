//! Cgroups on systems that have none: no cgroup can be created, and the type has no values.

use std::convert::Infallible;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use crate::RunId;
use crate::state::StateDir;

/// A cgroup. No value of this type exists.
#[derive(Debug)]
pub(crate) struct Cgroup(Infallible);

impl Cgroup {
    pub(crate) fn create(_run: RunId, _state: u64) -> Result<Self, String> {
        Err("only Linux has cgroups".to_owned())
    }

    #[expect(clippy::unnecessary_wraps, reason = "it can fail on Linux; all systems share the callers")]
    pub(crate) fn recorded(_path: &[u8], _run: RunId) -> io::Result<Option<Self>> {
        Ok(None)
    }

    pub(crate) fn path(&self) -> &Path {
        match self.0 {}
    }

    pub(crate) fn open(&self) -> io::Result<OwnedFd> {
        match self.0 {}
    }

    #[expect(clippy::unnecessary_wraps, reason = "it can fail on Linux; all systems share the callers")]
    pub(crate) fn all_of(_state: &StateDir) -> io::Result<Vec<(RunId, Self)>> {
        Ok(Vec::new())
    }

    pub(crate) fn kill(&self) -> io::Result<()> {
        match self.0 {}
    }

    pub(crate) fn end(&self, _timeout: Duration) -> io::Result<()> {
        match self.0 {}
    }

    pub(crate) fn remove(&self) {
        match self.0 {}
    }
}
