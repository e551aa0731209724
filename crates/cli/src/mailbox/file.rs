//! What is done to a mailbox's file as a whole, and to the flow of its messages.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use snakepit::mailbox::sqlite::{FileSize, SqliteOptions};
use snakepit::mailbox::{Count, Mailbox, RateLimit, SettingsChange, SqliteMailbox};

use super::failed;
use crate::duration;
use crate::say::{self, Failure};

#[derive(Serialize)]
struct Counted {
    #[serde(flatten)]
    count: Count,
    file: FileSize,
}

/// The messages, and how much room the file takes.
pub(super) async fn count(url: &str) -> Result<(), Failure> {
    let mailbox = opened(url, SqliteOptions::new().existing())?;
    let counted = Counted { count: failed(mailbox.count().await)?, file: failed(mailbox.file_size().await)? };
    say::out(&say::json(&counted));
    Ok(())
}

pub(super) async fn backup(url: &str, to: PathBuf) -> Result<(), Failure> {
    failed(opened(url, SqliteOptions::new().existing())?.backup(to).await)
}

pub(super) async fn compact(url: &str) -> Result<(), Failure> {
    let mailbox = opened(url, SqliteOptions::new().existing())?;
    failed(mailbox.compact().await)?;
    say::out(&say::json(&failed(mailbox.file_size().await)?));
    Ok(())
}

/// Goes on with what a file has whose log was lost.
pub(super) async fn recover(url: &str) -> Result<(), Failure> {
    let mailbox = opened(url, SqliteOptions::new().existing().accept_lost_log())?;
    say::out(&say::json(&failed(mailbox.count().await)?));
    Ok(())
}

pub(super) async fn change(url: &str, change: SettingsChange) -> Result<(), Failure> {
    let mailbox = opened(url, SqliteOptions::new().existing())?;
    let settings = if change == SettingsChange::new() {
        mailbox.settings().await
    } else {
        mailbox.configure(change).await
    };
    say::out(&say::json(&failed(settings)?));
    Ok(())
}

/// `100/1m`, or `none`.
pub(super) fn rate(text: &str) -> Result<Option<RateLimit>, String> {
    if text == "none" {
        return Ok(None);
    }
    let (messages, per) = text.split_once('/').ok_or("write it as N/DURATION, like 100/1m, or none")?;
    let messages = messages.parse().map_err(|_| format!("{messages} is no number of messages"))?;
    // Without a number: one of them.
    let per: Duration = match per {
        "s" | "m" | "h" => duration::parse(&format!("1{per}"))?,
        per => duration::parse(per)?,
    };
    Ok(Some(RateLimit { messages, per }))
}

fn opened(url: &str, options: SqliteOptions) -> Result<SqliteMailbox, Failure> {
    super::unshared(url, options)
}
