//! Runs one command over many inputs, as fast as the workers can. Small inputs share a frame, and each has its own
//! outcome. Inputs are taken only as fast as outcomes are read.

mod chunk;
mod item;

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesOrdered, FuturesUnordered};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::call::CallError;
use crate::queue::PoolInner;
use crate::request::builder::{CallOptions, common_options};
use crate::sharded::ShardRef;
use crate::value::{Encoded, ValueBlock, ValueError};
use chunk::ChunkJob;

/// How much work one frame carries, if it is known how long the command takes.
const CHUNK: Duration = Duration::from_millis(4);
/// How much work one frame of quick inputs carries. A worker is sent the next frame while it has this one, so it never
/// waits for the host.
const QUICK_CHUNK: Duration = Duration::from_millis(2);
/// The first and the last frames of quick inputs are smaller, so that all workers begin early and end together. They
/// have at least this many inputs.
const FEW: usize = 512;
/// The number of input bytes at which a frame is full.
const CHUNK_BYTES: usize = 256 * 1024;

type Inputs = Box<dyn Iterator<Item = Result<Encoded, ValueError>> + Send>;

/// A map that is about to begin. See `Snakepit::map`.
///
/// ```no_run
/// use std::time::Duration;
///
/// use futures_util::TryStreamExt;
///
/// # async fn example(pit: snakepit::Snakepit) -> Result<(), snakepit::CallError> {
/// let texts = ["one", "two", "three"];
/// let lengths = pit.map::<usize, _>("length", texts).chunk(100).timeout(Duration::from_secs(10));
/// let lengths: Vec<usize> = lengths.in_order()?.try_collect().await?;
/// # Ok(()) }
/// ```
#[must_use = "a map begins with in_order() or as_they_come()"]
pub struct MapBuilder<T> {
    options: CallOptions,
    inputs: Inputs,
    chunk: Option<usize>,
    value: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned + Send + 'static> MapBuilder<T> {
    /// Describes calls of one command, one for each input.
    pub(crate) fn new<I>(pool: ShardRef<PoolInner>, command: &str, inputs: I) -> Self
    where
        I: IntoIterator<IntoIter: Send + 'static>,
        I::Item: Serialize,
    {
        let mut block = ValueBlock::default();
        let inputs = Box::new(inputs.into_iter().map(move |input| block.encode_args(&input)));
        Self { options: CallOptions::new(pool, command), inputs, chunk: None, value: PhantomData }
    }

    common_options!();

    /// Sets how many inputs travel together. By default, the map chooses the number. Their outcomes are delivered
    /// together, too, so the host may hold this many answers at a time, each as long as `max_frame` allows.
    pub fn chunk(mut self, inputs: usize) -> Self {
        self.chunk = Some(inputs.max(1));
        self
    }

    /// Returns the outcomes as a stream, in the order of the inputs.
    pub fn in_order(self) -> Result<MapInOrder<T>, CallError> {
        Ok(MapInOrder(Work::new(self, Running::InOrder(FuturesOrdered::new()))?))
    }

    /// Returns the outcomes as a stream, as they come, each with the number of its input.
    pub fn as_they_come(self) -> Result<MapAsTheyCome<T>, CallError> {
        Ok(MapAsTheyCome(Work::new(self, Running::AsTheyCome(FuturesUnordered::new()))?))
    }
}

/// The outcomes of a map, in the order of its inputs.
///
/// ```no_run
/// use futures_util::StreamExt;
///
/// # async fn example(pit: snakepit::Snakepit) -> Result<(), snakepit::CallError> {
/// let mut squares = pit.map::<i64, _>("square", 0..1000).in_order()?;
/// while let Some(square) = squares.next().await {
///     match square {
///         Ok(square) => println!("{square}"),
///         Err(error) => eprintln!("{error}"),
///     }
/// }
/// # Ok(()) }
/// ```
#[must_use = "a map does nothing unless it is read"]
pub struct MapInOrder<T>(Work<T>);

/// The outcomes of a map as they come, each with the number of its input.
///
/// ```no_run
/// use futures_util::StreamExt;
///
/// # async fn example(pit: snakepit::Snakepit) -> Result<(), snakepit::CallError> {
/// let mut squares = pit.map::<i64, _>("square", 0..1000).as_they_come()?;
/// while let Some((input, square)) = squares.next().await {
///     println!("the square of {input} is {}", square?);
/// }
/// # Ok(()) }
/// ```
#[must_use = "a map does nothing unless it is read"]
pub struct MapAsTheyCome<T>(Work<T>);

impl<T> Unpin for Work<T> {}

impl<T: DeserializeOwned + Send + 'static> Stream for MapInOrder<T> {
    type Item = Result<T, CallError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll(context).map(|next| next.map(|(_, outcome)| outcome))
    }
}

impl<T: DeserializeOwned + Send + 'static> Stream for MapAsTheyCome<T> {
    type Item = (usize, Result<T, CallError>);

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll(context)
    }
}

/// The outcomes of one chunk, and the number of its first input.
type ChunkResults<T> = (usize, Vec<Result<T, CallError>>);

enum Running<T> {
    InOrder(FuturesOrdered<BoxFuture<'static, ChunkResults<T>>>),
    AsTheyCome(FuturesUnordered<BoxFuture<'static, ChunkResults<T>>>),
}

impl<T> Running<T> {
    fn len(&self) -> usize {
        match self {
            Self::InOrder(chunks) => chunks.len(),
            Self::AsTheyCome(chunks) => chunks.len(),
        }
    }

    fn push(&mut self, chunk: BoxFuture<'static, ChunkResults<T>>) {
        match self {
            Self::InOrder(chunks) => chunks.push_back(chunk),
            Self::AsTheyCome(chunks) => chunks.push(chunk),
        }
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<ChunkResults<T>>> {
        match self {
            Self::InOrder(chunks) => chunks.poll_next_unpin(context),
            Self::AsTheyCome(chunks) => chunks.poll_next_unpin(context),
        }
    }
}

struct Work<T> {
    job: Arc<ChunkJob>,
    inputs: std::iter::Fuse<Inputs>,
    /// An input that was taken but not sent yet.
    next_input: Option<Result<Encoded, ValueError>>,
    chunk: Option<usize>,
    taken: usize,
    running: Running<T>,
    first: usize,
    outcomes: VecDeque<Result<T, CallError>>,
}

impl<T: DeserializeOwned + Send + 'static> Work<T> {
    fn new(mut map: MapBuilder<T>, running: Running<T>) -> Result<Self, CallError> {
        map.options.check_pool()?;
        map.options.note_chain()?;
        map.options.note_trace(&tracing::Span::none())?;
        let pool = map.options.pool;
        let job = ChunkJob {
            timeout: map.options.timeout.unwrap_or_else(|| pool.call_limits.call_timeout()),
            pool,
            command: map.options.command,
            priority: map.options.priority,
            idempotent: map.options.idempotent,
            extras: map.options.extras.map(|extras| *extras),
        };
        Ok(Self {
            job: Arc::new(job),
            inputs: map.inputs.fuse(),
            next_input: None,
            chunk: map.chunk,
            taken: 0,
            running,
            first: 0,
            outcomes: VecDeque::new(),
        })
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<(usize, Result<T, CallError>)>> {
        loop {
            if let Some(outcome) = self.outcomes.pop_front() {
                self.first += 1;
                return Poll::Ready(Some((self.first - 1, outcome)));
            }
            // One chunk at a time: a worker begins with it while the next one is prepared.
            let sent = self.send_chunk();
            match self.running.poll_next(context) {
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some((first, outcomes))) => {
                    self.first = first;
                    self.outcomes = outcomes.into();
                }
                Poll::Pending if sent => {}
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Returns how many inputs the next chunk has, and how many chunks there are for each worker at a time: one that it
    /// works on, one that waits for it, and of quick inputs also those that keep the others busy if one of these is
    /// late.
    fn chunk_plan(&self, workers: usize) -> (usize, usize) {
        if !self.job.sends_many() {
            return (1, 2);
        }
        // A batch command gets as many inputs as its function takes at a time. While nothing is known about another
        // command, chunks of one input teach enough.
        if let Some(size) = self.chunk.or_else(|| self.job.command.batch()) {
            return (size, 2);
        }
        let estimate = &self.job.command.estimate;
        if !estimate.is_quick() {
            return (estimate.fits_into(CHUNK), 2);
        }
        let begun = self.taken / workers;
        let left = self.inputs.size_hint().1.map_or(usize::MAX, |left| left / (2 * workers));
        (estimate.fits_into(QUICK_CHUNK).min(begun.min(left).max(FEW)), 3)
    }

    /// Sends the next chunk, if there are inputs and not enough chunks under way. Returns whether it was sent.
    fn send_chunk(&mut self) -> bool {
        let workers = self.job.pool.scheduler().workers().count().max(1);
        let (size, each) = self.chunk_plan(workers);
        if self.running.len() >= each * workers {
            return false;
        }
        let mut inputs = Vec::with_capacity(size.min(1024));
        let mut bytes = 0;
        let first = self.taken;
        let most = CHUNK_BYTES.min(self.job.pool.call_limits.max_frame() / 4);
        while inputs.len() < size && bytes < most {
            let Some(input) = self.next_input.take().or_else(|| self.inputs.next()) else { break };
            let length = input.as_ref().map_or(0, Encoded::payload_len);
            if length > most && !inputs.is_empty() {
                // A large input travels alone: together with others it might be too large.
                self.next_input = Some(input);
                break;
            }
            bytes += length;
            inputs.push(input);
            self.taken += 1;
        }
        if inputs.is_empty() {
            return false;
        }
        let job = Arc::clone(&self.job);
        self.running.push(async move { (first, job.run(inputs).await) }.boxed());
        true
    }
}
