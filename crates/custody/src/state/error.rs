//! Why a directory, or a file in it, cannot be used.

use std::io;
use std::path::{Path, PathBuf};

use super::file_limit;

/// Why a directory cannot be trusted with what is run from it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirError {
    /// The directory is a symbolic link.
    #[error("{path} is a symbolic link: name the directory that it points to")]
    IsLink {
        /// Which one.
        path: PathBuf,
    },
    /// The directory, or one above it, belongs to a user who could replace what is in it.
    #[error(
        "{path} belongs to user {owner}, who could replace what is in it: choose a directory below your own or root's"
    )]
    ForeignOwner {
        /// Which directory, or link.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
    },
    /// The directory belongs to root, and must belong to this user.
    #[error("{path} belongs to root, not to user {own}: choose a directory of your own")]
    NotOurs {
        /// Which directory.
        path: PathBuf,
        /// Who we are.
        own: u32,
    },
    /// The directory belongs to a user that this user namespace does not map.
    #[error(
        "{path} belongs to a user whom this user namespace does not map, so anybody might replace what is in it: choose a \
         directory directly below /tmp or your home, or map its owner"
    )]
    UnknownOwner {
        /// Which directory, or link.
        path: PathBuf,
    },
    /// This user namespace does not map our own user.
    #[error(
        "this user namespace does not map user {own}, so no file can be recognized as yours: map the user (`unshare -r`)"
    )]
    Unmapped {
        /// Who we are, as far as that can be said.
        own: u32,
    },
    /// Everybody may write to the directory.
    #[error(
        "{path} can be written by everybody (mode {mode:04o}): run `chmod o-w {path}`, or choose another directory"
    )]
    WritableByOthers {
        /// Which directory.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A group that may have other members may write to the directory.
    #[error(
        "{path} can be written by the group {group}, which may have other members than you (mode {mode:04o}): run \
         `chmod g-w {path}`, or choose another directory"
    )]
    WritableByGroup {
        /// Which directory.
        path: PathBuf,
        /// Which group.
        group: u32,
        /// Its permissions.
        mode: u32,
    },
    /// Links lead to links.
    #[error("{path} leads through too many symbolic links: name the directory that they lead to")]
    TooManyLinks {
        /// The link at which it became too many.
        path: PathBuf,
    },
    /// The system refused.
    #[error("cannot {doing} {path}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl DirError {
    pub(super) fn io<E: Into<io::Error>>(doing: &'static str, path: &Path) -> impl FnOnce(E) -> Self {
        move |error| Self::Io { doing, path: path.to_owned(), source: error.into() }
    }
}

/// Why the state directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// No variable says where the state directory is.
    #[error("cannot tell where the state directory is: set SNAKEPIT_STATE_DIR or HOME")]
    NoPlace,
    /// The state directory cannot be trusted or opened.
    #[error("cannot use the state directory {path}")]
    Dir {
        /// The directory.
        path: PathBuf,
        /// Why not.
        source: DirError,
    },
    /// The system refused.
    #[error("cannot {doing} {path}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system said.
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

/// Why a file does not hold what it should.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeepError {
    /// The file cannot be compared with what it should hold.
    #[error("cannot read {path}")]
    Look {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is missing and cannot be written.
    #[error("cannot write {path}")]
    Write {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is damaged and cannot be replaced.
    #[error("{path} is damaged and cannot be replaced: remove it")]
    Replace {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// An error and all of its causes, in one line.
pub(crate) fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}
