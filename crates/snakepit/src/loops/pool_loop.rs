//! From a mailbox to a command of a pool, without a line of Rust between them: a value that a file can describe.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use super::door::Door;
use super::engine::Engine;
use super::settle::{GiveUp, Outcome, Replies, Rules};
use super::{Beats, Control, Failure, LoopError, RunOptions, Runnable};
use crate::call::waiting::Waiting;
use crate::mailbox::{DeadLetterPolicy, Mailbox, Message, body};
use crate::{CallError, PoolRef, Snakepit, Value};

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
    /// How many calls are made at the same time; twice what the pool's workers take unless it is set.
    #[serde(default)]
    pub concurrency: Option<usize>,
    /// How many more messages are received than calls can be made.
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

/// A loop that calls a command of a pool with each message of a mailbox, and replies with its value.
///
/// While the pool has no worker, nothing is received, and what was received waits for one: a message that no worker has begun is
/// not given up for that, however long it takes, unless the policy [includes](DeadLetterPolicy::include) the error by its name.
#[derive(Debug)]
pub struct PoolLoop {
    engine: Engine,
}

impl PoolLoop {
    /// Such a loop.
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
            let known: Vec<&str> = pit.pools().iter().map(PoolRef::name).collect();
            let wanted = options.pool.as_deref().unwrap_or("at all");
            let reason = format!("there is no pool {wanted}; there is {}", known.join(", "));
            return Err(LoopError::Failed { name, reason });
        };
        let places: usize = pool.status().workers.iter().map(|worker| worker.concurrency).sum();
        let control = Control::new(name);
        let (stuck_pool, stuck_command) = (pool.clone(), options.command.clone());
        control.tell_stacks(move || {
            let (pool, command) = (stuck_pool.clone(), stuck_command.clone());
            Box::pin(async move { pool.stacks_at(Some(&command)).await })
        });
        let door = Door::new(&pool);
        let policy =
            DeadLetterPolicy { max_deliveries: options.max_deliveries, ..DeadLetterPolicy::default() };
        Ok(Self {
            engine: Engine {
                work: work(&control, &pool, &door, options),
                door: Some(door),
                control,
                mailbox,
                rules: Arc::new(Rules { policy, give_up: options.give_up, replies: options.reply }),
                concurrency: options.concurrency.unwrap_or(places * 2).max(1),
                prefetch: options.prefetch,
            },
        })
    }

    /// What becomes of messages whose calls failed. Without a limit of deliveries that of the options holds.
    pub fn policy(mut self, mut policy: DeadLetterPolicy) -> Self {
        let rules = Arc::make_mut(&mut self.engine.rules);
        policy.max_deliveries = policy.max_deliveries.or(rules.policy.max_deliveries);
        rules.policy = policy;
        self
    }
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

    fn run(&self, options: RunOptions) -> BoxFuture<'_, Result<(), LoopError>> {
        Box::pin(self.engine.run(options))
    }
}
