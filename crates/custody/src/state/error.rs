//! Why a directory, or a file in it, cannot be used: the thing, the cause, the way out.

use std::io;
use std::path::{Path, PathBuf};

use crate::file_limit;

/// Why a directory cannot be trusted with what is run from it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirError {
    /// It is a symbolic link.
    #[error("{path} is a symbolic link: name the directory that it points to")]
    IsLink {
        /// Which one.
        path: PathBuf,
    },
    /// It, or one above it, belongs to somebody who could replace what is in it.
    #[error(
        "{path} belongs to user {owner}, who could replace what is in it: choose a directory below your own or root's"
    )]
    ForeignOwner {
        /// Which directory, or link.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
    },
    /// It belongs to root, and must be ours.
    #[error("{path} belongs to root, not to user {own}: choose a directory of your own")]
    NotOurs {
        /// Which directory.
        path: PathBuf,
        /// Who we are.
        own: u32,
    },
    /// It belongs to somebody whom this user namespace does not know.
    #[error(
        "{path} belongs to somebody whom this user namespace does not map, so nobody can tell who may replace what is in \
         it: choose a directory directly below /tmp or your home, or map its owner"
    )]
    UnknownOwner {
        /// Which directory, or link.
        path: PathBuf,
    },
    /// We ourselves are nobody in this user namespace.
    #[error(
        "this user namespace does not map user {own}, so nothing in it can be told to be ours: map the user (`unshare -r`)"
    )]
    Unmapped {
        /// Who we are, as far as that can be said.
        own: u32,
    },
    /// Everybody may write to it.
    #[error(
        "{path} can be written by everybody (mode {mode:04o}): run `chmod o-w {path}`, or choose another directory"
    )]
    WritableByOthers {
        /// Which directory.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A group may write to it that may have other members than us.
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
    #[error("{path} leads through too many symbolic links")]
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
    /// There is no place for it.
    #[error("no place for the state: set SNAKEPIT_STATE_DIR, or HOME")]
    NoPlace,
    /// It cannot be trusted, or not be opened.
    #[error("the state directory {path} cannot be used")]
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
    /// Nobody can tell whether it is what it should be.
    #[error("cannot look at {path}")]
    Look {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not there, and cannot be written.
    #[error("cannot write {path}")]
    Write {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Something else is there, and stays.
    #[error("{path} is damaged and cannot be replaced: remove it")]
    Replace {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}
