//! `snakepit mailbox`: the operations of a mailbox, one per command.
//!
//! Owns the command line and the operations. [`json`] describes messages.

mod json;

use std::io::{Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use snakepit::mailbox::sqlite::{FileSize, SqliteOptions};
use snakepit::mailbox::{
    LeaseExtension, MAX_WAIT, Mailbox, MailboxError, Message, MessageCounts, MessageId, NackOptions,
    RateLimit, Receipt, ReceiveOptions, Reply, SendOptions, SettingsChange, SqliteMailbox,
};
use tokio::runtime::Builder;
use tokio::time::Instant;

use json::{MessageJson, ReplyJson};

use crate::shared::exit_status::{FAILED, MISSING, SUCCESS};
use crate::shared::failure::CliFailure;
use crate::shared::{duration, engine, output};

/// Send, receive and manage the messages of a mailbox.
#[derive(clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "URL: sqlite:PATH, or sqlite:PATH#NAME for one of several mailboxes in a file.\n\n\
                  Exit status: 0 when it is done;\n  \
                  1    the receipt has expired\n  \
                  2    the command line cannot be used\n  \
                  3    the mailbox or the message does not exist\n  \
                  125  the mailbox cannot be used"
)]
pub(crate) struct MailboxArgs {
    #[command(subcommand)]
    command: MailboxCommand,
}

/// A rate limit, or none. clap would read an `Option` in an `Option` as an option without a value.
type OptionalRate = Option<RateLimit>;

/// The mailbox of a command without options.
#[derive(clap::Args)]
struct MailboxUrl {
    url: String,
}

/// A message that was received.
#[derive(clap::Args)]
struct LeasedMessage {
    url: String,
    receipt: Receipt,
}

#[derive(clap::Subcommand)]
enum MailboxCommand {
    Send(SendArgs),
    Receive(ReceiveArgs),
    /// Acknowledge a message: its work is done.
    Ack(LeasedMessage),
    /// Give back a message; the delivery counts.
    Nack {
        #[command(flatten)]
        message: LeasedMessage,
        /// Record this error with the message.
        #[arg(long, value_name = "TEXT")]
        error: Option<String>,
        /// Hide the message for this long.
        #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::parse)]
        visibility: Duration,
    },
    /// Give back a message that was not started; the delivery does not count.
    Release(LeasedMessage),
    /// Extend the lease of a message to this long from now; --exactly may also shorten it.
    Extend {
        #[command(flatten)]
        message: LeasedMessage,
        #[arg(value_parser = duration::parse)]
        visibility: Duration,
        /// Set the lease even if it becomes shorter.
        #[arg(long)]
        exactly: bool,
    },
    /// Show the settings of the mailbox as one JSON object; with options, change them first, for everyone who uses it.
    Settings {
        url: String,
        /// Make a message a dead letter after N deliveries.
        #[arg(long, value_name = "N")]
        max_deliveries: Option<u32>,
        /// Deliver at most N messages in each period, such as 100/1m; none removes the limit.
        #[arg(long, value_name = "N/DURATION", value_parser = rate)]
        rate: Option<OptionalRate>,
        /// Deliver at most N messages of each rate key, and of each group, in each period.
        #[arg(long, value_name = "N/DURATION", value_parser = rate)]
        group_rate: Option<OptionalRate>,
    },
    /// Stop delivering messages until `resume`: receivers wait, sends go on.
    Pause(MailboxUrl),
    /// Deliver messages again.
    Resume(MailboxUrl),
    /// Copy the whole file, as it is at this moment, to a new one. Others may use the mailbox meanwhile.
    Backup {
        url: String,
        file: PathBuf,
    },
    /// Rewrite the file without its free space. Writers wait meanwhile.
    Compact(MailboxUrl),
    /// Use a file whose log (FILE-wal) was lost. Everything that was only in the log is gone for good.
    Recover(MailboxUrl),
    /// Show a message and its attempts, wherever it is, as one JSON object.
    Show {
        url: String,
        id: MessageId,
    },
    /// Show the reply to a message that was sent with --keep-result, as one JSON object.
    Result {
        url: String,
        id: MessageId,
        /// Wait this long for the reply.
        #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::parse)]
        wait: Duration,
    },
    /// Show the next messages without receiving them, one JSON object per line.
    Peek {
        url: String,
        #[arg(long, value_name = "N", default_value_t = 10)]
        max: usize,
    },
    /// Count the messages and show the size of the file, as one JSON object.
    Count {
        url: String,
        /// Accepted for symmetry: the output is always JSON.
        #[arg(long, hide = true)]
        json: bool,
    },
    /// Remove all messages except the dead letters.
    Purge(MailboxUrl),
    /// List, redrive or remove the dead letters.
    #[command(subcommand)]
    Dlq(DeadLetterCommand),
}

#[derive(clap::Subcommand)]
enum DeadLetterCommand {
    /// Show the dead letters, one JSON object per line.
    List {
        url: String,
        #[arg(long, value_name = "N", default_value_t = 100)]
        max: usize,
    },
    /// Put dead letters back into the mailbox: those with these ids, or all.
    Redrive { url: String, ids: Vec<MessageId> },
    /// Remove all dead letters.
    Purge { url: String },
}

/// Send a message and print its id.
#[derive(clap::Args)]
struct SendArgs {
    url: String,
    /// The message; read from standard input if it is `-` or absent.
    body: Option<String>,
    /// The mailbox that receives the reply.
    #[arg(long, value_name = "NAME")]
    reply_to: Option<String>,
    /// Hide the message for this long, up to 366 days.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    delay: Option<Duration>,
    /// Receive higher priorities first, -128 to 127.
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    priority: i8,
    /// Discard further messages with this key for five minutes, or for --dedup-for.
    #[arg(long, value_name = "KEY")]
    dedup: Option<String>,
    /// Remember the key for this long, up to 366 days.
    #[arg(long, value_name = "DURATION", requires = "dedup", value_parser = duration::parse_positive)]
    dedup_for: Option<Duration>,
    /// Deliver messages of this group one at a time, in order.
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Count the message for the rate limit of this key instead of that of its group.
    #[arg(long, value_name = "NAME")]
    rate_key: Option<String>,
    /// Make the message a dead letter if nobody receives it within this time.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse_positive)]
    ttl: Option<Duration>,
    /// Keep the reply for this long, for `mailbox result`; up to 366 days.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse_positive)]
    keep_result: Option<Duration>,
    /// Attach an attribute. Repeatable.
    #[arg(long, value_name = "NAME=VALUE", value_parser = attribute)]
    attribute: Vec<(String, String)>,
}

/// Receive messages and print them, one JSON object per line.
#[derive(clap::Args)]
struct ReceiveArgs {
    url: String,
    /// Receive at most N messages, 1 to 10.
    #[arg(long, value_name = "N", default_value_t = 1)]
    max: usize,
    /// Lease the messages for this long, up to 12 h.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse)]
    visibility: Duration,
    /// Wait this long for the first message, up to 20 s.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::parse)]
    wait: Duration,
    /// Acknowledge each message as soon as it is printed.
    #[arg(long)]
    ack: bool,
}

/// Parses `100/1m` or `none`.
fn rate(text: &str) -> Result<Option<RateLimit>, String> {
    if text == "none" {
        return Ok(None);
    }
    let (messages, per) = text.split_once('/').ok_or("write it as N/DURATION, like 100/1m, or none")?;
    let messages = messages.parse().map_err(|_| format!("{messages} is not a number of messages"))?;
    // A unit without a number means one unit.
    let per: Duration = match per {
        "s" | "m" | "h" => duration::parse(&format!("1{per}"))?,
        per => duration::parse(per)?,
    };
    Ok(Some(RateLimit::new(messages, per)))
}

/// The number of messages and the size of the file.
#[derive(Serialize)]
struct MailboxCount {
    #[serde(flatten)]
    count: MessageCounts,
    file: FileSize,
}

fn attribute(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write it as NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

pub(crate) fn run(args: MailboxArgs) -> Result<u8, CliFailure> {
    let runtime = engine::runtime(&mut Builder::new_current_thread())?;
    output::out(&runtime.block_on(perform(args.command))?);
    Ok(SUCCESS)
}

/// Performs the command and returns what to print.
async fn perform(command: MailboxCommand) -> Result<String, CliFailure> {
    Ok(match command {
        MailboxCommand::Send(args) => send(args).await?,
        MailboxCommand::Receive(args) => nothing(receive(args).await?),
        MailboxCommand::Ack(LeasedMessage { url, receipt }) => nothing(existing(&url)?.ack(&receipt).await?),
        MailboxCommand::Nack { message: LeasedMessage { url, receipt }, error, visibility } => {
            let mut options = NackOptions::new().visibility(visibility);
            options.error = error;
            nothing(existing(&url)?.nack(&receipt, options).await?)
        }
        MailboxCommand::Release(LeasedMessage { url, receipt }) => {
            match existing(&url)?.release(&[receipt]).await? {
                0 => return Err(MailboxError::ReceiptExpired.into()),
                _ => String::new(),
            }
        }
        MailboxCommand::Extend { message: LeasedMessage { url, receipt }, visibility, exactly } => {
            let extension = if exactly { LeaseExtension::Exactly } else { LeaseExtension::AtLeast };
            nothing(existing(&url)?.extend(&receipt, visibility, extension).await?)
        }
        MailboxCommand::Settings { url, max_deliveries, rate, group_rate } => {
            let mut change = SettingsChange::new();
            change.max_deliveries = max_deliveries;
            change.rate_limit = rate;
            change.group_rate_limit = group_rate;
            settings(&url, change).await?
        }
        MailboxCommand::Pause(MailboxUrl { url }) => settings(&url, SettingsChange::new().pause()).await?,
        MailboxCommand::Resume(MailboxUrl { url }) => settings(&url, SettingsChange::new().resume()).await?,
        MailboxCommand::Backup { url, file } => nothing(existing(&url)?.backup(file).await?),
        MailboxCommand::Compact(MailboxUrl { url }) => {
            let mailbox = existing(&url)?;
            mailbox.compact().await?;
            output::json(&mailbox.file_size().await?)
        }
        MailboxCommand::Recover(MailboxUrl { url }) => {
            let mailbox = opened(&url, SqliteOptions::new().existing().accept_lost_log())?;
            output::json(&mailbox.count().await?)
        }
        MailboxCommand::Result { url, id, wait } => match result(&existing(&url)?, id, wait).await? {
            Some(reply) => output::json(&ReplyJson::from(&reply)),
            None => {
                return Err(missing(format!(
                    "there is no reply to the message {id} in the mailbox {url}: it is not answered yet, was sent without \
                 --keep-result, or its reply has expired"
                )));
            }
        },
        MailboxCommand::Show { url, id } => match existing(&url)?.find(id).await? {
            Some(found) => output::json(&MessageJson::found(&found)),
            None => {
                return Err(missing(format!(
                    "there is no message {id} in the mailbox {url}: it was acknowledged or removed, or never existed"
                )));
            }
        },
        MailboxCommand::Peek { url, max } => {
            lines(existing(&url)?.peek(max).await?.iter().map(MessageJson::from))
        }
        MailboxCommand::Count { url, json: _ } => {
            let mailbox = existing(&url)?;
            let count = mailbox.count().await?;
            output::json(&MailboxCount { count, file: mailbox.file_size().await? })
        }
        MailboxCommand::Purge(MailboxUrl { url }) => counted("purged", existing(&url)?.purge().await?),
        MailboxCommand::Dlq(command) => dead_letters(command).await?,
    })
}

async fn dead_letters(command: DeadLetterCommand) -> Result<String, CliFailure> {
    Ok(match command {
        DeadLetterCommand::List { url, max } => {
            lines(existing(&url)?.dead_letters(max).await?.iter().map(MessageJson::dead))
        }
        DeadLetterCommand::Redrive { url, ids } => {
            let some = (!ids.is_empty()).then_some(&ids[..]);
            counted("redriven", existing(&url)?.redrive(some).await?)
        }
        DeadLetterCommand::Purge { url } => counted("purged", existing(&url)?.purge_dead_letters().await?),
    })
}

/// Changes the settings, and returns the settings after the change.
async fn settings(url: &str, change: SettingsChange) -> Result<String, CliFailure> {
    let mailbox = existing(url)?;
    let settings = if change == SettingsChange::new() {
        mailbox.settings().await?
    } else {
        mailbox.configure(change).await?
    };
    Ok(output::json(&settings))
}

async fn send(args: SendArgs) -> Result<String, CliFailure> {
    let mailbox = opened(&args.url, SqliteOptions::new())?;
    let body = match args.body {
        Some(body) if body != "-" => body.into_bytes(),
        _ => {
            let mut body = Vec::new();
            std::io::stdin()
                .read_to_end(&mut body)
                .map_err(|error| CliFailure::new("cannot read the message from standard input", &error))?;
            body
        }
    };
    let mut options = SendOptions::new().delay(args.delay.unwrap_or_default()).priority(args.priority);
    options.reply_to = args.reply_to;
    options.dedup_key = args.dedup;
    options.dedup_for = args.dedup_for;
    options.group = args.group;
    options.rate_key = args.rate_key;
    options.time_to_live = args.ttl;
    options.keep_result = args.keep_result;
    options.attributes.extend(args.attribute);
    let id = mailbox.send(body, options).await?;
    Ok(format!("{id}\n"))
}

async fn receive(args: ReceiveArgs) -> Result<(), CliFailure> {
    let mailbox = opened(&args.url, SqliteOptions::new())?;
    let options =
        ReceiveOptions::new().max_messages(args.max).visibility_timeout(args.visibility).wait(args.wait);
    let messages = mailbox.receive(options).await?;
    for (at, message) in messages.iter().enumerate() {
        let line = output::json(&MessageJson::from(message));
        let mut stdout = std::io::stdout().lock();
        let written = stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush());
        drop(stdout);
        if let Err(error) = written {
            // No reader has seen this message or those after it.
            give_back(&mailbox, &messages[at..]).await;
            return Err(CliFailure::new("cannot print the message, so it was given back", &error));
        }
        if args.ack {
            message.ack().await?;
        }
    }
    Ok(())
}

/// Waits for the whole time, in as many waits as the mailbox needs.
async fn result(mailbox: &SqliteMailbox, id: MessageId, wait: Duration) -> Result<Option<Reply>, CliFailure> {
    let began = Instant::now();
    loop {
        let left = wait.saturating_sub(began.elapsed());
        let reply = mailbox.result(id, left.min(MAX_WAIT)).await?;
        if reply.is_some() || left.is_zero() {
            return Ok(reply);
        }
    }
}

async fn give_back(mailbox: &SqliteMailbox, messages: &[Message]) {
    let receipts: Vec<Receipt> = messages.iter().filter_map(|message| message.receipt.clone()).collect();
    // If this fails too, the leases run out.
    let _ = mailbox.release(&receipts).await;
}

fn nothing((): ()) -> String {
    String::new()
}

fn lines<'a>(messages: impl Iterator<Item = MessageJson<'a>>) -> String {
    messages.map(|message| output::json(&message)).collect()
}

fn counted(what: &str, number: u64) -> String {
    output::json(&serde_json::json!({ what: number }))
}

fn missing(text: String) -> CliFailure {
    CliFailure::internal(text).status(MISSING)
}

/// Opens a mailbox that must exist.
fn existing(url: &str) -> Result<SqliteMailbox, CliFailure> {
    opened(url, SqliteOptions::new().existing())
}

fn opened(url: &str, options: SqliteOptions) -> Result<SqliteMailbox, CliFailure> {
    options.open_url(url).map_err(|error| match error {
        MailboxError::Missing(_) => error.into(),
        error => CliFailure::new(format!("cannot open the mailbox {url}"), &error),
    })
}

impl From<MailboxError> for CliFailure {
    fn from(error: MailboxError) -> Self {
        match &error {
            MailboxError::ReceiptExpired => Self::of(&error).status(FAILED),
            MailboxError::Missing(_) => Self::of(&error).status(MISSING),
            MailboxError::OutOfRange { .. } => Self::usage_of(&error),
            _ => Self::of(&error),
        }
    }
}
