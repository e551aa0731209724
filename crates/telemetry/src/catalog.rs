//! The list of events. `docs/telemetry.md` has the same list. A test compares them, and `SNAKEPIT_BLESS=1` rewrites the
//! page.

use std::sync::Arc;
use std::time::Duration;

use super::define::{EventEntry, FieldEntry, Level, catalog};
use super::field::{Field, FieldValue};

catalog! {
    // Scripts, and how an engine is stopped.

    ScriptExitModeSelected = "snakepit.script.exit_mode.selected", Info, "A script has chosen how its process ends." {
        source: &'static str = "what decided: `exit_mode`, the name of a variable, or `default`",
        input: Arc<str> = "the value that the source had",
        effective: &'static str = "the exit mode that applies",
    }
    ScriptShutdownStart = "snakepit.script.shutdown.start", Info, "An engine is about to be stopped." {
        run_id: Option<Arc<str>> = "the run of the engine, if it has processes",
        path: &'static str = "what stops the engine: `script`, `signal`, `stop` or `drop`",
        exit_mode: &'static str = "what happens to the process afterwards",
        stop_mode: &'static str = "whether the engine is stopped",
        owned: bool = "whether the same code started the engine",
        status: i32 = "the exit status, as far as it is known yet",
    }
    ScriptShutdownStop = "snakepit.script.shutdown.stop", Info (Warn if !*drained), "The pools of an engine have ended." {
        run_id: Option<Arc<str>> = "the run of the engine, if it has processes",
        path: &'static str = "what stops the engine: `script`, `signal`, `stop` or `drop`",
        exit_mode: &'static str = "what happens to the process afterwards",
        stop_mode: &'static str = "whether the engine is stopped",
        owned: bool = "whether the same code started the engine",
        status: i32 = "the exit status, as far as it is known yet",
        took: Duration = "how long it took",
        drained: bool = "whether all calls in flight finished",
    }
    ScriptShutdownCleanup = "snakepit.script.shutdown.cleanup", Info (Warn if *outcome == "timeout"), "The processes of an engine have ended, or cleanup gave up on them." {
        run_id: Option<Arc<str>> = "the run of the engine, if it has processes",
        path: &'static str = "what stops the engine: `script`, `signal`, `stop` or `drop`",
        exit_mode: &'static str = "what happens to the process afterwards",
        stop_mode: &'static str = "whether the engine is stopped",
        owned: bool = "whether the same code started the engine",
        status: i32 = "the exit status, as far as it is known yet",
        outcome: &'static str = "`clean`, `timeout`, or `nothing` if there were no processes",
        killed: usize = "the number of workers that needed SIGKILL",
        took: Duration = "how long it took",
    }
    ScriptShutdownExit = "snakepit.script.shutdown.exit", Info, "An engine has stopped, and its process ends or continues." {
        run_id: Option<Arc<str>> = "the run of the engine, if it has processes",
        path: &'static str = "what stops the engine: `script`, `signal`, `stop` or `drop`",
        exit_mode: &'static str = "what happens to the process now",
        stop_mode: &'static str = "whether the engine was stopped",
        owned: bool = "whether the same code started the engine",
        status: i32 = "the exit status",
    }

    // Custody: processes and their cleanup.

    CleanupStart = "snakepit.cleanup.start", Debug, "Cleanup begins: workers are asked to end." {
        run_id: Arc<str> = "the run",
        scope: &'static str = "`run` for all workers of the run, or `worker` for one",
        worker: Option<Arc<str>> = "the worker, if the scope is one worker",
        workers: usize = "the number of workers that are alive",
    }
    CleanupSuccess = "snakepit.cleanup.success", Debug (Warn if *killed > 0), "Cleanup has ended, and no process is left." {
        run_id: Arc<str> = "the run",
        scope: &'static str = "`run` for all workers of the run, or `worker` for one",
        worker: Option<Arc<str>> = "the worker, if the scope is one worker",
        workers: usize = "the number of workers that cleanup ended",
        killed: usize = "the number of these that needed SIGKILL",
        took: Duration = "how long it took",
    }
    CleanupTimeout = "snakepit.cleanup.timeout", Warn, "Cleanup timed out, and processes are left." {
        run_id: Arc<str> = "the run",
        scope: &'static str = "`run` for all workers of the run, or `worker` for one",
        worker: Option<Arc<str>> = "the worker, if the scope is one worker",
        survivors: usize = "the number of processes that are left",
        who: Arc<str> = "these processes, as text",
        killed: usize = "the number of workers that were sent SIGKILL",
        took: Duration = "how long it took",
    }
    WorkerSpawn = "snakepit.worker.spawn", Debug, "The program of a worker runs." {
        run: Arc<str> = "the run",
        worker: Arc<str> = "the worker",
        pid: u32 = "its main process",
    }
    WorkerExit = "snakepit.worker.exit", Debug, "A worker and all processes that it started have ended." {
        run: Arc<str> = "the run",
        worker: Arc<str> = "the worker",
        code: Option<i32> = "the exit status of the main process, if it exited",
        signal: Option<i32> = "the signal that ended it, if a signal did",
        max_rss_kib: u64 = "peak memory, in KiB; 0 if unknown",
    }
    WorkerStopped = "snakepit.worker.stopped", Debug, "A signal such as SIGTSTP (Ctrl-Z) stopped the main process of a worker." {
        run: Arc<str> = "the run",
        worker: Arc<str> = "the worker",
        signal: i32 = "the signal's number",
    }
    WorkerContinued = "snakepit.worker.continued", Debug, "A stopped worker runs again." {
        run: Arc<str> = "the run",
        worker: Arc<str> = "the worker",
    }
    Reap = "snakepit.reap", Debug (Warn if *killed > 0), "The leftovers of a dead run of another host were removed." {
        run: Arc<str> = "the run that removed them",
        dead_run: Arc<str> = "the dead run",
        killed: usize = "the number of processes that had to be killed",
    }
    ReapTrouble = "snakepit.reap.trouble", Warn, "The leftovers of a dead run could not be read or removed." {
        run: Arc<str> = "the run that tried",
        dead_run: Arc<str> = "the name of the dead run's directory",
        trouble: Arc<str> = "what is wrong, as text",
    }
    EscapeCaught = "snakepit.escape.caught", Warn, "A process outlived its shim, and the keeper killed it." {
        run: Arc<str> = "the run",
        pid: u32 = "the process",
    }
    Unkillable = "snakepit.worker.unkillable", Warn, "A process of a worker runs as another user, so the run may not signal it." {
        run: Arc<str> = "the run",
        worker: Option<Arc<str>> = "the worker, if known",
        pid: u32 = "the process",
    }
    KeeperLost = "snakepit.keeper.lost", Warn, "The keeper died, and its workers died with it." {
        run: Arc<str> = "the run",
        workers: usize = "the number of workers that died with it",
    }
    KeeperRegained = "snakepit.keeper.regained", Info, "A new keeper has replaced the one that died." {
        run: Arc<str> = "the run",
    }
    FileDamaged = "snakepit.file.damaged", Warn, "A file in the state directory was damaged." {
        path: Arc<str> = "the file",
        trouble: Option<Arc<str>> = "why it could not be replaced; absent if it was replaced",
    }
    LedgerTrouble = "snakepit.ledger.trouble", Warn, "A record could not be written to the ledger; spawns are refused until one can." {
        run: Arc<str> = "the run",
        errno: i32 = "the system's error number",
    }

    // Pools.

    PoolReady = "snakepit.pool.ready", Info, "A pool has all of its workers for the first time." {
        pool: Arc<str> = "the pool",
        workers: usize = "how many",
    }
    PoolStopped = "snakepit.pool.stopped", Info, "All workers of a pool have ended, and no new ones are started." {
        pool: Arc<str> = "the pool",
    }
    PoolResized = "snakepit.pool.resized", Info, "The target number of workers has changed." {
        pool: Arc<str> = "the pool",
        from: usize = "the old target",
        to: usize = "the new target",
    }
    PoolTainted = "snakepit.pool.tainted", Warn, "A worker died because of its device or slot, which is not used for a while." {
        pool: Arc<str> = "the pool",
        place: Arc<str> = "the device, or the slot",
        fault: Arc<str> = "why the worker died",
        lasts: Duration = "for how long",
    }
    PoolDegraded = "snakepit.pool.degraded", Warn, "Workers fail so often that only one is started at a time." {
        pool: Arc<str> = "the pool",
        reason: Arc<str> = "the last failure",
    }
    PoolRecovered = "snakepit.pool.recovered", Info, "A degraded pool works again." {
        pool: Arc<str> = "the pool",
    }
    PoolReloaded = "snakepit.pool.reloaded", Info, "A reload has replaced all workers." {
        pool: Arc<str> = "the pool",
        generation: u64 = "its number",
    }
    PoolReloadAborted = "snakepit.pool.reload_aborted", Warn, "A reload failed, and the old workers stay." {
        pool: Arc<str> = "the pool",
        reason: Arc<str> = "why",
    }
    CircuitOpened = "snakepit.circuit.opened", Warn, "So many calls failed that a circuit rejects calls for a while." {
        pool: Arc<str> = "the pool",
        command: Option<Arc<str>> = "the command; absent if the circuit is that of the whole pool",
    }
    CircuitHalfOpen = "snakepit.circuit.half_open", Info, "A circuit admits a few calls on trial." {
        pool: Arc<str> = "the pool",
        command: Option<Arc<str>> = "the command; absent if the circuit is that of the whole pool",
    }
    CircuitClosed = "snakepit.circuit.closed", Info, "A circuit admits all calls again." {
        pool: Arc<str> = "the pool",
        command: Option<Arc<str>> = "the command; absent if the circuit is that of the whole pool",
    }

    // Environments of Python workers.

    EnvironmentBuilding = "snakepit.environment.building", Info, "A Python environment does not exist yet, and its build begins." {
        pool: Arc<str> = "the pool that needs it",
        key: Arc<str> = "its name in the cache, a hash of its content",
        python: Arc<str> = "the version of its Python",
        tool: &'static str = "the tool that builds it: `uv` or `pip`",
    }
    EnvironmentProgress = "snakepit.environment.progress", Debug, "A step of a build begins, or prints a line." {
        pool: Arc<str> = "the pool that needs it",
        key: Arc<str> = "the environment",
        step: u32 = "the number of the step; 0 while another host builds the environment",
        steps: u32 = "the number of steps",
        text: Arc<str> = "the line, or the name of the step",
    }
    EnvironmentReady = "snakepit.environment.ready", Info, "A Python environment is ready." {
        pool: Arc<str> = "the pool that needs it",
        key: Arc<str> = "the environment",
        path: Arc<str> = "its directory",
        made: bool = "whether it was built now",
        took: Duration = "how long it took",
    }
    EnvironmentFailed = "snakepit.environment.failed", Warn, "A Python environment could not be built." {
        pool: Arc<str> = "the pool that needs it",
        reason: Arc<str> = "why",
    }

    // Workers, as their pool sees them.

    WorkerReady = "snakepit.worker.ready", Info, "A worker is ready for calls." {
        pool: Arc<str> = "its pool",
        worker: Arc<str> = "the worker",
        took: Duration = "how long its start took",
    }
    WorkerNotStarted = "snakepit.worker.not_started", Warn, "A worker could not be started." {
        pool: Arc<str> = "its pool",
        reason: Arc<str> = "why",
    }
    WorkerDue = "snakepit.worker.due", Info, "A worker is due for replacement; it serves until its replacement is ready." {
        pool: Arc<str> = "its pool",
        worker: Arc<str> = "the worker",
        reason: Arc<str> = "why",
    }
    WorkerLeaves = "snakepit.worker.leaves", Info, "A worker accepts no more calls, and ends when its calls are finished." {
        pool: Arc<str> = "its pool",
        worker: Arc<str> = "the worker",
    }
    WorkerEnded = "snakepit.worker.ended", Info, "A worker ended because it was told to." {
        pool: Arc<str> = "its pool",
        worker: Arc<str> = "the worker",
    }
    WorkerDied = "snakepit.worker.died", Warn, "A worker died, or had to be killed." {
        pool: Arc<str> = "its pool",
        worker: Arc<str> = "the worker",
        pid: Option<u32> = "its process",
        code: Option<i32> = "its exit status, if it exited",
        signal: Option<i32> = "the signal that ended it, if a signal did",
        oom: Option<bool> = "whether the kernel killed it for lack of memory; absent if unknown",
        calls: u64 = "the number of calls that it was given",
        age: Duration = "how long it served",
        autopsy: Arc<str> = "all that is known, as text",
    }
    WorkerStuck = "snakepit.worker.stuck", Warn, "A worker with a call has shown no sign of life for some time." {
        pool: Arc<str> = "its pool",
        worker: Arc<str> = "the worker",
        lasted: Duration = "for how long",
        stack: Option<Arc<str>> = "its stack, if known",
    }
    WorkerIgnoresCancel = "snakepit.worker.ignores_cancel", Warn, "A cancelled call does not end, so its worker is replaced." {
        pool: Arc<str> = "its pool",
        worker: Arc<str> = "the worker",
        call: u64 = "the call",
    }
    WorkerSpan = "snakepit.worker.span", Debug, "The code of a worker has left a `with snakepit.span(…)` block." {
        pool: Arc<str> = "its pool",
        worker: Arc<str> = "the worker",
        call: u64 = "the call that the span is part of",
        name: Arc<str> = "the span's name",
        trace_id: Arc<str> = "the trace, as in W3C `traceparent`",
        span_id: Arc<str> = "the span",
        parent_id: Option<Arc<str>> = "the parent span; absent if the trace begins here",
        took: Duration = "how long it lasted",
        error: Option<Arc<str>> = "the type of the exception that ended it, if one did",
        attributes: Option<Arc<str>> = "its keyword arguments, as JSON",
    }

    // Calls.

    CallStop = "snakepit.call.stop", Debug, "A call has ended." {
        pool: Arc<str> = "its pool",
        command: Arc<str> = "its command",
        call: u64 = "its number",
        worker: Option<Arc<str>> = "the last worker that had it, if any",
        outcome: &'static str = "`ok`, `failed`, `died`, `timed_out`, `queue_timed_out`, `saturated`, `refused`, `cancelled` or `stopped`",
        took: Duration = "the time from the call to its end",
        waited: Duration = "how long it waited for a worker",
        trace_id: Option<Arc<str>> = "its trace, if known",
    }
    CallRefused = "snakepit.call.refused", Debug, "A call was rejected: it is quarantined, its circuit is open, its session is busy, or its arguments cannot be sent." {
        pool: Arc<str> = "its pool",
        command: Arc<str> = "its command",
        reason: Arc<str> = "why",
    }
    CallRetried = "snakepit.call.retried", Debug, "A call whose worker died is retried." {
        pool: Arc<str> = "its pool",
        command: Arc<str> = "its command",
        attempt: u32 = "the number of this attempt; the first is 1",
    }
    CallQuarantined = "snakepit.call.quarantined", Warn, "A call is rejected for a while, because workers keep dying of it." {
        pool: Arc<str> = "its pool",
        command: Arc<str> = "its command",
        deaths: usize = "the number of workers that died of it",
    }
    MapChunk = "snakepit.map.chunk", Debug, "A chunk of the inputs of a map has its outcomes." {
        pool: Arc<str> = "its pool",
        command: Arc<str> = "its command",
        inputs: usize = "how many",
        failed: usize = "the number of these that failed",
        took: Duration = "the time from the send to the last outcome",
    }
    QueueFull = "snakepit.queue.full", Debug, "A call was rejected, because the queue is full." {
        pool: Arc<str> = "the pool",
        command: Arc<str> = "the call's command",
        depth: usize = "the number of calls that wait",
    }
    QueueTimeout = "snakepit.queue.timeout", Debug, "A call waited too long for a worker." {
        pool: Arc<str> = "the pool",
        command: Arc<str> = "the call's command",
        call: u64 = "the call",
        waited: Duration = "for how long",
        depth: usize = "the number of other calls that wait",
    }

    // Streams, sessions and tools.

    StreamOpened = "snakepit.stream.opened", Debug, "A caller has opened a stream." {
        pool: Arc<str> = "its pool",
        command: Arc<str> = "its command",
        call: u64 = "the call",
    }
    StreamEnded = "snakepit.stream.ended", Debug, "A stream has ended, or its reader has gone." {
        pool: Arc<str> = "its pool",
        command: Arc<str> = "its command",
        call: u64 = "the call",
        items: u64 = "the number of values that were read",
        outcome: &'static str = "as of `snakepit.call.stop`",
        took: Duration = "how long it was open",
    }
    SessionOpened = "snakepit.session.opened", Debug, "The first call of a session has come." {
        pool: Arc<str> = "its pool",
        session: Arc<str> = "its id",
        sessions: usize = "the number of open sessions",
    }
    SessionEnded = "snakepit.session.ended", Debug, "The host ended a session." {
        pool: Arc<str> = "its pool",
        session: Arc<str> = "its id",
    }
    SessionMoved = "snakepit.session.moved", Info, "A session with strict affinity has lost its worker and moved to another one." {
        pool: Arc<str> = "its pool",
        session: Arc<str> = "its id",
        from: Arc<str> = "the worker that it lost",
        to: Arc<str> = "the worker that it moved to",
    }
    SessionExpired = "snakepit.session.expired", Debug, "A session had no call for its time to live." {
        pool: Arc<str> = "its pool",
        session: Arc<str> = "its id",
    }
    ToolStop = "snakepit.tool.stop", Debug, "A tool of the host has answered a worker, or its answer is no longer awaited." {
        pool: Arc<str> = "the pool of the call that asked",
        command: Arc<str> = "the command that asked",
        call: u64 = "the call that asked",
        tool: Arc<str> = "the tool",
        outcome: &'static str = "`ok`, `failed` or `cancelled`",
        took: Duration = "how long it took; for a stream, until its first value could be requested",
    }

    // Loops.

    LoopStarted = "snakepit.loop.started", Info, "A loop runs." {
        name: Arc<str> = "the loop",
    }
    LoopStopped = "snakepit.loop.stopped", Info, "A loop has ended as ordered." {
        name: Arc<str> = "the loop",
        handled: u64 = "the number of messages that it has handled",
    }
    LoopCrashed = "snakepit.loop.crashed", Warn, "A loop of a group has ended without an order." {
        name: Arc<str> = "the loop",
        reason: Arc<str> = "why",
        then: &'static str = "what the group does: `stop_all`, `restart` or `ignore`",
    }
    LoopTrouble = "snakepit.loop.trouble", Warn, "The mailbox of a loop fails and is retried, or the pool of a loop has no worker and is awaited." {
        name: Arc<str> = "the loop",
        reason: Arc<str> = "why",
    }
    LoopRecovered = "snakepit.loop.recovered", Info, "The mailbox of a loop works again, or its pool has a worker again." {
        name: Arc<str> = "the loop",
    }
    LoopAttemptDone = "snakepit.loop.attempt_done", Debug, "A message was handled." {
        name: Arc<str> = "the loop",
        message_id: Arc<str> = "the message",
        delivery: u32 = "the number of the delivery",
        took: Duration = "how long the handler took",
    }
    LoopAttemptFailed = "snakepit.loop.attempt_failed", Warn, "The handling of a message failed, or its reply could not be sent." {
        name: Arc<str> = "the loop",
        message_id: Arc<str> = "the message",
        delivery: u32 = "the number of the delivery",
        of: u32 = "the number of deliveries after which it is given up",
        took: Duration = "how long the handler took",
        error: Arc<str> = "why",
        then: &'static str = "what happens to the message: `again` (redelivered), `bury` (dead letter) or `reply` (the error is the reply)",
    }
    LoopLeaseLost = "snakepit.loop.lease_lost", Warn, "The lease of a message ended before its handler did; another receiver may get the message." {
        name: Arc<str> = "the loop",
        message_id: Arc<str> = "the message",
    }
    LoopLeaseShort = "snakepit.loop.lease_short", Warn, "Leases are shorter than a shutdown plus the longest handling: messages may be delivered twice." {
        name: Arc<str> = "the loop",
        visibility: Duration = "how long messages are leased",
        shutdown: Duration = "how long a shutdown may take",
        longest: Duration = "the longest handling so far",
    }
    LoopMessageSlow = "snakepit.loop.message_slow", Warn, "A message has been handled for longer than one lease, or for twice as long as at the last such event. Its lease is extended." {
        name: Arc<str> = "the loop",
        message_id: Arc<str> = "the message",
        trace: Option<Arc<str>> = "the W3C trace context of the message's span",
        lasted: Duration = "for how long",
        since_beat: Duration = "the time since its handler last reported progress, or started",
    }
    LoopStuck = "snakepit.loop.stuck", Warn, "A message has been handled for too long, or a loop has stalled." {
        name: Arc<str> = "the loop",
        message_id: Option<Arc<str>> = "the message; absent if the loop itself has stalled",
        trace: Option<Arc<str>> = "the W3C trace context of the message's span",
        lasted: Duration = "for how long",
        stack: Option<Arc<str>> = "the stack of the worker that handles it, if known",
        then: &'static str = "what is done: `tell` (nothing more), `restart` or `end_process`",
    }

    // Mailboxes.

    MailboxSent = "snakepit.mailbox.sent", Debug, "Messages were put into a mailbox." {
        mailbox: Arc<str> = "its name",
        messages: usize = "how many",
    }
    MailboxReceived = "snakepit.mailbox.received", Debug, "Messages were leased to a receiver." {
        mailbox: Arc<str> = "the mailbox",
        messages: usize = "how many",
    }
    MailboxAcked = "snakepit.mailbox.acked", Debug, "Messages were acknowledged." {
        mailbox: Arc<str> = "the mailbox",
        messages: usize = "how many",
    }
    MailboxNacked = "snakepit.mailbox.nacked", Debug, "Messages were returned to a mailbox." {
        mailbox: Arc<str> = "the mailbox",
        messages: usize = "how many",
    }
    MailboxLeaseLapsed = "snakepit.mailbox.lease_lapsed", Debug, "The lease of a message ended before its receiver settled it." {
        mailbox: Arc<str> = "the mailbox",
        message_id: Arc<str> = "its id",
        delivery: u32 = "the number of the delivery",
    }
    MailboxDeadLettered = "snakepit.mailbox.dead_lettered", Warn, "A message became a dead letter." {
        mailbox: Arc<str> = "the mailbox",
        message_id: Arc<str> = "its id",
        reason: &'static str = "`deliveries`, `expired`, `undecodable` or `failed`",
        deliveries: u32 = "the number of deliveries",
    }
}
