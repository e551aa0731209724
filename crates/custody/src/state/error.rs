//! The reasons why a directory, or a file in it, cannot be used.

use std::io;
use std::path::{Path, PathBuf};

use super::file_limit;

/// The reason why programs must not be run from a directory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirError {
    /// The directory is a symbolic link.
    #[error("{path} is a symbolic link: name the directory that it points to")]
    IsLink {
        /// The path of the link.
        path: PathBuf,
    },
    /// The directory, or one above it, belongs to a user who could replace its contents.
    #[error(
        "{path} belongs to user {owner}, who could replace its contents: choose a directory below one that belongs to you or root"
    )]
    ForeignOwner {
        /// The directory or link.
        path: PathBuf,
        /// The owner.
        owner: u32,
    },
    /// The directory belongs to root, and must belong to this user.
    #[error("{path} belongs to root, not to user {own}: choose a directory of your own")]
    NotOurs {
        /// The directory.
        path: PathBuf,
        /// The current user.
        own: u32,
    },
    /// The directory belongs to a user whom this user namespace does not map.
    #[error(
        "{path} belongs to a user whom this user namespace does not map, so any user might replace its contents: choose a \
         directory directly below /tmp or your home, or map its owner"
    )]
    UnknownOwner {
        /// The directory or link.
        path: PathBuf,
    },
    /// This user namespace does not map the current user.
    #[error(
        "this user namespace does not map user {own}, so no file can be recognized as yours: map the user (`unshare -r`)"
    )]
    Unmapped {
        /// The number of the current user, as this namespace shows it.
        own: u32,
    },
    /// All users may write to the directory.
    #[error(
        "{path} can be written by everybody (mode {mode:04o}): run `chmod o-w {path}`, or choose another directory"
    )]
    WritableByOthers {
        /// The directory.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A group that may have other members may write to the directory.
    #[error(
        "{path} can be written by the group {group}, which may have members other than you (mode {mode:04o}): run \
         `chmod g-w {path}`, or choose another directory"
    )]
    WritableByGroup {
        /// The directory.
        path: PathBuf,
        /// The group.
        group: u32,
        /// Its permissions.
        mode: u32,
    },
    /// Too many links lead to other links.
    #[error("{path} leads through too many symbolic links: name the directory that they lead to")]
    TooManyLinks {
        /// The link that exceeded the limit.
        path: PathBuf,
    },
    /// The system refused an operation.
    #[error("cannot {doing} {path}")]
    Io {
        /// The operation, as a verb.
        doing: &'static str,
        /// The path that it was applied to.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

impl DirError {
    pub(super) fn io<E: Into<io::Error>>(doing: &'static str, path: &Path) -> impl FnOnce(E) -> Self {
        move |error| Self::Io { doing, path: path.to_owned(), source: error.into() }
    }
}

/// The reason why the state directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// No environment variable gives the location of the state directory.
    #[error("cannot tell where the state directory is: set SNAKEPIT_STATE_DIR or HOME")]
    NoPlace,
    /// The state directory cannot be trusted or opened.
    #[error("cannot use the state directory {path}")]
    Dir {
        /// The directory.
        path: PathBuf,
        /// Why it cannot be used.
        source: DirError,
    },
    /// The system refused an operation.
    #[error("cannot {doing} {path}")]
    Io {
        /// The operation, as a verb.
        doing: &'static str,
        /// The path that it was applied to.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

impl StateError {
    pub(super) fn dir(path: &Path) -> impl FnOnce(DirError) -> Self {
        move |source| Self::Dir { path: path.to_owned(), source }
    }

    pub(super) fn io<E: Into<io::Error>>(doing: &'static str, path: &Path) -> impl FnOnce(E) -> Self {
        move |error| Self::Io { doing, path: path.to_owned(), source: file_limit::in_words(error.into()) }
    }
}

/// The reason why a file does not have the required contents.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeepError {
    /// The file cannot be compared with its required contents.
    #[error("cannot read {path}: make it readable for this user, or remove it")]
    Look {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file is missing and cannot be written.
    #[error(
        "cannot write {path}: make its directory writable and free space on its disk, or choose another directory"
    )]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file is damaged and cannot be replaced.
    #[error("{path} is damaged and cannot be replaced: remove it")]
    Replace {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// Joins an error and all of its causes in one line.
pub(crate) fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}
