//! All files of a mailbox must belong to one user. A link of another user would redirect our writes, a read
//! lock of another user would block every sender, and a file that another user has written cannot be trusted.
//!
//! Nothing here opens a file that SQLite may have open: closing any descriptor of a file releases all locks
//! that the process has on that file.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::OFlags;

use super::beside;
use crate::{BackendErrorKind, MailboxError};

/// The suffixes of the files that SQLite keeps beside the mailbox.
const BESIDE: [&str; 3] = ["-wal", "-shm", "-journal"];
/// Only the owner may read and write.
const MODE: u32 = 0o600;
/// Anybody may write.
const ANYBODY: u32 = 0o002;
/// Only the owner of an entry may rename or remove it.
const STICKY: u32 = 0o1000;

/// Creates the file if it is missing. Refuses files that others have created or can change.
pub(crate) fn prepare(path: &Path) -> Result<(), MailboxError> {
    check_directory(path)?;
    if is_absent(path) {
        // If this fails, opening the file fails with the same error, which is explained there.
        let _ = create(path);
    }
    secure(path)
}

/// Refuses links and files of other users. Removes the permissions that earlier versions gave to others.
pub(crate) fn secure(path: &Path) -> Result<(), MailboxError> {
    secure_one(path)?;
    BESIDE.iter().try_for_each(|suffix| secure_one(&beside(path, suffix)))
}

/// Opens a file beside the mailbox for writing. SQLite does not use this file, so opening and closing it
/// releases no locks.
pub(crate) fn open_own(path: &Path) -> io::Result<File> {
    // Does not follow a link, and does not wait for the reader of a pipe.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(MODE)
        .custom_flags(flags.bits() as i32)
        .open(path)?;
    let status = file.metadata()?;
    if let Some(wrong) = wrong_with(&status) {
        return Err(io::Error::other(wrong));
    }
    if status.mode() & 0o777 != MODE {
        file.set_permissions(Permissions::from_mode(MODE))?;
    }
    Ok(file)
}

/// Refuses a symbolic link of another user. Links of this user and of root are followed.
pub(crate) fn check_link(path: &Path) -> Result<(), MailboxError> {
    match fs::symlink_metadata(path) {
        Ok(status) if status.is_symlink() && !is_trusted(&status) => {
            Err(refused(path, "is a symbolic link of another user"))
        }
        _ => Ok(()),
    }
}

fn is_absent(path: &Path) -> bool {
    matches!(fs::symlink_metadata(path), Err(error) if error.kind() == io::ErrorKind::NotFound)
}

/// Creates an empty file without opening it.
#[cfg(target_os = "linux")]
fn create(path: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    Ok(mknodat(CWD, path, FileType::RegularFile, Mode::from_raw_mode(MODE), 0)?)
}

#[cfg(not(target_os = "linux"))]
fn create(path: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(MODE).open(path).map(drop)
}

/// Refuses a directory in which anybody may rename files: no file in it is safe.
fn check_directory(path: &Path) -> Result<(), MailboxError> {
    let Some(parent) = path.parent() else { return Ok(()) };
    let Ok(status) = fs::metadata(parent) else { return Ok(()) };
    if status.mode() & ANYBODY != 0 && status.mode() & STICKY == 0 {
        return Err(refused(parent, "can be written by everybody"));
    }
    Ok(())
}

fn secure_one(path: &Path) -> Result<(), MailboxError> {
    let status = match fs::symlink_metadata(path) {
        Ok(status) => status,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(refused(path, &format!("cannot be inspected ({error})"))),
    };
    if let Some(wrong) = wrong_with(&status) {
        return Err(refused(path, &wrong));
    }
    let own = status.mode() & 0o700;
    if status.mode() & 0o777 == own || status.uid() != me() {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(own)).map_err(|error| {
        refused(path, &format!("can be read by others, and its mode cannot be changed ({error})"))
    })
}

/// Returns why a file cannot be trusted. `None` if it can.
fn wrong_with(status: &Metadata) -> Option<String> {
    if status.is_symlink() {
        return Some("is a symbolic link".into());
    }
    if !status.is_file() {
        return Some("is not a regular file".into());
    }
    if !is_trusted(status) {
        return Some(format!("belongs to user {}", status.uid()));
    }
    let is_open = status.uid() != me() && status.mode() & 0o022 != 0;
    is_open.then(|| "can be written by others".into())
}

/// Reports whether the file belongs to this user or to root.
fn is_trusted(status: &Metadata) -> bool {
    status.uid() == me() || status.uid() == 0
}

fn me() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn refused(path: &Path, wrong: &str) -> MailboxError {
    let reason = format!(
        "{} {wrong}: a mailbox and the files beside it must be regular files of the user who uses it ({}); keep it in \
         a directory of its own (mode 700), or run as its owner",
        path.display(),
        me()
    );
    MailboxError::backend(BackendErrorKind::NoAccess, reason)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::sqlite::SqliteMailbox;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).expect("a file").mode() & 0o777
    }

    fn refusal(path: &Path) -> String {
        SqliteMailbox::open(path).expect_err("refused").to_string()
    }

    #[test]
    fn only_the_owner_can_use_the_files() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("mail");
        // The files as earlier versions left them.
        fs::write(&path, b"").expect("a file");
        fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("chmod");
        fs::write(dir.path().join("mail-bell"), b"").expect("a file");
        let _mailbox = SqliteMailbox::open(&path).expect("a mailbox");
        let files: Vec<_> =
            fs::read_dir(dir.path()).expect("files").map(|it| it.expect("one").path()).collect();
        assert!(files.len() >= 3, "{files:?}");
        for file in files {
            assert_eq!(mode(&file), MODE, "{}", file.display());
        }
    }

    #[test]
    fn links_beside_the_file_are_refused() {
        for suffix in ["-wal", "-shm", "-journal"] {
            let dir = tempfile::tempdir().expect("a directory");
            let (path, victim) = (dir.path().join("mail"), dir.path().join("victim"));
            fs::write(&victim, b"precious").expect("a file");
            symlink(&victim, beside(&path, suffix)).expect("a link");
            let refusal = refusal(&path);
            assert!(refusal.contains(suffix) && refusal.contains("is a symbolic link"), "{refusal}");
            assert_eq!(fs::read(&victim).expect("its bytes"), b"precious");
        }
    }

    #[test]
    fn a_notification_file_that_is_a_link_is_not_written() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, victim) = (dir.path().join("mail"), dir.path().join("victim"));
        fs::write(&victim, b"precious").expect("a file");
        symlink(&victim, beside(&path, "-bell")).expect("a link");
        let mailbox = SqliteMailbox::open(&path).expect("a mailbox");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let send = crate::Mailbox::send(&mailbox, b"x".to_vec(), crate::SendOptions::new());
        runtime.block_on(send).expect("sent");
        drop(mailbox);
        assert_eq!(fs::read(&victim).expect("its bytes"), b"precious");
    }

    #[test]
    fn a_pipe_in_place_of_a_file_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("mail");
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &path, fifo, rustix::fs::Mode::from_raw_mode(0o600), 0)
            .expect("a pipe");
        assert!(refusal(&path).contains("not a regular file"));
        assert!(open_own(&path).is_err());
    }

    #[test]
    fn a_file_of_another_user_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("mail");
        drop(SqliteMailbox::open(&path).expect("a mailbox"));
        if std::os::unix::fs::chown(&path, Some(65534), None).is_err() {
            eprintln!("UNPROVEN: only root can give files to others");
            return;
        }
        let refusal = refusal(&path);
        assert!(refusal.contains("belongs to user 65534"), "{refusal}");
        assert!(refusal.contains("or run as its owner"), "{refusal}");
    }

    #[test]
    fn a_link_of_another_user_is_not_followed() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, link) = (dir.path().join("mail"), dir.path().join("link"));
        drop(SqliteMailbox::open(&path).expect("a mailbox"));
        symlink(&path, &link).expect("a link");
        drop(SqliteMailbox::open(&link).expect("a link of our own is followed"));
        if std::os::unix::fs::lchown(&link, Some(65534), None).is_err() {
            eprintln!("UNPROVEN: only root can give files to others");
            return;
        }
        assert!(refusal(&link).contains("a symbolic link of another user"));
    }

    #[test]
    fn a_directory_where_anybody_may_rename_files_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("mail");
        fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).expect("chmod");
        assert!(refusal(&path).contains("can be written by everybody"));
        fs::set_permissions(dir.path(), Permissions::from_mode(0o1777)).expect("chmod");
        SqliteMailbox::open(&path).expect("as in /tmp");
    }

    #[test]
    fn a_file_with_triggers_or_views_is_refused() {
        for step in [
            "CREATE TRIGGER t AFTER INSERT ON queue BEGIN DELETE FROM message; END",
            "CREATE VIEW v AS SELECT * FROM message",
        ] {
            let dir = tempfile::tempdir().expect("a directory");
            let path = dir.path().join("mail");
            drop(SqliteMailbox::open(&path).expect("a mailbox"));
            let file = rusqlite::Connection::open(&path).expect("the file");
            file.execute_batch(step).expect("a change");
            drop(file);
            assert!(refusal(&path).contains("triggers or views"), "{step}");
        }
    }
}
