//! `[loop.NAME]`: loops from a mailbox in a file to a command of a pool.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::de::{self, Deserializer};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};

use crate::Snakepit;
use crate::loops::{LoopError, PoolLoop, PoolLoopOptions};
use crate::mailbox::sqlite::{DEFAULT_QUEUE, SqliteOptions};
use crate::mailbox::{MailboxError, SqliteMailbox};
use snakepit_core::similar_names::nearest;
use snakepit_settings::{read_table, settings};

/// A loop as described in a file.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LoopConfig {
    /// The file of the loop's mailbox.
    pub file: PathBuf,
    /// The name of the mailbox in that file.
    pub queue: String,
    /// Whether a missing mailbox is created. Otherwise [`LoopConfig::check_mailbox`] rejects it.
    pub create: bool,
    /// The options for handling its messages.
    pub options: PoolLoopOptions,
}

impl LoopConfig {
    /// Returns the loop's name.
    pub fn name(&self) -> &str {
        self.options.name.as_deref().unwrap_or(&self.options.command)
    }

    /// Rejects a mailbox that is missing, unless it is to be created: its name, or that of its file, may be misspelt,
    /// and a loop over a new mailbox would wait for messages that are sent elsewhere.
    pub fn check_mailbox(&self) -> Result<(), LoopError> {
        if self.create {
            return Ok(());
        }
        let known = match SqliteOptions::new().existing().queue_names(&self.file) {
            Err(MailboxError::Missing(_)) => {
                return Err(self.no_mailbox(format!("file {}", self.file.display()), None));
            }
            known => known.map_err(|source| self.cannot_open(source))?,
        };
        if known.contains(&self.queue) {
            return Ok(());
        }
        let nearest = nearest(&self.queue, known.iter().map(String::as_str));
        Err(self.no_mailbox(format!("{} in {}", self.queue, self.file.display()), nearest))
    }

    fn no_mailbox(&self, mailbox: String, nearest: Option<&str>) -> LoopError {
        LoopError::NoSuchMailbox {
            name: self.name().to_owned(),
            mailbox,
            nearest: nearest.map(str::to_owned),
        }
    }

    fn cannot_open(&self, source: MailboxError) -> LoopError {
        LoopError::Mailbox { name: self.name().to_owned(), source }
    }

    /// Opens the mailbox, and creates it if it is missing. Returns the loop, to be run alone or in a group.
    pub fn open(&self, pit: &Snakepit) -> Result<PoolLoop, LoopError> {
        let mailbox =
            SqliteMailbox::open_named(&self.file, &self.queue).map_err(|source| self.cannot_open(source))?;
        PoolLoop::new(pit, Arc::new(mailbox), &self.options)
    }
}

/// The table `[loop.NAME]`.
#[derive(Clone, Default)]
pub(super) struct LoopTable {
    mailbox: Option<MailboxAddress>,
    create: bool,
    pub(super) options: PoolLoopOptions,
}

settings! {
    keys of LoopTable {
        /// The mailbox with the messages: a file, followed by # and a name if the file contains several mailboxes.
        /// Example: `mailbox = "sqlite:mail.db#requests"`.
        mailbox: Option<MailboxAddress>,
        /// Whether the mailbox, and its file, is created if it is missing. Otherwise `snakepit loop run` refuses to start:
        /// the name may be misspelt.
        create: bool,
    }
    parts { options: PoolLoopOptions }
}

impl<'de> Deserialize<'de> for LoopTable {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (table, given) = read_table(deserializer, Self::default())?;
        let required = ["mailbox", "command"];
        match required.into_iter().find(|key| !given.contains(key)) {
            Some(missing) => Err(de::Error::missing_field(missing)),
            None => Ok(table),
        }
    }
}

impl LoopTable {
    pub(super) fn into_config(self, name: String, dir: &Path) -> LoopConfig {
        let MailboxAddress { file, queue } = self.mailbox.unwrap_or_default();
        let mut options = self.options;
        options.name = Some(name);
        LoopConfig { file: dir.join(file), queue, create: self.create, options }
    }
}

/// An address as `snakepit mailbox` takes it: `sqlite:PATH` or `sqlite:PATH#NAME`.
#[derive(Clone, Default)]
struct MailboxAddress {
    file: PathBuf,
    queue: String,
}

impl Serialize for MailboxAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("sqlite:{}#{}", self.file.display(), self.queue))
    }
}

impl<'de> Deserialize<'de> for MailboxAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let place =
            text.strip_prefix("sqlite:").map(|rest| rest.split_once('#').unwrap_or((rest, DEFAULT_QUEUE)));
        match place {
            Some((file, queue)) if !file.is_empty() && !queue.is_empty() => {
                Ok(Self { file: file.into(), queue: queue.to_owned() })
            }
            _ => Err(de::Error::custom(format_args!(
                "{text:?} is not a mailbox: write \"sqlite:mail.db\", or \"sqlite:mail.db#NAME\" for one of several in a file"
            ))),
        }
    }
}
