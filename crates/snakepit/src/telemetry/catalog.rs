//! The list of events. Whoever adds one adds it here, and the test of `docs/telemetry.md` says what to write there.

use std::sync::Arc;
use std::time::Duration;

use super::define::{Entry, FieldEntry, Level, catalog};
use super::field::{Field, FieldValue};

catalog! {
    // Scripts, and the ways in which an engine is stopped.

    ScriptExitModeSelected = "snakepit.script.exit_mode.selected", Info, "It is decided how a script ends its process." {
        source: &'static str = "what was decisive: `exit_mode`, `halt`, a variable's name, or `default`",
        input: Arc<str> = "what the source said",
        effective: &'static str = "the exit mode that holds",
    }
    ScriptShutdownStart = "snakepit.script.shutdown.start", Info, "An engine is about to be stopped." {
        run_id: Option<Arc<str>> = "its run, if it has processes",
        path: &'static str = "who ends it: `script`, `signal`, `stop` or `drop`",
        exit_mode: &'static str = "what happens to the process afterwards",
        stop_mode: &'static str = "whether the engine is stopped",
        owned: bool = "whether whoever ends it has started it",
        status: i32 = "the exit status, as far as it is known",
    }
    ScriptShutdownStop = "snakepit.script.shutdown.stop", Info (Warn if !*drained), "The pools of an engine have ended." {
        run_id: Option<Arc<str>> = "its run, if it has processes",
        path: &'static str = "who ends it: `script`, `signal`, `stop` or `drop`",
        exit_mode: &'static str = "what happens to the process afterwards",
        stop_mode: &'static str = "whether the engine is stopped",
        owned: bool = "whether whoever ends it has started it",
        status: i32 = "the exit status, as far as it is known",
        took: Duration = "how long it took",
        drained: bool = "whether everything that was under way could finish",
    }
    ScriptShutdownCleanup = "snakepit.script.shutdown.cleanup", Info (Warn if *outcome == "timeout"), "The processes of an engine are gone, or were given up." {
        run_id: Option<Arc<str>> = "its run, if it has processes",
        path: &'static str = "who ends it: `script`, `signal`, `stop` or `drop`",
        exit_mode: &'static str = "what happens to the process afterwards",
        stop_mode: &'static str = "whether the engine is stopped",
        owned: bool = "whether whoever ends it has started it",
        status: i32 = "the exit status, as far as it is known",
        outcome: &'static str = "`clean`, `timeout`, or `nothing` if there was nobody to end",
        killed: usize = "how many workers needed KILL",
        took: Duration = "how long it took",
    }
    ScriptShutdownExit = "snakepit.script.shutdown.exit", Info, "An engine is stopped, and its process ends or goes on." {
        run_id: Option<Arc<str>> = "its run, if it has processes",
        path: &'static str = "who ends it: `script`, `signal`, `stop` or `drop`",
        exit_mode: &'static str = "what happens to the process now",
        stop_mode: &'static str = "whether the engine was stopped",
        owned: bool = "whether whoever ends it has started it",
        status: i32 = "the exit status",
    }

    // Custody: processes, and what ends them.

    CleanupStart = "snakepit.cleanup.start", Debug, "The barrier begins: workers are told to end." {
        run_id: Arc<str> = "the run",
        scope: &'static str = "whom it is for: `run` for all of its workers, or `worker`",
        worker: Option<Arc<str>> = "the worker, if it is for one",
        workers: usize = "how many workers are alive",
    }
    CleanupSuccess = "snakepit.cleanup.success", Debug (Warn if *killed > 0), "The barrier ended with nobody left." {
        run_id: Arc<str> = "the run",
        scope: &'static str = "whom it is for: `run` for all of its workers, or `worker`",
        worker: Option<Arc<str>> = "the worker, if it is for one",
        workers: usize = "how many workers it ended",
        killed: usize = "how many of them needed KILL",
        took: Duration = "how long it took",
    }
    CleanupTimeout = "snakepit.cleanup.timeout", Warn, "The barrier gave up on somebody." {
        run_id: Arc<str> = "the run",
        scope: &'static str = "whom it is for: `run` for all of its workers, or `worker`",
        worker: Option<Arc<str>> = "the worker, if it is for one",
        survivors: usize = "how many processes are left",
        who: Arc<str> = "which ones, for a person",
        killed: usize = "how many workers got a KILL",
        took: Duration = "how long it took",
    }
    WorkerSpawn = "snakepit.worker.spawn", Debug, "A worker's program runs." {
        run: Arc<str> = "the run",
        worker: Arc<str> = "the worker",
        pid: u32 = "its main process",
    }
    WorkerExit = "snakepit.worker.exit", Debug, "A worker and all that it started are gone." {
        run: Arc<str> = "the run",
        worker: Arc<str> = "the worker",
        code: Option<i32> = "the status with which its main process exited, if it did",
        signal: Option<i32> = "the signal that ended it, if one did",
        max_rss_kib: u64 = "the most memory that it had, in KiB; 0 if unknown",
    }
    WorkerStopped = "snakepit.worker.stopped", Debug, "A worker's main process was stopped by a signal, as by Ctrl-Z." {
        run: Arc<str> = "the run",
        worker: Arc<str> = "the worker",
        signal: i32 = "the signal's number",
    }
    WorkerContinued = "snakepit.worker.continued", Debug, "A stopped worker goes on." {
        run: Arc<str> = "the run",
        worker: Arc<str> = "the worker",
    }
    Reap = "snakepit.reap", Debug (Warn if *killed > 0), "A dead run of another host was cleared." {
        run: Arc<str> = "the run that cleared it",
        dead_run: Arc<str> = "the dead run",
        killed: usize = "how many processes had to be killed",
    }
    ReapTrouble = "snakepit.reap.trouble", Warn, "A dead run could not be read or cleared." {
        run: Arc<str> = "the run that tried",
        dead_run: Arc<str> = "the name of the dead run's directory",
        trouble: Arc<str> = "what is wrong, for a person",
    }
    EscapeCaught = "snakepit.escape.caught", Warn, "A process outlived its shim and was killed by the keeper." {
        run: Arc<str> = "the run",
        pid: u32 = "the process",
    }
    Unkillable = "snakepit.worker.unkillable", Warn, "A process of a worker became another user's, so that nobody of the run may end it." {
        run: Arc<str> = "the run",
        worker: Option<Arc<str>> = "the worker, where known",
        pid: u32 = "the process",
    }
    KeeperLost = "snakepit.keeper.lost", Warn, "The keeper died, and its workers with it." {
        run: Arc<str> = "the run",
        workers: usize = "how many workers it took along",
    }
    KeeperRegained = "snakepit.keeper.regained", Info, "A new keeper serves." {
        run: Arc<str> = "the run",
    }
    FileDamaged = "snakepit.file.damaged", Warn, "A file that the library keeps in the state directory did not hold what it should." {
        path: Arc<str> = "the file",
        trouble: Option<Arc<str>> = "why it could not be replaced; absent if it was",
    }
    LedgerTrouble = "snakepit.ledger.trouble", Warn, "The ledger could not take a record; spawns are refused until it can." {
        run: Arc<str> = "the run",
        errno: i32 = "the system's error number",
    }

    // Pools.

    PoolReady = "snakepit.pool.ready", Info, "A pool has as many workers as it should, for the first time." {
        pool: Arc<str> = "the pool",
        workers: usize = "how many",
    }
    PoolStopped = "snakepit.pool.stopped", Info, "All workers of a pool have ended, and no more are started." {
        pool: Arc<str> = "the pool",
    }
    PoolResized = "snakepit.pool.resized", Info, "The number of workers that there should be has changed." {
        pool: Arc<str> = "the pool",
        from: usize = "how many there should have been",
        to: usize = "how many there should be",
    }
    PoolTainted = "snakepit.pool.tainted", Warn, "A worker died of the place that it ran in, which is not used for a while." {
        pool: Arc<str> = "the pool",
        place: Arc<str> = "the device, or the slot",
        fault: Arc<str> = "of what it died",
        lasts: Duration = "for how long",
    }
    PoolDegraded = "snakepit.pool.degraded", Warn, "Workers fail so often that only one at a time is tried." {
        pool: Arc<str> = "the pool",
        reason: Arc<str> = "the last failure",
    }
    PoolRecovered = "snakepit.pool.recovered", Info, "A pool was degraded, and is no longer." {
        pool: Arc<str> = "the pool",
    }
    PoolReloaded = "snakepit.pool.reloaded", Info, "All workers are of a new generation." {
        pool: Arc<str> = "the pool",
        generation: u64 = "its number",
    }
    PoolReloadAborted = "snakepit.pool.reload_aborted", Warn, "A reload failed, and the old workers stay." {
        pool: Arc<str> = "the pool",
        reason: Arc<str> = "why",
    }
    CircuitOpened = "snakepit.circuit.opened", Warn, "So many calls failed that no more are let in for a while." {
        pool: Arc<str> = "the pool",
        command: Option<Arc<str>> = "the command; absent if it is about all of them",
    }
    CircuitHalfOpen = "snakepit.circuit.half_open", Info, "Calls are let in on trial." {
        pool: Arc<str> = "the pool",
        command: Option<Arc<str>> = "the command; absent if it is about all of them",
    }
    CircuitClosed = "snakepit.circuit.closed", Info, "All calls are let in again." {
        pool: Arc<str> = "the pool",
        command: Option<Arc<str>> = "the command; absent if it is about all of them",
    }

    // Environments of Python workers.

    EnvironmentBuilding = "snakepit.environment.building", Info, "A Python environment is not there yet and is made." {
        pool: Arc<str> = "for whom",
        key: Arc<str> = "the name that its content has given it",
        python: Arc<str> = "the version of its Python",
        tool: &'static str = "what makes it: `uv` or `pip`",
    }
    EnvironmentProgress = "snakepit.environment.progress", Debug, "A step in the making of an environment begins, or says something." {
        pool: Arc<str> = "for whom",
        key: Arc<str> = "the environment",
        step: u32 = "which step; 0 while another host makes it",
        steps: u32 = "how many steps there are",
        text: Arc<str> = "what is said, for a person",
    }
    EnvironmentReady = "snakepit.environment.ready", Info, "A Python environment can be used." {
        pool: Arc<str> = "for whom",
        key: Arc<str> = "the environment",
        path: Arc<str> = "where it is",
        made: bool = "whether it was made now, and not there before",
        took: Duration = "how long that took",
    }
    EnvironmentFailed = "snakepit.environment.failed", Warn, "A Python environment could not be made." {
        pool: Arc<str> = "for whom",
        reason: Arc<str> = "why not",
    }

    // Workers, as their pool sees them.

    WorkerReady = "snakepit.worker.ready", Info, "A worker serves." {
        pool: Arc<str> = "its pool",
        worker: Arc<str> = "the worker",
        took: Duration = "how long its start took",
    }
    WorkerNotStarted = "snakepit.worker.not_started", Warn, "A worker could not be started." {
        pool: Arc<str> = "its pool",
        reason: Arc<str> = "why not",
    }
    WorkerDue = "snakepit.worker.due", Info, "A worker is to be replaced; it serves until its replacement does." {
        pool: Arc<str> = "its pool",
        worker: Arc<str> = "the worker",
        reason: Arc<str> = "why",
    }
    WorkerLeaves = "snakepit.worker.leaves", Info, "A worker takes no more calls, and ends when it has finished what it has." {
        pool: Arc<str> = "its pool",
        worker: Arc<str> = "the worker",
    }
    WorkerEnded = "snakepit.worker.ended", Info, "A worker ended because it was told to." {
        pool: Arc<str> = "its pool",
        worker: Arc<str> = "the worker",
    }
    WorkerDied = "snakepit.worker.died", Warn, "A worker died, or had to be ended." {
        pool: Arc<str> = "its pool",
        worker: Arc<str> = "the worker",
        pid: Option<u32> = "its process",
        code: Option<i32> = "the status with which it exited, if it did",
        signal: Option<i32> = "the signal that ended it, if one did",
        oom: Option<bool> = "whether it was killed for want of memory; absent if that is not known",
        calls: u64 = "how many calls it had been given",
        age: Duration = "how long it had served",
        autopsy: Arc<str> = "all that is known, for a person",
    }
    WorkerStuck = "snakepit.worker.stuck", Warn, "A worker has a call, and for some time it has shown no sign of life." {
        pool: Arc<str> = "its pool",
        worker: Arc<str> = "the worker",
        lasted: Duration = "for how long",
        stack: Option<Arc<str>> = "where it is, if it can be told",
    }
    WorkerIgnoresCancel = "snakepit.worker.ignores_cancel", Warn, "A call was cancelled and does not end, and its worker is replaced because of that." {
        pool: Arc<str> = "its pool",
        worker: Arc<str> = "the worker",
        call: u64 = "the call",
    }
    WorkerSpan = "snakepit.worker.span", Debug, "A worker's code has left a `with snakepit.span(…)`." {
        pool: Arc<str> = "its pool",
        worker: Arc<str> = "the worker",
        call: u64 = "the call that it was a part of",
        name: Arc<str> = "the span's name",
        trace_id: Arc<str> = "the trace, as in W3C `traceparent`",
        span_id: Arc<str> = "the span",
        parent_id: Option<Arc<str>> = "the span that it is a child of; absent if the trace begins here",
        took: Duration = "how long it lasted",
        error: Option<Arc<str>> = "the type of the exception that left it, if one did",
        attributes: Option<Arc<str>> = "what it was given by name, as JSON",
    }

    // Calls.

    CallStop = "snakepit.call.stop", Debug, "A call has ended, in whatever way." {
        pool: Arc<str> = "its pool",
        command: Arc<str> = "its command",
        call: u64 = "its number",
        worker: Option<Arc<str>> = "the worker that had it last, if one did",
        outcome: &'static str = "`ok`, `failed`, `died`, `timed_out`, `queue_timed_out`, `saturated`, `refused`, `cancelled` or `stopped`",
        took: Duration = "from the call to its end",
        waited: Duration = "how long it waited for a worker",
        trace_id: Option<Arc<str>> = "the trace that it belongs to, if one is known",
    }
    CallRefused = "snakepit.call.refused", Debug, "A call was not let in: quarantined, circuit open, session busy, arguments that cannot be sent." {
        pool: Arc<str> = "its pool",
        command: Arc<str> = "its command",
        reason: Arc<str> = "why",
    }
    CallRetried = "snakepit.call.retried", Debug, "A call whose worker was lost is made again." {
        pool: Arc<str> = "its pool",
        command: Arc<str> = "its command",
        attempt: u32 = "which attempt this is; the first was 1",
    }
    CallQuarantined = "snakepit.call.quarantined", Warn, "A call is refused for a while, because workers keep dying of it." {
        pool: Arc<str> = "its pool",
        command: Arc<str> = "its command",
        deaths: usize = "how many workers died of it",
    }
    MapChunk = "snakepit.map.chunk", Debug, "Some inputs of a map, which travelled together, have their outcomes." {
        pool: Arc<str> = "its pool",
        command: Arc<str> = "its command",
        inputs: usize = "how many",
        failed: usize = "how many of them failed",
        took: Duration = "from when they were sent to the last outcome",
    }
    QueueFull = "snakepit.queue.full", Debug, "A call was refused, because too many others wait." {
        pool: Arc<str> = "the pool",
        command: Arc<str> = "the call's command",
        depth: usize = "how many wait",
    }
    QueueTimeout = "snakepit.queue.timeout", Debug, "A call waited too long for a worker." {
        pool: Arc<str> = "the pool",
        command: Arc<str> = "the call's command",
        call: u64 = "the call",
        waited: Duration = "for how long",
        depth: usize = "how many others wait",
    }

    // What belongs to calls.

    StreamOpened = "snakepit.stream.opened", Debug, "A caller waits for the values of a stream." {
        pool: Arc<str> = "its pool",
        command: Arc<str> = "its command",
        call: u64 = "the call",
    }
    StreamEnded = "snakepit.stream.ended", Debug, "A stream is over, or its reader went away." {
        pool: Arc<str> = "its pool",
        command: Arc<str> = "its command",
        call: u64 = "the call",
        items: u64 = "how many values were read",
        outcome: &'static str = "as of `snakepit.call.stop`",
        took: Duration = "how long it was open",
    }
    SessionOpened = "snakepit.session.opened", Debug, "The first call of a session has come." {
        pool: Arc<str> = "its pool",
        session: Arc<str> = "its id",
        sessions: usize = "how many there are now",
    }
    SessionEnded = "snakepit.session.ended", Debug, "A session was ended by hand." {
        pool: Arc<str> = "its pool",
        session: Arc<str> = "its id",
    }
    SessionMoved = "snakepit.session.moved", Info, "A session with a strict affinity has lost its worker, and another one serves it." {
        pool: Arc<str> = "its pool",
        session: Arc<str> = "its id",
        from: Arc<str> = "the worker that is gone",
        to: Arc<str> = "the worker that serves it now",
    }
    SessionExpired = "snakepit.session.expired", Debug, "Nobody has visited a session for its time to live." {
        pool: Arc<str> = "its pool",
        session: Arc<str> = "its id",
    }
    ToolStop = "snakepit.tool.stop", Debug, "A tool of the host has answered a worker, or nobody waits for its answer any more." {
        pool: Arc<str> = "the pool of the call that asked",
        command: Arc<str> = "the command that asked",
        call: u64 = "the call that asked",
        tool: Arc<str> = "the tool",
        outcome: &'static str = "`ok`, `failed` or `cancelled`",
        took: Duration = "how long it took; of a stream, until its first value could be asked for",
    }

    // Loops.

    LoopStarted = "snakepit.loop.started", Info, "A loop runs." {
        name: Arc<str> = "the loop",
    }
    LoopStopped = "snakepit.loop.stopped", Info, "A loop has ended because it was to." {
        name: Arc<str> = "the loop",
        handled: u64 = "how many messages it has handled",
    }
    LoopCrashed = "snakepit.loop.crashed", Warn, "A loop of a group has ended although it was not to." {
        name: Arc<str> = "the loop",
        reason: Arc<str> = "why",
        then: &'static str = "what the group does: `stop_all`, `restart` or `ignore`",
    }
    LoopTrouble = "snakepit.loop.trouble", Warn, "A loop's mailbox does not work, and is tried again until it does; or its pool has no worker, and is waited for." {
        name: Arc<str> = "the loop",
        reason: Arc<str> = "why not",
    }
    LoopRecovered = "snakepit.loop.recovered", Info, "A loop's mailbox works again, or its pool has a worker." {
        name: Arc<str> = "the loop",
    }
    LoopAttemptDone = "snakepit.loop.attempt_done", Debug, "A message was handled." {
        name: Arc<str> = "the loop",
        message_id: Arc<str> = "the message",
        delivery: u32 = "which delivery of it that was",
        took: Duration = "how long the handler took",
    }
    LoopAttemptFailed = "snakepit.loop.attempt_failed", Warn, "The handling of a message failed, or its reply could not be sent." {
        name: Arc<str> = "the loop",
        message_id: Arc<str> = "the message",
        delivery: u32 = "which delivery of it that was",
        of: u32 = "after how many deliveries it is given up",
        took: Duration = "how long the handler took",
        error: Arc<str> = "why",
        then: &'static str = "what becomes of the message: it comes `again`, `bury`, or the error is the `reply`",
    }
    LoopLeaseLost = "snakepit.loop.lease_lost", Warn, "The lease of a message ended before its handling did; somebody else may get it." {
        name: Arc<str> = "the loop",
        message_id: Arc<str> = "the message",
    }
    LoopLeaseShort = "snakepit.loop.lease_short", Warn, "Leases are shorter than a shutdown and the longest handling take: messages may be delivered twice." {
        name: Arc<str> = "the loop",
        visibility: Duration = "how long messages are leased",
        shutdown: Duration = "how long a shutdown may take",
        longest: Duration = "the longest handling so far",
    }
    LoopMessageSlow = "snakepit.loop.message_slow", Warn, "A message has been in hand for longer than a lease lasts, or for twice as long as when this was told before. Its lease is extended." {
        name: Arc<str> = "the loop",
        message_id: Arc<str> = "the message",
        trace: Option<Arc<str>> = "the W3C trace context of the message's span",
        lasted: Duration = "for how long",
        since_beat: Duration = "how long ago its handler last told that it makes progress, or was begun",
    }
    LoopStuck = "snakepit.loop.stuck", Warn, "A message has been in hand for too long, or a loop does not turn." {
        name: Arc<str> = "the loop",
        message_id: Option<Arc<str>> = "the message; absent if the loop itself does not turn",
        trace: Option<Arc<str>> = "the W3C trace context of the message's span",
        lasted: Duration = "for how long",
        stack: Option<Arc<str>> = "where the worker is that has it, if it can be told",
        then: &'static str = "what is done: `tell`, `restart` or `end_process`",
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
    MailboxAcked = "snakepit.mailbox.acked", Debug, "Messages are done." {
        mailbox: Arc<str> = "the mailbox",
        messages: usize = "how many",
    }
    MailboxNacked = "snakepit.mailbox.nacked", Debug, "Messages were given back." {
        mailbox: Arc<str> = "the mailbox",
        messages: usize = "how many",
    }
    MailboxLeaseLapsed = "snakepit.mailbox.lease_lapsed", Debug, "Whoever had a message has not said in time what became of it." {
        mailbox: Arc<str> = "the mailbox",
        message_id: Arc<str> = "its id",
        delivery: u32 = "which delivery of it that was",
    }
    MailboxDeadLettered = "snakepit.mailbox.dead_lettered", Warn, "A message was given up." {
        mailbox: Arc<str> = "the mailbox",
        message_id: Arc<str> = "its id",
        reason: &'static str = "`deliveries`, `expired`, `undecodable` or `failed`",
        deliveries: u32 = "how often it was delivered",
    }
}
