//! Reports whether the state directory can be used, and why not.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{Access, access};
use rustix::process::geteuid;

use super::{Check, Finding, checks, no, ok};

pub(super) fn examine(dir: &Path) -> Vec<Check> {
    checks([("path", ok(dir.display().to_string())), ("usable", usable(dir))])
}

fn usable(dir: &Path) -> Finding {
    let meta = match std::fs::symlink_metadata(dir) {
        Ok(meta) => meta,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return can_be_made(dir),
        Err(error) => return no(error.to_string()),
    };
    let (owner, mode) = (meta.uid(), meta.permissions().mode() & 0o7777);
    if meta.is_symlink() {
        no("it is a symbolic link; name its target instead")
    } else if !meta.is_dir() {
        no("it is not a directory")
    } else if owner != geteuid().as_raw() {
        no(format!(
            "it belongs to user {owner}, and you are user {}; name a directory of your own",
            geteuid().as_raw()
        ))
    } else if let Err(error) = access(dir, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK) {
        no(format!("owner {owner}, mode {mode:04o}: {error}"))
    } else if let Err(error) = snakepit::custody::ledger(dir) {
        no(error.to_string())
    } else {
        ok(format!("owner {owner}, mode {mode:04o}"))
    }
}

/// Reports whether the first run can create the directory, which the nearest existing parent decides.
fn can_be_made(dir: &Path) -> Finding {
    let above = dir.ancestors().skip(1).find(|above| above.exists() || above.as_os_str().is_empty());
    let above = above.filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match access(above, Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) => ok("does not exist yet; the first run creates it"),
        Err(error) => {
            no(format!("does not exist, and {} does not allow creating it: {error}", above.display()))
        }
    }
}
