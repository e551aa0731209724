//! Nested calls: a worker calls a tool of the host, the tool calls a pool, and so on.
//!
//! The task that runs the tool carries the chain, so a call made by the tool knows which calls wait for it. A worker
//! that waits for a tool may serve a nested call meanwhile, so a pool of one worker cannot deadlock. The depth is
//! bounded, and the error names the cycle.

use std::fmt;
use std::sync::Arc;

use super::CallId;
use crate::telemetry::TraceContext;

/// The largest number of calls that may wait for one another.
pub const MAX_NESTING: usize = 16;

/// A call that waits for a nested call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Link {
    /// The number of the call.
    pub call: CallId,
    /// The pool in which the call runs.
    pub pool: Arc<str>,
    /// The command of the call.
    pub command: Arc<str>,
    /// The tool that the call waits for.
    pub tool: Arc<str>,
}

/// The calls that wait for a nested call, the outermost first.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    links: Vec<Link>,
    /// The trace to which the calls of the tool belong.
    trace: Option<Arc<TraceContext>>,
}

tokio::task_local! {
    static CHAIN: Arc<Chain>;
}

impl Chain {
    /// Returns the chain of the current task, if the task runs a tool.
    pub fn current() -> Option<Arc<Self>> {
        CHAIN.try_with(Arc::clone).ok()
    }

    /// Runs a tool as the last link of the chain.
    pub(crate) async fn scope<F: Future>(self: Arc<Self>, tool: F) -> F::Output {
        CHAIN.scope(self, tool).await
    }

    pub(crate) fn extended(parent: Option<&Self>, link: Link, trace: Option<Arc<TraceContext>>) -> Self {
        let mut links = parent.map_or_else(Vec::new, |parent| parent.links.clone());
        links.push(link);
        Self { links, trace }
    }

    /// Returns the trace to which the work of the tool belongs.
    pub(crate) fn trace(&self) -> Option<&Arc<TraceContext>> {
        self.trace.as_ref()
    }

    /// Returns the waiting calls, the outermost first.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// Returns the call that waits directly for the nested call.
    pub fn parent(&self) -> Option<CallId> {
        self.links.last().map(|link| link.call)
    }
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for link in &self.links {
            write!(f, "{}.{} → tool {} → ", link.pool, link.command, link.tool)?;
        }
        Ok(())
    }
}

impl Chain {
    /// Runs a stream as the last link of the chain.
    pub(crate) fn scope_stream<T: Send + 'static>(
        self: Arc<Self>,
        items: futures_util::stream::BoxStream<'static, T>,
    ) -> futures_util::stream::BoxStream<'static, T> {
        let next = |(chain, mut items): (Arc<Self>, futures_util::stream::BoxStream<'static, T>)| async move {
            let item = Arc::clone(&chain).scope(futures_util::StreamExt::next(&mut items)).await?;
            Some((item, (chain, items)))
        };
        Box::pin(futures_util::stream::unfold((self, items), next))
    }
}
