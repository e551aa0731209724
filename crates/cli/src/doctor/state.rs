//! Whether the state directory can be used, and if not, why.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{Access, access};
use rustix::process::geteuid;

use super::Finding;

pub(super) fn examine(dir: &Path) -> Vec<Finding> {
    vec![Finding::ok("path", dir.display().to_string()), usable(dir)]
}

fn usable(dir: &Path) -> Finding {
    const NAME: &str = "usable";
    let meta = match std::fs::symlink_metadata(dir) {
        Ok(meta) => meta,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return can_be_made(NAME, dir),
        Err(error) => return Finding::no(NAME, error.to_string()),
    };
    let (owner, mode) = (meta.uid(), meta.permissions().mode() & 0o7777);
    if meta.is_symlink() {
        Finding::no(NAME, "it is a symbolic link; name the directory that it points to")
    } else if !meta.is_dir() {
        Finding::no(NAME, "it is not a directory")
    } else if owner != geteuid().as_raw() {
        Finding::no(
            NAME,
            format!("user {owner} owns it, and we are user {}; name one of your own", geteuid().as_raw()),
        )
    } else if let Err(error) = access(dir, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK) {
        Finding::no(NAME, format!("owner {owner}, mode {mode:04o}: {error}"))
    } else if let Err(error) = snakepit::custody::ledger(dir) {
        Finding::no(NAME, error.to_string())
    } else {
        Finding::ok(NAME, format!("owner {owner}, mode {mode:04o}"))
    }
}

/// A directory that is not there yet is made by the first run, if the nearest one above lets us.
fn can_be_made(name: &'static str, dir: &Path) -> Finding {
    let above = dir.ancestors().skip(1).find(|above| above.exists() || above.as_os_str().is_empty());
    let above = above.filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match access(above, Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) => Finding::ok(name, "not there yet; the first run makes it"),
        Err(error) => {
            Finding::no(name, format!("not there, and {} does not let us make it: {error}", above.display()))
        }
    }
}
