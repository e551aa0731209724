//! Calls that answer with many values.
//!
//! Credit provides backpressure: the worker may send a number of items and bytes in advance, and gets more as they are
//! read. A slow reader therefore slows the generator down, and memory stays flat, whatever the size of an item.

use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::builder::{CallOptions, common_options};
use super::pending::{CallEvent, LateCall, PendingCall};
use crate::call::progress::CallEnd;
use crate::call::progress::Progress;
use crate::call::{CallError, Portion};
use crate::queue::{CallTimer, PoolInner};
use crate::sharded::ShardRef;
use crate::value::{Encoded, EncodedItems, ValueError};

/// How much a worker may send in advance, unless the caller sets it.
const CREDIT: Portion = Portion { items: 8192, bytes: 4 * 1024 * 1024 };

/// A stream that is about to be opened with [`StreamBuilder::open`].
///
/// ```no_run
/// use std::time::Duration;
///
/// use snakepit::args;
///
/// # async fn example(pit: snakepit::Snakepit) -> Result<(), snakepit::CallError> {
/// let tokens = pit
///     .stream::<String>("generate", args! { prompt: "Once upon a time" })
///     .credit(64)
///     .timeout(Duration::from_secs(120))
///     .open()?;
/// # Ok(()) }
/// ```
#[must_use = "a stream is opened with open()"]
pub struct StreamBuilder<T> {
    options: CallOptions,
    input: Result<Encoded, ValueError>,
    value: PhantomData<fn() -> T>,
}

impl<T> StreamBuilder<T> {
    /// Describes a call that answers with many values.
    pub(crate) fn new(pool: ShardRef<PoolInner>, command: &str, args: &(impl Serialize + ?Sized)) -> Self {
        let mut options = CallOptions::new(pool, command);
        options.extras().stream = Some(CREDIT);
        Self { options, input: Encoded::encode_args(args), value: PhantomData }
    }

    common_options!();

    /// Sets how many items the worker may send ahead of the reader. The default is 8192.
    pub fn credit(mut self, items: u32) -> Self {
        self.options.extras().stream.get_or_insert(CREDIT).items = items.max(1);
        self
    }

    /// Sets how many bytes the worker may send ahead of the reader. The default is 4 MiB. The unread bytes exceed it by
    /// less than one item, so a larger item passes, alone.
    pub fn credit_bytes(mut self, bytes: u64) -> Self {
        self.options.extras().stream.get_or_insert(CREDIT).bytes = bytes.max(1);
        self
    }

    /// Opens the stream. Dropping the stream cancels the call.
    pub fn open(mut self) -> Result<CallStream<T>, CallError> {
        let credit = self.options.extras().stream.unwrap_or(CREDIT);
        let waiting = self.options.begin(self.input)?;
        Ok(CallStream {
            timer: waiting.timer(),
            state: StreamState::Open(waiting),
            credit,
            items: None,
            read: Portion::default(),
            value: PhantomData,
        })
    }
}

enum StreamState {
    Open(PendingCall),
    /// Returns the call if its worker was lost before the first item, and it is made again.
    Ending(BoxFuture<'static, Result<Option<PendingCall>, CallError>>),
    Over,
}

/// The values of a streaming call.
///
/// ```no_run
/// use futures_util::StreamExt;
/// use snakepit::args;
///
/// # async fn example(pit: snakepit::Snakepit) -> Result<(), snakepit::CallError> {
/// let mut tokens = pit.stream::<String>("generate", args! { prompt: "Once upon a time" }).open()?;
/// while let Some(token) = tokens.next().await {
///     print!("{}", token?);
/// }
/// # Ok(()) }
/// ```
#[must_use = "a stream does nothing unless it is read"]
pub struct CallStream<T> {
    timer: CallTimer,
    state: StreamState,
    credit: Portion,
    /// Items that came together, of which some may be read.
    items: Option<EncodedItems>,
    /// The amount that was read since credit was last granted.
    read: Portion,
    value: PhantomData<fn() -> T>,
}

impl<T> CallStream<T> {
    /// Returns the latest progress, if the worker has reported any since the last call of this function.
    pub fn take_progress(&self) -> Option<Progress> {
        match &self.state {
            StreamState::Open(waiting) => waiting.take_progress(),
            StreamState::Ending(_) | StreamState::Over => None,
        }
    }
}

impl<T: DeserializeOwned> Stream for CallStream<T> {
    type Item = Result<T, CallError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if let Some(value) = this.next_item() {
            return Poll::Ready(Some(value));
        }
        loop {
            match &mut this.state {
                StreamState::Over => return Poll::Ready(None),
                StreamState::Ending(ending) => match ready!(ending.as_mut().poll(context)) {
                    Ok(Some(waiting)) => {
                        this.timer.reset(waiting.first_look());
                        this.state = StreamState::Open(waiting);
                    }
                    over => {
                        this.state = StreamState::Over;
                        return Poll::Ready(over.err().map(Err));
                    }
                },
                StreamState::Open(waiting) => match ready!(waiting.poll_event(&mut this.timer, context)) {
                    Ok(CallEvent::Items(items)) => {
                        this.items = Some(items);
                        if let Some(value) = this.next_item() {
                            return Poll::Ready(Some(value));
                        }
                    }
                    Ok(CallEvent::End(end)) => this.end(end),
                    Err(late) => this.give_up(late),
                },
            }
        }
    }
}

impl<T: DeserializeOwned> CallStream<T> {
    /// Returns the next of the items that have come.
    fn next_item(&mut self) -> Option<Result<T, CallError>> {
        let StreamState::Open(waiting) = &mut self.state else { return None };
        let Some((length, value)) = self.items.as_mut()?.decode_next() else {
            self.items = None;
            return None;
        };
        self.read.add_item(length);
        waiting.delivered += 1;
        if self.read.is_half_of(self.credit) {
            waiting.grant(std::mem::take(&mut self.read));
        }
        let command = &waiting.command.name;
        let value = value.map_err(|source| CallError::Result { command: command.to_string(), source });
        if value.is_err() {
            self.state = StreamState::Over;
        }
        Some(value)
    }
}

impl<T> CallStream<T> {
    fn end(&mut self, end: CallEnd) {
        let StreamState::Open(mut waiting) = std::mem::replace(&mut self.state, StreamState::Over) else {
            return;
        };
        self.state = StreamState::Ending(Box::pin(async move {
            let over = waiting.conclude_or_again(end).await?;
            Ok(over.is_none().then_some(waiting))
        }));
    }

    fn give_up(&mut self, late: LateCall) {
        self.state = StreamState::Ending(Box::pin(async move { Err(late.explain().await) }));
    }
}
