//! The list of what is measured, with the feature `metrics`; see `record.rs`.

/// A measure, as the documentation has it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Measure {
    /// Its name.
    pub name: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Its labels.
    pub labels: &'static str,
    /// What it says.
    pub meaning: &'static str,
}

macro_rules! measures {
    ($($id:ident = $name:literal, $kind:literal, $labels:literal, $meaning:literal;)*) => {
        $(#[cfg(feature = "metrics")] pub(super) const $id: &str = $name;)*

        /// What is measured, with the feature `metrics`.
        pub const MEASURES: &[Measure] = &[$(
            Measure { name: $name, kind: $kind, labels: $labels, meaning: $meaning },
        )*];
    };
}

measures! {
    CALLS = "snakepit_calls_total", "counter", "pool, command, outcome", "calls that have ended, by outcome as of `snakepit.call.stop`";
    CALL_SECONDS = "snakepit_call_seconds", "histogram", "pool, command", "from a call to its end";
    QUEUE_SECONDS = "snakepit_queue_wait_seconds", "histogram", "pool", "how long a call waited for a worker";
    MAP_INPUTS = "snakepit_map_inputs_total", "counter", "pool, command, outcome", "inputs of maps, `ok` or `failed`";
    RETRIES = "snakepit_retries_total", "counter", "pool, command", "calls that were made again";
    STREAM_ITEMS = "snakepit_stream_items_total", "counter", "pool, command", "values of streams that were read";
    TOOLS = "snakepit_tools_total", "counter", "tool, outcome", "tools of the host that workers asked";
    TOOL_SECONDS = "snakepit_tool_seconds", "histogram", "tool", "how long a tool took";
    STARTS = "snakepit_worker_starts_total", "counter", "pool, outcome", "starts of workers, `ok` or `failed`";
    START_SECONDS = "snakepit_worker_start_seconds", "histogram", "pool", "how long the start of a worker took";
    DEATHS = "snakepit_worker_deaths_total", "counter", "pool", "workers that died, or had to be ended";
    KILLED = "snakepit_cleanup_killed_total", "counter", "", "workers that needed KILL to end";
    WORKERS = "snakepit_workers", "gauge", "pool", "workers that serve; looked at once a second";
    QUEUED = "snakepit_queued", "gauge", "pool", "calls that wait; looked at once a second";
    IN_FLIGHT = "snakepit_in_flight", "gauge", "pool", "calls that are with workers; looked at once a second";
    SESSIONS = "snakepit_sessions", "gauge", "pool", "sessions; looked at once a second";
}
