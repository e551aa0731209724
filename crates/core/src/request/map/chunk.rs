//! A chunk of a map: inputs that travel together. Each has its own outcome, and lost inputs are sent again if they may
//! be.
//!
//! The retry budget counts a frame as one call, because it is about as much work. Inputs that were lost with a frame
//! are sent again in two frames. The input that the worker died of goes alone, so that the others do not die of it
//! again.
//!
//! A batch command gets its inputs as lists, and it is unknown which input of a list the worker died of. So each input
//! is sent once more alone, which a batch command must allow. That is not a retry yet. An input that is lost alone is
//! treated like any other lost call.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::item::BatchItem;
use crate::call::PoolCommand;
use crate::call::batch::{no_outcome, split};
use crate::call::{CallError, Extras, Input, has_run};
use crate::queue::AdmissionPermit;
use crate::queue::{CallOutcome, PoolInner};
use crate::request::attempts::Attempts;
use crate::request::pending::{CallPlan, PendingCall};
use crate::request::telemetry::tell_refusal;
use crate::sharded::ShardRef;
use crate::telemetry::{Event, Level, emit_with};
use crate::value::{Encoded, ValueError};

/// How a frame ended. If it failed: how many of its inputs were started, if known.
type ChunkEnd = Result<(), (CallError, Option<usize>)>;

/// What all chunks of a map share.
pub(super) struct ChunkJob {
    pub(super) pool: ShardRef<PoolInner>,
    pub(super) command: ShardRef<PoolCommand>,
    pub(super) timeout: Duration,
    pub(super) priority: i8,
    pub(super) idempotent: bool,
    pub(super) extras: Option<Extras>,
}

impl ChunkJob {
    /// Reports whether inputs travel together. Nested calls do not: they are served inside other calls, one at a time.
    pub(super) fn sends_many(&self) -> bool {
        let nested = self.extras.as_ref().is_some_and(|extras| extras.chain.is_some());
        self.pool.takes_many() && !nested
    }

    /// Runs the command for some inputs. Returns their outcomes in the same order.
    pub(super) async fn run<T: DeserializeOwned>(
        &self,
        inputs: Vec<Result<Encoded, ValueError>>,
    ) -> Vec<Result<T, CallError>> {
        let (began, count) = (Instant::now(), inputs.len());
        let outcomes = match PlainInputs::new(self, inputs) {
            Ok(plain) => plain.run(began).await,
            Err(inputs) => Chunk::new(self, inputs).run().await,
        };
        emit_with(Level::Debug, || Event::MapChunk {
            pool: Arc::clone(&self.pool.name),
            command: Arc::clone(&self.command.name),
            inputs: count,
            failed: outcomes.iter().filter(|outcome| outcome.is_err()).count(),
            took: began.elapsed(),
        });
        outcomes
    }

    /// Sends one frame. Returns the answers that came, in the order of the inputs, how the frame ended, and its call,
    /// if it became one.
    async fn send(
        &self,
        mut inputs: Vec<Encoded>,
        began: Instant,
        alone: bool,
    ) -> (Vec<Encoded>, ChunkEnd, Option<PendingCall>) {
        let input = if self.sends_many() { Input::Many(inputs) } else { Input::One(inputs.remove(0)) };
        let extras = self.extras.as_ref().map(|extras| Box::new(extras.again()));
        // A map limits what it sends, and repeats inputs itself. So its calls may wait in the queue, and none is
        // repeated there.
        let plan = CallPlan {
            priority: self.priority,
            extras,
            began: Some(began),
            alone,
            ..CallPlan::new(self.command.clone(), input, self.timeout)
        };
        let mut waiting = match PendingCall::begin_bulk(self.pool.clone(), plan) {
            Ok(waiting) => waiting,
            Err(error) => return (Vec::new(), Err((error, None)), None),
        };
        let (parts, end) = waiting.values().await;
        (parts, end, Some(waiting))
    }

    /// Decodes the outcomes in one part of an answer. `most` is the number of inputs that still wait for one.
    fn decode<T: DeserializeOwned>(&self, part: &Encoded, most: usize) -> Vec<Result<T, CallError>> {
        let decode = |value: &Encoded| {
            let wrong = |source| CallError::Result { command: self.command.name.to_string(), source };
            value.decode().map_err(wrong)
        };
        if !self.sends_many() {
            return vec![decode(part)];
        }
        if let Ok(entries) = part.decode::<Vec<BatchItem<T>>>() {
            let remote = |error| CallError::Remote(Box::new(error));
            return entries.into_iter().map(|entry| entry.0.map_err(remote)).collect();
        }
        // Some value is not what the caller expects. Decoding one by one keeps the values of the others.
        let outcomes = split(part, &self.command, most).into_iter();
        outcomes.map(|outcome| outcome.and_then(|value| decode(&value))).collect()
    }
}

/// The inputs of a chunk that need no care of their own: each is admitted without a look at it. Nearly all chunks are
/// like this, and nearly all are answered whole, so an input costs no more than its bytes and its outcome. A chunk that
/// is not answered whole becomes a [`Chunk`].
struct PlainInputs<'a> {
    job: &'a ChunkJob,
    inputs: Vec<Encoded>,
}

impl<'a> PlainInputs<'a> {
    /// Returns the inputs themselves if some of them need care.
    fn new(
        job: &'a ChunkJob,
        inputs: Vec<Result<Encoded, ValueError>>,
    ) -> Result<Self, Vec<Result<Encoded, ValueError>>> {
        if !job.sends_many() || !job.pool.admits_all() || inputs.iter().any(Result::is_err) {
            return Err(inputs);
        }
        if job.idempotent {
            job.pool.deposit_for_retries();
        }
        Ok(Self { job, inputs: inputs.into_iter().flatten().collect() })
    }

    async fn run<T: DeserializeOwned>(mut self, began: Instant) -> Vec<Result<T, CallError>> {
        let (parts, end, waiting) = self.job.send(self.inputs.clone(), began, false).await;
        let is_whole = end.is_ok()
            && parts.iter().try_fold(0, |all, part| Some(all + part.list_len().ok()?))
                == Some(self.inputs.len());
        if !is_whole {
            let mut chunk = Chunk::sent(self.job, std::mem::take(&mut self.inputs), began);
            chunk.take_in(&parts, end);
            chunk.tell_output(waiting);
            return chunk.run().await;
        }
        let mut left = self.inputs.len();
        let mut outcomes = Vec::with_capacity(left);
        for part in &parts {
            outcomes.extend(self.job.decode(part, left));
            left = self.inputs.len().saturating_sub(outcomes.len());
        }
        self.inputs.clear();
        self.settle(&outcomes, waiting);
        outcomes
    }

    /// Counts the outcomes, and tells what the worker printed if some of its code has failed.
    fn settle<T>(&self, outcomes: &[Result<T, CallError>], waiting: Option<PendingCall>) {
        let (mut failed, mut has_failed) = (0, false);
        for error in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
            failed += 1;
            has_failed |= error.remote().is_some_and(has_run);
            self.job.pool.settle_all(1, CallOutcome::of(error));
        }
        self.job.pool.settle_all(outcomes.len() - failed, CallOutcome::Ok);
        if let Some(waiting) = waiting.filter(|_| has_failed) {
            waiting.tell_output();
        }
    }
}

impl Drop for PlainInputs<'_> {
    fn drop(&mut self) {
        if !self.inputs.is_empty() {
            self.job.pool.settle_all(self.inputs.len(), CallOutcome::Cancelled);
        }
    }
}

/// The inputs of one chunk, until each has its outcome.
struct Chunk<'a, T> {
    job: &'a ChunkJob,
    outcomes: Vec<Option<Result<T, CallError>>>,
    /// The first frame is under way, and stays here until its end is known.
    frames: VecDeque<ChunkFrame>,
    /// Whether the command's code has failed for an input since the last check.
    has_failed: bool,
}

/// One input under way.
struct ChunkInput {
    /// The index of the input in the chunk.
    at: usize,
    input: Encoded,
    permit: AdmissionPermit,
}

/// Inputs that travel together in one frame.
struct ChunkFrame {
    inputs: Vec<ChunkInput>,
    attempts: Attempts,
}

impl<'a, T: DeserializeOwned> Chunk<'a, T> {
    fn new(job: &'a ChunkJob, inputs: Vec<Result<Encoded, ValueError>>) -> Self {
        let outcomes = Vec::with_capacity(inputs.len());
        let mut chunk = Self { job, outcomes, frames: VecDeque::new(), has_failed: false };
        let mut good = Vec::with_capacity(inputs.len());
        let first = || Attempts::first(None, job.timeout);
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
                        chunk.frames.push_back(ChunkFrame { inputs: vec![one], attempts: first() });
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
            chunk.frames.push_front(ChunkFrame { inputs: good, attempts: first() });
        }
        if job.idempotent && !chunk.frames.is_empty() {
            job.pool.deposit_for_retries();
        }
        chunk
    }

    /// Creates a chunk whose inputs were sent together at this time, and have no answer yet.
    fn sent(job: &'a ChunkJob, inputs: Vec<Encoded>, began: Instant) -> Self {
        let outcomes = std::iter::repeat_with(|| None).take(inputs.len()).collect();
        let with_permit = |(at, input)| ChunkInput { at, input, permit: AdmissionPermit::default() };
        let inputs = inputs.into_iter().enumerate().map(with_permit).collect();
        let frame = ChunkFrame { inputs, attempts: Attempts::first(Some(began), job.timeout) };
        Self { job, outcomes, frames: [frame].into(), has_failed: false }
    }

    /// Sends what is left until each input has its outcome. Returns the outcomes in the order of the inputs.
    async fn run(mut self) -> Vec<Result<T, CallError>> {
        while self.get_ready().await {
            let Some(frame) = self.frames.front_mut() else { break };
            let began = frame.attempts.begin();
            let inputs = frame.inputs.iter().map(|it| it.input.clone()).collect();
            let alone = frame.inputs.iter().any(|one| one.permit.is_trial());
            let (parts, end, waiting) = self.job.send(inputs, began, alone).await;
            self.take_in(&parts, end);
            self.tell_output(waiting);
        }
        std::mem::take(&mut self.outcomes).into_iter().flatten().collect()
    }

    /// Tells what the worker printed if some of its code has failed since the last time.
    fn tell_output(&mut self, waiting: Option<PendingCall>) {
        if let Some(waiting) = waiting.filter(|_| std::mem::take(&mut self.has_failed)) {
            waiting.tell_output();
        }
    }

    /// Waits until the first frame may be sent. Returns whether there is one.
    async fn get_ready(&mut self) -> bool {
        while let Some(frame) = self.frames.front() {
            if frame.attempts.is_ready() {
                return true;
            }
            frame.attempts.due().await;
            self.admit_first();
        }
        false
    }

    /// Admits the inputs of the first frame again. An input that is rejected ends with an error.
    fn admit_first(&mut self) {
        let Some(ChunkFrame { inputs, attempts }) = self.frames.pop_front() else { return };
        let mut admitted = attempts.clone();
        admitted.admitted();
        let mut together = Vec::with_capacity(inputs.len());
        for mut one in inputs {
            match attempts.admit(&self.job.pool, &self.job.command, &one.input, &mut one.permit) {
                // An input on trial travels alone.
                Ok(()) if one.permit.is_trial() && !together.is_empty() => {
                    self.frames.push_back(ChunkFrame { inputs: vec![one], attempts: admitted.clone() });
                }
                Ok(()) => together.push(one),
                Err(error) => self.settle(one, Err(error)),
            }
        }
        if !together.is_empty() {
            self.frames.push_front(ChunkFrame { inputs: together, attempts: admitted });
        }
    }

    /// Settles the inputs of the first frame, which has ended, or prepares them to be sent again.
    fn take_in(&mut self, parts: &[Encoded], end: ChunkEnd) {
        let Some(ChunkFrame { inputs, attempts }) = self.frames.pop_front() else { return };
        let all = inputs.len();
        let mut left = inputs.into_iter();
        for part in parts {
            let outcomes = self.job.decode::<T>(part, left.len());
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
        // Another worker does what the dead one had not started.
        let rest = ChunkFrame { inputs: rest, attempts: attempts.not_begun() };
        match error {
            CallError::WorkerDied { .. } if all > 1 && self.job.command.gathers() => {
                let alone = attempts.alone(error);
                let alone = |one| ChunkFrame { inputs: vec![one], attempts: alone.clone() };
                self.frames.extend(lost.into_iter().map(alone));
            }
            CallError::WorkerDied { .. } if self.job.idempotent => {
                self.lose(&attempts, lost, started, &error);
            }
            error => {
                let error = attempts.explain(error);
                for one in lost {
                    self.settle(one, Err(error.clone()));
                }
            }
        }
        if !rest.inputs.is_empty() {
            self.frames.push_front(rest);
        }
    }

    /// Prepares inputs that were lost with their worker to be sent again, or ends them with an error.
    fn lose(
        &mut self,
        attempts: &Attempts,
        mut lost: Vec<ChunkInput>,
        started: Option<usize>,
        error: &CallError,
    ) {
        let job = self.job;
        let killer = if started.is_some() { lost.pop().map(|one| vec![one]) } else { None };
        for mut inputs in [Some(lost), killer].into_iter().flatten().filter(|inputs| !inputs.is_empty()) {
            let permits = inputs.iter_mut().map(|one| &mut one.permit);
            let mut attempts = attempts.clone();
            attempts.lose(&job.pool, &job.command, permits, error.clone());
            match attempts.repeat(&job.pool) {
                Ok(()) => self.frames.push_back(ChunkFrame { inputs, attempts }),
                Err(error) => {
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
        self.has_failed |= error.and_then(CallError::remote).is_some_and(has_run);
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
