//! Nested calls: a worker asks a tool of the host, the tool calls a pool, and so on.
//!
//! The chain travels with the task that runs the tool, so that a call made inside it knows which calls wait for it. A
//! nested call may be served by a worker that waits for a tool itself, so that a pool of one cannot deadlock; how deep
//! that may go is bounded, and the refusal names the cycle.

use std::fmt;
use std::sync::Arc;

use super::CallId;
use crate::telemetry::TraceContext;

/// How many calls may wait for one another.
pub const MAX_NESTING: usize = 16;

/// One of the calls that wait.
#[derive(Clone, Debug)]
pub struct Link {
    /// The call.
    pub call: CallId,
    /// The pool that it runs in.
    pub pool: Arc<str>,
    /// Its command.
    pub command: Arc<str>,
    /// The tool that it waits for.
    pub tool: Arc<str>,
}

/// The calls that wait for a nested call, the outermost first.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    links: Vec<Link>,
    /// What a call that the tool makes belongs to.
    trace: Option<Arc<TraceContext>>,
}

tokio::task_local! {
    static CHAIN: Arc<Chain>;
}

impl Chain {
    /// The chain of the task that asks, if it runs a tool.
    pub fn current() -> Option<Arc<Self>> {
        CHAIN.try_with(Arc::clone).ok()
    }

    /// Runs a tool as the last link of a chain.
    pub(crate) async fn scope<F: Future>(self: Arc<Self>, tool: F) -> F::Output {
        CHAIN.scope(self, tool).await
    }

    pub(crate) fn extended(parent: Option<&Self>, link: Link, trace: Option<Arc<TraceContext>>) -> Self {
        let mut links = parent.map_or_else(Vec::new, |parent| parent.links.clone());
        links.push(link);
        Self { links, trace }
    }

    /// The trace that the tool's work belongs to.
    pub(crate) fn trace(&self) -> Option<&Arc<TraceContext>> {
        self.trace.as_ref()
    }

    /// The calls that wait.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// The call that waits for the nested one directly.
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
    /// Runs a stream as the last link of a chain.
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
