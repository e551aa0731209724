//! `[loop.NAME]`: loops from a mailbox in a file to a command of a pool.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{self, Deserializer};

use super::units::Time;
use crate::Snakepit;
use crate::loops::{GiveUp, LoopError, PoolLoop, PoolLoopOptions, Replies};
use crate::mailbox::sqlite::{DEFAULT_QUEUE, SqliteOptions};
use crate::mailbox::{MailboxError, SqliteMailbox};
use crate::nearest::nearest;

/// What a file says of a loop.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LoopConfig {
    /// The file of its mailbox.
    pub file: PathBuf,
    /// Which of the file's mailboxes.
    pub queue: String,
    /// What is done with its messages.
    pub options: PoolLoopOptions,
}

impl LoopConfig {
    /// Its name.
    pub fn name(&self) -> &str {
        self.options.name.as_deref().unwrap_or(&self.options.command)
    }

    /// Refuses a mailbox that is not in its file if another one there has a name like it: who wrote that has most likely misspelt it.
    pub fn check_mailbox(&self) -> Result<(), LoopError> {
        let known = match SqliteOptions::new().existing().queue_names(&self.file) {
            // It is made.
            Err(MailboxError::Missing(_)) => return Ok(()),
            known => known.map_err(|error| self.cannot_open(&error))?,
        };
        if known.contains(&self.queue) {
            return Ok(());
        }
        match nearest(&self.queue, known.iter().map(String::as_str)) {
            None => Ok(()),
            Some(nearest) => {
                let (queue, file) = (&self.queue, self.file.display());
                let reason = format!("there is no mailbox {queue} in {file}; did you mean `{nearest}`?");
                Err(LoopError::Failed { name: self.name().to_owned(), reason })
            }
        }
    }

    fn cannot_open(&self, error: &MailboxError) -> LoopError {
        let reason = format!("its mailbox cannot be opened: {error}");
        LoopError::Failed { name: self.name().to_owned(), reason }
    }

    /// Opens its mailbox, which is made if it is not there, and gives the loop, to be run by itself or in a group.
    pub fn open(&self, pit: &Snakepit) -> Result<PoolLoop, LoopError> {
        let mailbox =
            SqliteMailbox::open_named(&self.file, &self.queue).map_err(|error| self.cannot_open(&error))?;
        PoolLoop::new(pit, Arc::new(mailbox), &self.options)
    }
}

/// The keys of `[loop.NAME]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LoopTable {
    mailbox: Place,
    pub(super) pool: Option<String>,
    command: String,
    #[serde(default)]
    reply: Replies,
    #[serde(default)]
    give_up: GiveUp,
    concurrency: Option<NonZeroUsize>,
    #[serde(default)]
    prefetch: usize,
    #[serde(default)]
    tell_id: bool,
    call_timeout: Option<Time>,
    max_deliveries: Option<NonZeroU32>,
    backoff: Option<Time>,
    longest_backoff: Option<Time>,
    #[serde(default)]
    give_up_on: Vec<String>,
    visibility_timeout: Option<Time>,
    wait: Option<Time>,
}

impl LoopTable {
    pub(super) fn into_config(self, name: String, dir: &Path) -> LoopConfig {
        let ms = |time: Option<Time>| time.map(|time| time.0.as_millis() as u64);
        let options = PoolLoopOptions {
            name: Some(name),
            pool: self.pool,
            command: self.command,
            reply: self.reply,
            give_up: self.give_up,
            concurrency: self.concurrency.map(NonZeroUsize::get),
            prefetch: self.prefetch,
            tell_id: self.tell_id,
            call_timeout_ms: ms(self.call_timeout),
            max_deliveries: self.max_deliveries.map(NonZeroU32::get),
            backoff_ms: ms(self.backoff),
            longest_backoff_ms: ms(self.longest_backoff),
            give_up_on: self.give_up_on,
            visibility_timeout_ms: ms(self.visibility_timeout),
            wait_ms: ms(self.wait),
        };
        LoopConfig { file: dir.join(self.mailbox.file), queue: self.mailbox.queue, options }
    }
}

/// `sqlite:PATH`, or `sqlite:PATH#NAME`, as `snakepit mailbox` has it.
struct Place {
    file: PathBuf,
    queue: String,
}

impl<'de> Deserialize<'de> for Place {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let place =
            text.strip_prefix("sqlite:").map(|rest| rest.split_once('#').unwrap_or((rest, DEFAULT_QUEUE)));
        match place {
            Some((file, queue)) if !file.is_empty() && !queue.is_empty() => {
                Ok(Self { file: file.into(), queue: queue.to_owned() })
            }
            _ => Err(de::Error::custom(format_args!(
                "{text:?} is no mailbox: write \"sqlite:mail.db\", or \"sqlite:mail.db#NAME\" for one of several in a file"
            ))),
        }
    }
}
