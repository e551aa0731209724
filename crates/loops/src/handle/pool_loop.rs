//! A loop that passes messages to a command of a pool, without any handler in Rust.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::PoolLoopOptions;
use crate::mailbox::{DeadLetterPolicy, Mailbox, Message, body};
use crate::receive::{Concurrency, MessageHandler, MessageLoop, PoolGate, SubmittedCalls};
use crate::settle::{HandlingOutcome, SettlementRules};
use crate::{
    Beats, CallError, Control, HandlerFailure, LoopError, Pool, RunOptions, Runnable, Snakepit, Value,
    similar_names,
};
use snakepit_core::request::PendingCall;

/// The number of calls that a loop makes at the same time for each place at a worker. While the worker handles one, the
/// next is ready.
const CALLS_PER_PLACE: usize = 2;

/// A loop that calls a command of a pool with each message of a mailbox, and replies with the command's value.
///
/// While the pool has no worker, nothing is received, and received messages wait. A message that no worker has begun is
/// not given up for lack of a worker, however long that takes, unless the policy [includes](DeadLetterPolicy::include)
/// the error by its name.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use snakepit::loops::{PoolLoop, PoolLoopOptions, RunOptions, Runnable};
/// use snakepit::mailbox::SqliteMailbox;
/// use snakepit::{Snakepit, python};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let pit = Snakepit::builder().pool(python("worker.py")).start().await?;
/// let orders = Arc::new(SqliteMailbox::open_named("mail.db", "orders")?);
/// PoolLoop::new(&pit, orders, &PoolLoopOptions::new("handle_order"))?.run(RunOptions::new()).await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct PoolLoop {
    inner: MessageLoop,
    pool: String,
    options: PoolLoopOptions,
}

impl PoolLoop {
    /// Returns a loop that calls the pool's command with each message. Fails if the pool does not exist or its workers
    /// do not have the command.
    pub fn new(
        pit: &Snakepit,
        mailbox: Arc<dyn Mailbox>,
        options: &PoolLoopOptions,
    ) -> Result<Self, LoopError> {
        let name = options.name.clone().unwrap_or_else(|| format!("{}→{}", mailbox.name(), options.command));
        let found = match &options.pool {
            Some(pool) => pit.pool(pool),
            None => pit.pools().first(),
        };
        let Some(pool) = found.cloned() else {
            let Some(wanted) = &options.pool else { return Err(LoopError::NoPools { name }) };
            let known = similar_names::hint(wanted, pit.pools().iter().map(Pool::name));
            return Err(LoopError::NoSuchPool { name, pool: wanted.clone(), known });
        };
        let commands = pool.commands();
        // Some SDKs do not tell their commands before a call.
        if pool.tells_its_commands() && !commands.contains(&options.command) {
            let known = similar_names::hint(&options.command, commands.iter().map(String::as_str));
            let (pool, command) = (pool.name().to_owned(), options.command.clone());
            return Err(LoopError::NoSuchCommand { name, pool, command, known });
        }
        let places: usize = pool.workers().iter().map(|worker| worker.concurrency).sum();
        let control = Control::new(name);
        let (stuck_pool, stuck_command) = (pool.clone(), options.command.clone());
        control.tell_stacks(move || {
            let (pool, command) = (stuck_pool.clone(), stuck_command.clone());
            Box::pin(async move { pool.stacks_at(Some(&command)).await })
        });
        let submitted = SubmittedCalls::default();
        Ok(Self {
            inner: MessageLoop {
                work: work(&control, &pool, &submitted, options),
                gate: Some(PoolGate::new(&pool)),
                submitted: Some(submitted),
                control,
                mailbox,
                rules: Arc::new(SettlementRules {
                    policy: options.policy(),
                    give_up: options.give_up,
                    replies: options.reply,
                }),
                concurrency: options
                    .concurrency
                    .map_or(Concurrency::AtLeast(places * CALLS_PER_PLACE), Concurrency::Fixed),
                prefetch: options.prefetch,
            },
            pool: pool.name().to_owned(),
            options: options.clone(),
        })
    }

    /// Returns the mailbox that the messages come from.
    pub fn mailbox(&self) -> &Arc<dyn Mailbox> {
        &self.inner.mailbox
    }

    /// Returns the name of the pool.
    pub fn pool(&self) -> &str {
        &self.pool
    }

    /// Returns the command.
    pub fn command(&self) -> &str {
        &self.options.command
    }

    /// Sets what happens to messages whose calls failed. If the policy has no delivery limit, that of the options
    /// applies.
    pub fn policy(mut self, mut policy: DeadLetterPolicy) -> Self {
        let rules = Arc::make_mut(&mut self.inner.rules);
        policy.max_deliveries = policy.max_deliveries.or(rules.policy.max_deliveries);
        rules.policy = policy;
        self
    }
}

fn work(
    control: &Control,
    pool: &Pool,
    submitted: &SubmittedCalls,
    options: &PoolLoopOptions,
) -> MessageHandler {
    let (control, pool, submitted) = (control.clone(), pool.clone(), submitted.clone());
    let command = options.command.clone();
    let timeout = options.call_timeout;
    let tells_id = options.tell_id;
    Arc::new(move |message: &Message| {
        let args = match message.read::<serde_json::Value>() {
            Ok(args @ (serde_json::Value::Object(_) | serde_json::Value::Array(_))) => args,
            Ok(single) => serde_json::Value::Array(vec![single]),
            Err(error) => return Box::pin(std::future::ready(HandlingOutcome::undecodable(&error))),
        };
        let mut call = pool.call::<Value>(&command, args);
        if tells_id {
            call = call.metadata("message", message.id.to_string());
        }
        if let Some(timeout) = timeout {
            call = call.timeout(timeout);
        }
        let (wants_reply, receipt) = (message.wants_reply(), message.receipt.clone());
        let (control, submitted, heartbeat) = (control.clone(), submitted.clone(), Beats::current());
        Box::pin(async move {
            let mut pending = match call.begin() {
                Ok(pending) => pending,
                Err(error) => return failed(error),
            };
            let submitted = submitted.submit(receipt, pending.withdrawal());
            // The loop may have withdrawn its queued calls just before this one was submitted.
            if !control.wanted().receives() {
                submitted.withdraw();
            }
            let answered = answer(&mut pending, heartbeat).await;
            if answered.is_err() && submitted.is_withdrawn() {
                let failure =
                    HandlerFailure::new("TakenBack", "no worker had begun it when the loop had to end");
                return HandlingOutcome::NotBegun { failure, again_in: Duration::ZERO };
            }
            match answered {
                Ok(value) => HandlingOutcome::answered(wants_reply.then(|| body(&value))),
                Err(error) => failed(error),
            }
        })
    })
}

/// Returns the value of a call. Progress that the worker reports is also progress of the message.
async fn answer(pending: &mut PendingCall, heartbeat: Option<Beats>) -> Result<Value, CallError> {
    let progress = |_| {
        if let Some(heartbeat) = &heartbeat {
            heartbeat.beat();
        }
    };
    let value = pending.value_with_progress(progress).await?;
    let read = value.decode();
    read.map_err(|source| CallError::Result { command: pending.command_name().to_owned(), source })
}

/// Converts the error of a call to the outcome of its message. If no worker has begun the call, the message did not
/// fail.
fn failed(error: CallError) -> HandlingOutcome {
    if !error.was_not_served() {
        return HandlingOutcome::Failed(error.into());
    }
    let again_in = error.retry_after().unwrap_or_default();
    HandlingOutcome::NotBegun { failure: error.into(), again_in }
}

impl Runnable for PoolLoop {
    fn control(&self) -> &Control {
        &self.inner.control
    }

    fn run(&self, mut options: RunOptions) -> BoxFuture<'_, Result<(), LoopError>> {
        // The options of this loop override those that a group passes to all its loops.
        options.visibility_timeout = self.options.visibility_timeout.unwrap_or(options.visibility_timeout);
        options.wait = self.options.wait.unwrap_or(options.wait);
        Box::pin(self.inner.run(options))
    }
}
