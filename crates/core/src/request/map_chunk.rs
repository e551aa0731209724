//! Some inputs of a map, which travel together: sent, answered each by itself, and sent again as far as they may be.
//!
//! A frame counts as one call where retries are paid for: it is about as much work. What was lost with it is sent
//! again in two frames, the input that its worker died of alone, so that the others do not die of it again.
//!
//! A batch command is given its inputs as lists, and nobody knows which of a list its worker died of. So each of them is
//! sent once more by itself, as the command allows: that is no retry yet. What is lost alone is lost as any other.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::batch_item::BatchItem;
use super::pending::{CallPlan, PendingCall};
use super::retry::explain;
use super::telemetry::tell_refusal;
use crate::call::PoolCommand;
use crate::call::batch::no_outcome;
use crate::call::{CallError, Extras, Input, RemoteError};
use crate::pool::{self, CallOutcome};
use crate::queue::AdmissionPermit;
use crate::telemetry::{Event, Level, emit_with};
use crate::value::{Encoded, Value, ValueError};
use snakepit_policy::NoRetry;
use snakepit_policy::time::after;

/// How a frame ended; if it failed, how many of its inputs were started, if that is known.
type ChunkEnd = Result<(), (CallError, Option<usize>)>;

/// What all chunks of a map have in common.
pub(super) struct ChunkJob {
    pub(super) pool: Arc<pool::PoolInner>,
    pub(super) command: Arc<PoolCommand>,
    pub(super) timeout: Duration,
    pub(super) priority: i8,
    pub(super) idempotent: bool,
    pub(super) extras: Option<Extras>,
}

impl ChunkJob {
    /// Whether inputs travel together. Nested calls are served inside others, one at a time.
    pub(super) fn sends_many(&self) -> bool {
        let nested = self.extras.as_ref().is_some_and(|extras| extras.chain.is_some());
        self.pool.takes_many() && !nested
    }

    /// The outcomes of some inputs, in their order.
    pub(super) async fn run<T: DeserializeOwned>(
        &self,
        inputs: Vec<Result<Encoded, ValueError>>,
    ) -> Vec<Result<T, CallError>> {
        let (began, count) = (Instant::now(), inputs.len());
        let mut chunk = Chunk::new(self, inputs);
        while chunk.get_ready().await {
            let Some(frame) = chunk.frames.front_mut() else { break };
            let began = *frame.began.get_or_insert_with(Instant::now);
            let inputs = frame.inputs.iter().map(|it| it.input.clone()).collect();
            let alone = frame.inputs.iter().any(|one| one.permit.is_trial());
            let (parts, end, waiting) = self.send(inputs, began, alone).await;
            chunk.take_in(&parts, end);
            if let Some(waiting) = waiting.filter(|_| std::mem::take(&mut chunk.has_failed)) {
                waiting.tell_output();
            }
        }
        let outcomes: Vec<_> = std::mem::take(&mut chunk.outcomes).into_iter().flatten().collect();
        emit_with(Level::Debug, || Event::MapChunk {
            pool: Arc::clone(&self.pool.name),
            command: Arc::clone(&self.command.name),
            inputs: count,
            failed: outcomes.iter().filter(|outcome| outcome.is_err()).count(),
            took: began.elapsed(),
        });
        outcomes
    }

    /// The answers that came, in the order of the inputs, how it ended, and the call that it was, if it was one.
    async fn send(
        &self,
        mut inputs: Vec<Encoded>,
        began: Instant,
        alone: bool,
    ) -> (Vec<Encoded>, ChunkEnd, Option<PendingCall>) {
        let many = self.sends_many();
        let input = if many { Input::Many(inputs) } else { Input::One(inputs.remove(0)) };
        let extras = self.extras.as_ref().map(|extras| Box::new(extras.again()));
        let plan = CallPlan {
            command: Arc::clone(&self.command),
            input,
            timeout: self.timeout,
            // It is its own queue: what has been sent is bounded, and the rest waits for it.
            queue_timeout: self.timeout,
            priority: self.priority,
            extras,
            began: Some(began),
            alone,
        };
        let mut waiting = match PendingCall::begin_bulk(Arc::clone(&self.pool), plan) {
            Ok(waiting) => waiting,
            Err(error) => return (Vec::new(), Err((error, None)), None),
        };
        if many {
            let (parts, end) = waiting.values().await;
            return (parts, end, Some(waiting));
        }
        let wrong = |source| CallError::Result { command: self.command.name.to_string(), source };
        let entry = waiting.value().await.and_then(|value| {
            value.to_value().and_then(|value| Encoded::encode(&vec![(true, value)])).map_err(wrong)
        });
        match entry {
            Ok(entry) => (vec![entry], Ok(()), Some(waiting)),
            Err(error) => (Vec::new(), Err((error, None)), Some(waiting)),
        }
    }

    /// The outcomes in one part of an answer, of which `most` are wanted.
    fn split<T: DeserializeOwned>(&self, values: &Encoded, most: usize) -> Vec<Result<T, CallError>> {
        if let Ok(entries) = values.decode::<Vec<BatchItem<T>>>() {
            return entries
                .into_iter()
                .map(|entry| entry.0.map_err(|error| CallError::Remote(Box::new(error))))
                .collect();
        }
        // ChunkInput of them is not what the caller expects: each by itself, so that the others keep their values.
        let wrong = |source| CallError::Result { command: self.command.name.to_string(), source };
        match values.decode::<Vec<BatchItem<Value>>>() {
            Ok(entries) => entries
                .into_iter()
                .map(|entry| match entry.0 {
                    Ok(value) => Encoded::encode(&value).and_then(|value| value.decode()).map_err(wrong),
                    Err(error) => Err(CallError::Remote(Box::new(error))),
                })
                .collect(),
            Err(source) => {
                let expected = values.list_len().map_or(most, |entries| entries.min(most));
                (0..expected).map(|_| Err(wrong(source.clone()))).collect()
            }
        }
    }
}

/// The inputs of one chunk, until each has its outcome.
struct Chunk<'a, T> {
    job: &'a ChunkJob,
    outcomes: Vec<Option<Result<T, CallError>>>,
    /// What is under way is in front, and stays until its end is known.
    frames: VecDeque<ChunkFrame>,
    /// The command's code has failed for an input since somebody looked.
    has_failed: bool,
}

/// One input under way.
struct ChunkInput {
    /// Its place in the chunk.
    at: usize,
    input: Encoded,
    permit: AdmissionPermit,
}

/// Inputs that travel together.
struct ChunkFrame {
    inputs: Vec<ChunkInput>,
    attempt: u32,
    /// When the time of its inputs began.
    began: Option<Instant>,
    turn: ChunkTurn,
}

/// Why a frame is sent.
enum ChunkTurn {
    /// It was not lost before.
    First,
    /// It was lost together with others, in this way.
    Alone(CallError),
    /// It was lost in this way, and is made again then.
    Again(CallError, Instant),
}

impl ChunkFrame {
    /// Inputs that were not sent before.
    fn of(inputs: Vec<ChunkInput>) -> Self {
        Self { inputs, attempt: 1, began: None, turn: ChunkTurn::First }
    }

    /// What an error means to inputs that may have been lost before.
    fn explain(&self, error: CallError) -> CallError {
        match &self.turn {
            ChunkTurn::First => error,
            ChunkTurn::Alone(last) => explain(Some(last), self.attempt, error),
            ChunkTurn::Again(last, _) => explain(Some(last), self.attempt - 1, error),
        }
    }
}

impl<'a, T: DeserializeOwned> Chunk<'a, T> {
    fn new(job: &'a ChunkJob, inputs: Vec<Result<Encoded, ValueError>>) -> Self {
        let outcomes = Vec::with_capacity(inputs.len());
        let mut chunk = Self { job, outcomes, frames: VecDeque::new(), has_failed: false };
        let mut good = Vec::with_capacity(inputs.len());
        for (at, input) in inputs.into_iter().enumerate() {
            let admitted = match input {
                Ok(input) => {
                    job.pool.admit(&job.command, &input).map(|permit| ChunkInput { at, input, permit })
                }
                Err(source) => Err(CallError::Arguments { command: job.command.name.to_string(), source }),
            };
            match admitted {
                Ok(one) => {
                    chunk.outcomes.push(None);
                    if one.permit.is_trial() {
                        chunk.frames.push_back(ChunkFrame::of(vec![one]));
                    } else {
                        good.push(one);
                    }
                }
                Err(error) => {
                    job.pool.count_refused(&error);
                    tell_refusal(&job.pool, &job.command, &error);
                    chunk.outcomes.push(Some(Err(error)));
                }
            }
        }
        if !good.is_empty() {
            chunk.frames.push_front(ChunkFrame::of(good));
        }
        if job.idempotent && !chunk.frames.is_empty() {
            job.pool.deposit_for_retries();
        }
        chunk
    }

    /// Until the first frame may be sent; whether there is one.
    async fn get_ready(&mut self) -> bool {
        while let Some(frame) = self.frames.front() {
            match &frame.turn {
                ChunkTurn::First => return true,
                ChunkTurn::Alone(_) => {}
                ChunkTurn::Again(_, due) => tokio::time::sleep_until(*due).await,
            }
            self.admit_again();
            if self.frames.front().is_some_and(|frame| !frame.inputs.is_empty()) {
                return true;
            }
            self.frames.pop_front();
        }
        false
    }

    /// The inputs of the first frame come in again, as far as they may.
    fn admit_again(&mut self) {
        let Some(mut frame) = self.frames.pop_front() else { return };
        let inputs = std::mem::take(&mut frame.inputs);
        let (pool, command) = (&self.job.pool, &self.job.command);
        for mut one in inputs {
            let refused = match &frame.turn {
                ChunkTurn::First => None,
                // As the same call it has its permit still.
                ChunkTurn::Alone(last) => pool
                    .refuses(command, &one.input)
                    .map(|_| last.clone().given_up(frame.attempt, NoRetry::Quarantined)),
                ChunkTurn::Again(last, _) => match pool.admit_again(command, &one.input, frame.attempt) {
                    Ok(permit) => {
                        one.permit = permit;
                        None
                    }
                    Err(why) => Some(last.clone().given_up(frame.attempt - 1, why)),
                },
            };
            match refused {
                // On trial, and let in: it travels by itself.
                None if one.permit.is_trial() && !frame.inputs.is_empty() => {
                    let (attempt, began) = (frame.attempt, frame.began);
                    self.frames.push_back(ChunkFrame {
                        inputs: vec![one],
                        attempt,
                        began,
                        turn: ChunkTurn::First,
                    });
                }
                None => frame.inputs.push(one),
                Some(error) => self.settle(one, Err(error)),
            }
        }
        self.frames.push_front(frame);
    }

    /// The first frame has ended.
    fn take_in(&mut self, parts: &[Encoded], end: ChunkEnd) {
        let Some(mut frame) = self.frames.pop_front() else { return };
        let all = frame.inputs.len();
        let mut left = std::mem::take(&mut frame.inputs).into_iter();
        for part in parts {
            let outcomes = self.job.split::<T>(part, left.len());
            for (one, outcome) in left.by_ref().take(outcomes.len()).zip(outcomes) {
                self.settle(one, outcome);
            }
        }
        let answered = all - left.len();
        let (error, started) = match end {
            Ok(()) => {
                let missing = || Err(CallError::Remote(Box::new(no_outcome())));
                return left.for_each(|one| self.settle(one, missing()));
            }
            Err(failed) => failed,
        };
        let failed = started.unwrap_or(all).clamp(answered.max(1), all) - answered;
        let lost: Vec<ChunkInput> = left.by_ref().take(failed).collect();
        let rest: Vec<ChunkInput> = left.collect();
        // Of the first attempt, the time begins anew.
        let (attempt, began) = (frame.attempt, frame.began.filter(|_| frame.attempt > 1));
        match error {
            CallError::WorkerDied { .. } if all > 1 && self.job.command.gathers() => {
                let alone = |one| ChunkFrame {
                    inputs: vec![one],
                    attempt,
                    began,
                    turn: ChunkTurn::Alone(error.clone()),
                };
                self.frames.extend(lost.into_iter().map(alone));
            }
            CallError::WorkerDied { .. } if self.job.idempotent => self.lose(&frame, lost, started, &error),
            error => {
                let error = frame.explain(error);
                for one in lost {
                    self.settle(one, Err(error.clone()));
                }
            }
        }
        if !rest.is_empty() {
            // What a dead worker had not started is done by another one.
            self.frames.push_front(ChunkFrame { inputs: rest, attempt, began, turn: ChunkTurn::First });
        }
    }

    /// Inputs are lost with their worker: they are made again as far as they may be.
    fn lose(
        &mut self,
        frame: &ChunkFrame,
        mut lost: Vec<ChunkInput>,
        started: Option<usize>,
        error: &CallError,
    ) {
        let job = self.job;
        let killer = if started.is_some() { lost.pop().map(|one| vec![one]) } else { None };
        for mut inputs in [Some(lost), killer].into_iter().flatten().filter(|inputs| !inputs.is_empty()) {
            for one in &mut inputs {
                job.pool.attempt_lost(&job.command, &mut one.permit);
            }
            let now = Instant::now();
            let deadline = after(frame.began.unwrap_or(now), job.timeout);
            match job.pool.decide_retry(frame.attempt, deadline) {
                Ok(pause) => self.frames.push_back(ChunkFrame {
                    inputs,
                    attempt: frame.attempt + 1,
                    began: frame.began,
                    turn: ChunkTurn::Again(error.clone(), now + pause),
                }),
                Err(why) => {
                    let error = error.clone().given_up(frame.attempt, why);
                    for one in inputs {
                        self.settle(one, Err(error.clone()));
                    }
                }
            }
        }
    }
}

impl<T> Chunk<'_, T> {
    fn settle(&mut self, one: ChunkInput, answer: Result<T, CallError>) {
        let error = answer.as_ref().err();
        self.has_failed |= error.and_then(CallError::remote).is_some_and(RemoteError::has_run);
        let outcome = error.map_or(CallOutcome::Ok, CallOutcome::of);
        self.job.pool.settle(&self.job.command, one.permit, outcome);
        self.outcomes[one.at] = Some(answer);
    }
}

impl<T> Drop for Chunk<'_, T> {
    fn drop(&mut self) {
        for one in self.frames.drain(..).flat_map(|frame| frame.inputs) {
            self.job.pool.settle(&self.job.command, one.permit, CallOutcome::Cancelled);
        }
    }
}
