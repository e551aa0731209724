//! `snakepit mailbox`: messages from a shell, one operation per call.

mod show;

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use snakepit::mailbox::sqlite::SqliteOptions;
use snakepit::mailbox::{
    Extension, MAX_WAIT, Mailbox, MailboxError, Message, MessageId, Nack, Receipt, Receive, Reply, Send,
    SettingsChange,
};

use crate::duration;
use crate::say::{self, Failure};

/// The exit status for a mailbox, or a message, that is not there.
const MISSING: u8 = 3;

/// Send, receive and look after the messages of a mailbox.
#[derive(clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "URL: sqlite:PATH, or sqlite:PATH#NAME for one of several mailboxes in a file.\n\
                  Exit status: 0 when it is done, 1 when a receipt has expired, 2 for a wrong command line, \
                  3 when there is no such mailbox or message, \
                  125 when the mailbox cannot be used."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    Send(SendArgs),
    Receive(ReceiveArgs),
    /// Acknowledge a message: it is done.
    Ack {
        url: String,
        receipt: String,
    },
    /// Give a message back: this delivery counts.
    Nack {
        url: String,
        receipt: String,
        /// What went wrong; it stays with the message.
        #[arg(long, value_name = "TEXT")]
        error: Option<String>,
        /// How long until it can be received again.
        #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::parse)]
        visibility: Duration,
    },
    /// Give a message back as if it had not been delivered: nobody has begun it.
    Release {
        url: String,
        receipt: String,
    },
    /// Keep a message for so long from now; it is never made shorter, unless --exactly.
    Extend {
        url: String,
        receipt: String,
        #[arg(value_parser = duration::parse)]
        visibility: Duration,
        /// Also if that is shorter than it would have been.
        #[arg(long)]
        exactly: bool,
    },
    /// Show what the mailbox keeps about itself, as one JSON object; with an option, change it first, for all who use it.
    Settings {
        url: String,
        /// A message is given up after so many deliveries.
        #[arg(long, value_name = "N")]
        max_deliveries: Option<u32>,
    },
    /// Show a message and its attempts, wherever it is, as one JSON object.
    Show {
        url: String,
        id: MessageId,
    },
    /// Show the reply to a message that was sent with --keep-result, as one JSON object.
    Result {
        url: String,
        id: MessageId,
        /// How long to wait for it.
        #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::parse)]
        wait: Duration,
    },
    /// Show the next messages without taking them, one JSON object a line.
    Peek {
        url: String,
        #[arg(long, value_name = "N", default_value_t = 10)]
        max: usize,
    },
    /// Count the messages, as one JSON object.
    Count {
        url: String,
    },
    /// Remove all messages but the dead letters.
    Purge {
        url: String,
    },
    /// The dead letters.
    #[command(subcommand)]
    Dlq(DeadVerb),
}

#[derive(clap::Subcommand)]
enum DeadVerb {
    /// Show the dead letters, one JSON object a line.
    List {
        url: String,
        #[arg(long, value_name = "N", default_value_t = 100)]
        max: usize,
    },
    /// Put dead letters back: those with these ids, or all.
    Redrive { url: String, ids: Vec<MessageId> },
    /// Remove all dead letters.
    Purge { url: String },
}

/// Put a message in and print its id.
#[derive(clap::Args)]
struct SendArgs {
    url: String,
    /// The message; `-`, or nothing, for standard input.
    body: Option<String>,
    /// The mailbox that waits for a reply.
    #[arg(long, value_name = "NAME")]
    reply_to: Option<String>,
    /// How long until it can be received.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    delay: Option<Duration>,
    /// Higher ones are received first, -128 to 127.
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    priority: i8,
    /// A second message with the same key is not put in for five minutes.
    #[arg(long, value_name = "KEY")]
    dedup: Option<String>,
    /// A dead letter if nobody has received it by then.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse_positive)]
    ttl: Option<Duration>,
    /// How long its reply is kept, to be read by its id (`mailbox result`); up to 12 h.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse_positive)]
    keep_result: Option<Duration>,
    /// Whatever else belongs to it; as often as needed.
    #[arg(long, value_name = "NAME=VALUE", value_parser = attribute)]
    attribute: Vec<(String, String)>,
}

/// Take messages and print them, one JSON object a line.
#[derive(clap::Args)]
struct ReceiveArgs {
    url: String,
    /// How many at the most, 1 to 10.
    #[arg(long, value_name = "N", default_value_t = 1)]
    max: usize,
    /// How long they are kept for us, up to 12 h.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse)]
    visibility: Duration,
    /// How long to wait for the first one, up to 20 s.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::parse)]
    wait: Duration,
    /// Acknowledge each one as soon as it is printed.
    #[arg(long)]
    ack: bool,
}

fn attribute(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write it as NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

pub(crate) fn run(args: Args) -> Result<u8, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new("cannot start a runtime", &error))?;
    runtime.block_on(perform(args.verb)).map(|()| 0)
}

async fn perform(verb: Verb) -> Result<(), Failure> {
    match verb {
        Verb::Send(args) => send(args).await,
        Verb::Receive(args) => receive(args).await,
        Verb::Ack { url, receipt } => failed(existing(&url)?.ack(&Receipt::from(&*receipt)).await),
        Verb::Nack { url, receipt, error, visibility } => {
            let mut options = Nack::new().visibility(visibility);
            options.error = error;
            failed(existing(&url)?.nack(&Receipt::from(&*receipt), options).await)
        }
        Verb::Release { url, receipt } => {
            let receipt = Receipt::from(&*receipt);
            match failed(existing(&url)?.release(std::slice::from_ref(&receipt)).await)? {
                0 => failed(Err(MailboxError::ReceiptExpired)),
                _ => Ok(()),
            }
        }
        Verb::Extend { url, receipt, visibility, exactly } => {
            let extension = if exactly { Extension::Exactly } else { Extension::AtLeast };
            failed(existing(&url)?.extend(&Receipt::from(&*receipt), visibility, extension).await)
        }
        Verb::Settings { url, max_deliveries } => {
            let mailbox = existing(&url)?;
            let mut change = SettingsChange::new();
            change.max_deliveries = max_deliveries;
            let settings = if change == SettingsChange::new() {
                mailbox.settings().await
            } else {
                mailbox.configure(change).await
            };
            say::out(&say::json(&failed(settings)?));
            Ok(())
        }
        Verb::Result { url, id, wait } => match result(&*existing(&url)?, id, wait).await? {
            Some(reply) => {
                say::out(&show::reply(&reply));
                Ok(())
            }
            None => Err(Failure::plain(format!(
                "there is no reply to the message {id} in the mailbox {url}: it is not answered yet, was not sent with \
                 --keep-result, or its reply was kept for long enough"
            ))
            .status(MISSING)),
        },
        Verb::Show { url, id } => match failed(existing(&url)?.find(id).await)? {
            Some(found) => {
                say::out(&show::found(&found));
                Ok(())
            }
            None => Err(Failure::plain(format!(
                "there is no message {id} in the mailbox {url}: it was acknowledged or removed, or was never there"
            ))
            .status(MISSING)),
        },
        Verb::Peek { url, max } => {
            let messages = failed(existing(&url)?.peek(max).await)?;
            for message in &messages {
                say::out(&show::message(message));
            }
            Ok(())
        }
        Verb::Count { url } => {
            say::out(&say::json(&failed(existing(&url)?.count().await)?));
            Ok(())
        }
        Verb::Purge { url } => tell_number("purged", existing(&url)?.purge().await),
        Verb::Dlq(DeadVerb::List { url, max }) => {
            let letters = failed(existing(&url)?.dead_letters(max).await)?;
            for letter in &letters {
                say::out(&show::dead_letter(letter));
            }
            Ok(())
        }
        Verb::Dlq(DeadVerb::Redrive { url, ids }) => {
            let some = (!ids.is_empty()).then_some(&ids[..]);
            tell_number("redriven", existing(&url)?.redrive(some).await)
        }
        Verb::Dlq(DeadVerb::Purge { url }) => tell_number("purged", existing(&url)?.purge_dead_letters().await),
    }
}

async fn send(args: SendArgs) -> Result<(), Failure> {
    let mailbox = open(&args.url)?;
    let body = match args.body {
        Some(body) if body != "-" => body.into_bytes(),
        _ => {
            let mut body = Vec::new();
            std::io::stdin()
                .read_to_end(&mut body)
                .map_err(|error| Failure::new("cannot read the message from standard input", &error))?;
            body
        }
    };
    let mut options = Send::new().delay(args.delay.unwrap_or_default()).priority(args.priority);
    options.reply_to = args.reply_to;
    options.dedup_key = args.dedup;
    options.time_to_live = args.ttl;
    options.keep_result = args.keep_result;
    options.attributes.extend(args.attribute);
    let id = failed(mailbox.send(body, options).await)?;
    say::out(&format!("{id}\n"));
    Ok(())
}

async fn receive(args: ReceiveArgs) -> Result<(), Failure> {
    let mailbox = open(&args.url)?;
    let options = Receive::new().max_messages(args.max).visibility_timeout(args.visibility).wait(args.wait);
    let messages = failed(mailbox.receive(options).await)?;
    for (at, message) in messages.iter().enumerate() {
        let line = show::message(message);
        let mut stdout = std::io::stdout().lock();
        if let Err(error) = stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush()) {
            drop(stdout);
            // Whoever was to read it has not: it goes back, and those after it.
            give_back(&*mailbox, &messages[at..]).await;
            return Err(Failure::new("cannot print the message, and gave it back", &error));
        }
        drop(stdout);
        if args.ack {
            failed(message.ack().await)?;
        }
    }
    Ok(())
}

/// Waits for as long as it is told, in as many waits as that takes.
async fn result(mailbox: &dyn Mailbox, id: MessageId, wait: Duration) -> Result<Option<Reply>, Failure> {
    let began = Instant::now();
    loop {
        let left = wait.saturating_sub(began.elapsed());
        let reply = failed(mailbox.result(id, left.min(MAX_WAIT)).await)?;
        if reply.is_some() || left.is_zero() {
            return Ok(reply);
        }
    }
}

async fn give_back(mailbox: &dyn Mailbox, messages: &[Message]) {
    let receipts: Vec<Receipt> = messages.iter().filter_map(|message| message.receipt.clone()).collect();
    // If that fails, too, their leases run out.
    let _ = mailbox.release(&receipts).await;
}

fn tell_number(what: &str, number: Result<u64, MailboxError>) -> Result<(), Failure> {
    say::out(&format!("{{\"{what}\":{}}}\n", failed(number)?));
    Ok(())
}

/// The mailbox, made if there is none.
fn open(url: &str) -> Result<Arc<dyn Mailbox>, Failure> {
    opened(url, SqliteOptions::new())
}

/// The mailbox; one that is missing is said to be.
fn existing(url: &str) -> Result<Arc<dyn Mailbox>, Failure> {
    opened(url, SqliteOptions::new().existing())
}

fn opened(url: &str, options: SqliteOptions) -> Result<Arc<dyn Mailbox>, Failure> {
    match options.open_url(url) {
        Ok(mailbox) => Ok(Arc::new(mailbox)),
        Err(error @ MailboxError::Missing(_)) => failed(Err(error)),
        Err(error) => Err(Failure::new(format!("cannot open the mailbox {url}"), &error)),
    }
}

/// What a person, or a shell, can do about it.
fn failed<T>(outcome: Result<T, MailboxError>) -> Result<T, Failure> {
    outcome.map_err(|error| match &error {
        MailboxError::ReceiptExpired => Failure::of(&error).status(1),
        MailboxError::Missing(_) => Failure::of(&error).status(MISSING),
        MailboxError::OutOfRange { .. } => Failure::of(&error).status(say::USAGE),
        _ => Failure::of(&error),
    })
}
