//! From a mailbox to a command of a pool, without a line of Rust between them: a value that a file can describe.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use super::door::Door;
use super::engine::Engine;
use super::settle::{GiveUp, Outcome, Replies, Rules};
use super::window::Concurrency;
use super::{Beats, Control, Failure, LoopError, RunOptions, Runnable};
use crate::call::waiting::Waiting;
use crate::mailbox::{DeadLetterPolicy, Mailbox, Message, body};
use crate::{CallError, PoolRef, Snakepit, Value, nearest};

/// What a [`PoolLoop`] does. Its messages are JSON: an object is arguments by name, a list arguments by position, anything
/// else the one argument.
///
/// ```
/// use snakepit::loops::PoolLoopOptions;
/// let options: PoolLoopOptions = serde_json::from_str(r#"{"command": "add", "concurrency": 8}"#).unwrap();
/// assert_eq!(options.command, "add");
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct PoolLoopOptions {
    /// Its name; that of its mailbox and command unless it is set.
    #[serde(default)]
    pub name: Option<String>,
    /// The pool; the engine's first one unless it is named.
    #[serde(default)]
    pub pool: Option<String>,
    /// The command.
    pub command: String,
    /// Whether its values are sent to those who wait for a reply.
    #[serde(default)]
    pub reply: Replies,
    /// What is done with messages that are given up.
    #[serde(default)]
    pub give_up: GiveUp,
    /// How many calls are made at the same time. Unless it is set: twice what the pool's workers take, and as many as are done in
    /// 25 ms, if that is more.
    #[serde(default)]
    pub concurrency: Option<usize>,
    /// How many more messages are received than calls can be made, at least.
    #[serde(default)]
    pub prefetch: usize,
    /// Whether the command finds the message's id as `message` in its call's metadata, to know it again if it is delivered
    /// twice. A call with metadata is not gathered into a batch with others.
    #[serde(default)]
    pub tell_id: bool,
    /// How long a call may take, in milliseconds; as the pool says unless it is set.
    #[serde(default)]
    pub call_timeout_ms: Option<u64>,
    /// After how many deliveries a message is given up, from now on in the mailbox's settings; as the mailbox has it unless it is
    /// set.
    #[serde(default)]
    pub max_deliveries: Option<u32>,
    /// How long a message that failed waits before it comes again, in milliseconds; that doubles each time. A second unless it is set.
    #[serde(default)]
    pub backoff_ms: Option<u64>,
    /// How long it waits at most, in milliseconds; five minutes unless it is set.
    #[serde(default)]
    pub longest_backoff_ms: Option<u64>,
    /// Names of errors for which a message is given up at once, besides those about wrong arguments.
    #[serde(default)]
    pub give_up_on: Vec<String>,
    /// For how long messages are leased, in milliseconds; as the run says unless it is set. Leases are extended while messages are in
    /// hand.
    #[serde(default)]
    pub visibility_timeout_ms: Option<u64>,
    /// How long one receive waits, in milliseconds; as the run says unless it is set.
    #[serde(default)]
    pub wait_ms: Option<u64>,
}

impl PoolLoopOptions {
    /// Calls this command of the first pool.
    pub fn new(command: impl Into<String>) -> Self {
        Self {
            name: None,
            pool: None,
            command: command.into(),
            reply: Replies::default(),
            give_up: GiveUp::default(),
            concurrency: None,
            prefetch: 0,
            tell_id: false,
            call_timeout_ms: None,
            max_deliveries: None,
            backoff_ms: None,
            longest_backoff_ms: None,
            give_up_on: Vec::new(),
            visibility_timeout_ms: None,
            wait_ms: None,
        }
    }

    /// Is called this.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Of this pool.
    pub fn pool(mut self, name: impl Into<String>) -> Self {
        self.pool = Some(name.into());
        self
    }

    /// Makes so many calls at the same time.
    pub fn concurrency(mut self, calls: usize) -> Self {
        self.concurrency = Some(calls);
        self
    }

    /// Receives so many more messages than calls can be made.
    pub fn prefetch(mut self, messages: usize) -> Self {
        self.prefetch = messages;
        self
    }

    /// Tells the command the message's id.
    pub fn tell_id(mut self) -> Self {
        self.tell_id = true;
        self
    }

    /// What is done with messages that are given up.
    pub fn give_up(mut self, give_up: GiveUp) -> Self {
        self.give_up = give_up;
        self
    }

    /// Gives a message up after so many deliveries.
    pub fn max_deliveries(mut self, deliveries: u32) -> Self {
        self.max_deliveries = Some(deliveries);
        self
    }
}

impl PoolLoopOptions {
    fn policy(&self) -> DeadLetterPolicy {
        let mut policy = DeadLetterPolicy::default();
        policy.max_deliveries = self.max_deliveries;
        policy.include.extend(self.give_up_on.iter().cloned());
        let pause = |time: Option<u64>, usual| time.map_or(usual, Duration::from_millis);
        policy.backoff.first = pause(self.backoff_ms, policy.backoff.first);
        policy.backoff.longest =
            pause(self.longest_backoff_ms, policy.backoff.longest).max(policy.backoff.first);
        policy
    }
}

/// A loop that calls a command of a pool with each message of a mailbox, and replies with its value.
///
/// While the pool has no worker, nothing is received, and what was received waits for one: a message that no worker has begun is
/// not given up for that, however long it takes, unless the policy [includes](DeadLetterPolicy::include) the error by its name.
#[derive(Debug)]
pub struct PoolLoop {
    engine: Engine,
    pool: String,
    command: String,
    visibility_timeout: Option<Duration>,
    wait: Option<Duration>,
}

impl PoolLoop {
    /// Such a loop. A pool that is not there is refused, and so is a command that the pool's workers do not serve.
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
            let wanted = options.pool.as_deref().unwrap_or("at all");
            let known = nearest::hint(wanted, pit.pools().iter().map(PoolRef::name));
            let reason = format!("there is no pool {wanted}; {known}");
            return Err(LoopError::Failed { name, reason });
        };
        let commands = pool.commands();
        if tells_its_commands(&pool) && !commands.contains(&options.command) {
            let known = nearest::hint(&options.command, commands.iter().map(String::as_str));
            let reason =
                format!("the workers of pool {} have no command {}; {known}", pool.name(), options.command);
            return Err(LoopError::Failed { name, reason });
        }
        let places: usize = pool.status().workers.iter().map(|worker| worker.concurrency).sum();
        let control = Control::new(name);
        let (stuck_pool, stuck_command) = (pool.clone(), options.command.clone());
        control.tell_stacks(move || {
            let (pool, command) = (stuck_pool.clone(), stuck_command.clone());
            Box::pin(async move { pool.stacks_at(Some(&command)).await })
        });
        let door = Door::new(&pool);
        Ok(Self {
            engine: Engine {
                work: work(&control, &pool, &door, options),
                door: Some(door),
                control,
                mailbox,
                rules: Arc::new(Rules {
                    policy: options.policy(),
                    give_up: options.give_up,
                    replies: options.reply,
                }),
                concurrency: options.concurrency.map_or(Concurrency::AtLeast(places * 2), Concurrency::Fixed),
                prefetch: options.prefetch,
            },
            pool: pool.name().to_owned(),
            command: options.command.clone(),
            visibility_timeout: options.visibility_timeout_ms.map(Duration::from_millis),
            wait: options.wait_ms.map(Duration::from_millis),
        })
    }

    /// Where its messages come from.
    pub fn mailbox(&self) -> &Arc<dyn Mailbox> {
        &self.engine.mailbox
    }

    /// The name of the pool that it calls.
    pub fn pool(&self) -> &str {
        &self.pool
    }

    /// The command that it calls.
    pub fn command(&self) -> &str {
        &self.command
    }

    /// What becomes of messages whose calls failed. Without a limit of deliveries that of the options holds.
    pub fn policy(mut self, mut policy: DeadLetterPolicy) -> Self {
        let rules = Arc::make_mut(&mut self.engine.rules);
        policy.max_deliveries = policy.max_deliveries.or(rules.policy.max_deliveries);
        rules.policy = policy;
        self
    }
}

/// Whether it has a worker of our SDK, which tells all of its commands; of others some may be known only when they are called.
fn tells_its_commands(pool: &PoolRef) -> bool {
    pool.shared.scheduler().berths().any(|berth| !berth.handle.introduction().sdk.is_empty())
}

fn work(control: &Control, pool: &PoolRef, door: &Door, options: &PoolLoopOptions) -> super::engine::Work {
    let (control, pool, door) = (control.clone(), pool.clone(), Arc::new(door.clone()));
    let command = options.command.clone();
    let timeout = options.call_timeout_ms.map(Duration::from_millis);
    let tells_id = options.tell_id;
    Arc::new(move |message: &Message| {
        let args = match message.read::<serde_json::Value>() {
            Ok(args @ (serde_json::Value::Object(_) | serde_json::Value::Array(_))) => args,
            Ok(single) => serde_json::Value::Array(vec![single]),
            Err(error) => return Box::pin(std::future::ready(Outcome::Undecodable(error.to_string()))),
        };
        let mut call = pool.call::<Value>(&command, args);
        if tells_id {
            call = call.metadata("message", message.id.to_string());
        }
        if let Some(timeout) = timeout {
            call = call.timeout(timeout);
        }
        let asks = message.wants_reply();
        let (control, door, beats) = (control.clone(), Arc::clone(&door), Beats::current());
        Box::pin(async move {
            let mut waiting = match call.begin() {
                Ok(waiting) => waiting,
                Err(error) => return failed(error),
            };
            let entered = door.enter(waiting.way_back());
            // It may have come too late for whoever takes back what is inside.
            if !control.wanted().receives() {
                door.take_back();
            }
            let answered = answer(&mut waiting, beats).await;
            if answered.is_err() && entered.is_taken_back() {
                let failure = Failure::new("TakenBack", "no worker had begun it when the loop was to end");
                return Outcome::NotBegun { failure, again_in: Duration::ZERO };
            }
            match answered {
                Ok(_) if !asks => Outcome::Done(None),
                Ok(value) => match body(&value) {
                    Ok(body) => Outcome::Done(Some(body)),
                    Err(error) => Outcome::Unanswerable(error.to_string()),
                },
                Err(error) => failed(error),
            }
        })
    })
}

/// Each progress that the worker tells shows that its message makes some, too.
async fn answer(waiting: &mut Waiting, beats: Option<Beats>) -> Result<Value, CallError> {
    let progress = |_| {
        if let Some(beats) = &beats {
            beats.beat();
        }
    };
    let value = waiting.value_with_progress(progress).await?;
    let read = value.decode();
    read.map_err(|source| CallError::Result { command: waiting.command.name.to_string(), source })
}

/// What an error of a call says about its message: nothing, if no worker was there to begin it.
fn failed(error: CallError) -> Outcome {
    let again_in = match &error {
        CallError::NoWorkers { .. }
        | CallError::QueueTimeout { .. }
        | CallError::Saturated { .. }
        | CallError::Stopped => Duration::ZERO,
        CallError::CircuitOpen { retry_in, .. } => *retry_in,
        _ => return Outcome::Failed(error.into()),
    };
    Outcome::NotBegun { failure: error.into(), again_in }
}

impl Runnable for PoolLoop {
    fn control(&self) -> &Control {
        &self.engine.control
    }

    fn run(&self, mut options: RunOptions) -> BoxFuture<'_, Result<(), LoopError>> {
        // What it was described with comes before what all loops of a group are run with.
        options.visibility_timeout = self.visibility_timeout.unwrap_or(options.visibility_timeout);
        options.wait = self.wait.unwrap_or(options.wait);
        Box::pin(self.engine.run(options))
    }
}
