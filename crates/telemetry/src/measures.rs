//! The list of metrics. `record.rs` updates them, with the feature `metrics`.

/// A metric, for documentation.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Measure {
    /// The name of the metric.
    pub name: &'static str,
    /// The kind: `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// The labels.
    pub labels: &'static str,
    /// What the metric measures.
    pub meaning: &'static str,
}

macro_rules! measures {
    ($($id:ident = $name:literal, $kind:literal, $labels:literal, $meaning:literal;)*) => {
        $(#[cfg(feature = "metrics")] pub(crate) const $id: &str = $name;)*

        /// All metrics, with the feature `metrics`.
        pub const MEASURES: &[Measure] = &[$(
            Measure { name: $name, kind: $kind, labels: $labels, meaning: $meaning },
        )*];
    };
}

measures! {
    CALLS = "snakepit_calls_total", "counter", "pool, command, outcome", "calls that have ended, by outcome as of `snakepit.call.stop`";
    CALL_SECONDS = "snakepit_call_seconds", "histogram", "pool, command", "time from a call to its end";
    QUEUE_SECONDS = "snakepit_queue_wait_seconds", "histogram", "pool", "time that a call waited for a worker";
    MAP_INPUTS = "snakepit_map_inputs_total", "counter", "pool, command, outcome", "inputs of maps, `ok` or `failed`";
    RETRIES = "snakepit_retries_total", "counter", "pool, command", "calls that were retried";
    STREAM_ITEMS = "snakepit_stream_items_total", "counter", "pool, command", "values that were read from streams";
    TOOLS = "snakepit_tools_total", "counter", "tool, outcome", "calls of host tools by workers";
    TOOL_SECONDS = "snakepit_tool_seconds", "histogram", "tool", "how long a tool took";
    STARTS = "snakepit_worker_starts_total", "counter", "pool, outcome", "starts of workers, `ok` or `failed`";
    START_SECONDS = "snakepit_worker_start_seconds", "histogram", "pool", "how long the start of a worker took";
    DEATHS = "snakepit_worker_deaths_total", "counter", "pool", "workers that died, or had to be killed";
    KILLED = "snakepit_cleanup_killed_total", "counter", "", "workers that needed SIGKILL";
    WORKERS = "snakepit_workers", "gauge", "pool", "workers that are ready; sampled once a second";
    QUEUED = "snakepit_queued", "gauge", "pool", "calls that wait; sampled once a second";
    IN_FLIGHT = "snakepit_in_flight", "gauge", "pool", "calls at workers; sampled once a second";
    SESSIONS = "snakepit_sessions", "gauge", "pool", "open sessions; sampled once a second";
}
