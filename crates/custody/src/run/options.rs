//! The options of custody, with the defaults of the specification.

use std::path::PathBuf;
use std::time::Duration;

/// How a run keeps its workers. `CustodyOptions::default()` suits production.
///
/// | | recommended for CI | recommended for production |
/// |---|---|---|
/// | `cleanup_on_stop_timeout_ms` | 1000: a hanging test is killed soon | 3000, or what your workers need to end in order |
/// | `containment` | `auto` | `auto`, or `namespace` for code that you do not trust |
/// | `ledger_sync` | `off` | `off`; `data` only on file systems that lose writes of live machines |
/// | `reap_interval` | 60s | 60s |
///
/// The defaults do not depend on the build profile, so tests run with the same values as production.
///
/// ```
/// use snakepit_custody::{Containment, CustodyOptions};
///
/// let options = CustodyOptions::default()
///     .containment(Containment::Shim)
///     .cleanup_on_stop_timeout_ms(10_000)
///     .state_dir("/var/lib/example");
/// assert_eq!(options.grace().as_secs(), 10);
/// ```
#[derive(Clone, Debug)]
#[must_use]
#[non_exhaustive]
pub struct CustodyOptions {
    /// Whether the barrier sends TERM and waits before it kills. If not, every stop kills at once.
    pub cleanup_on_stop: bool,
    /// How long all workers together have between TERM and KILL. The workers of a pool are first asked to end in their
    /// own protocol. For them, the time counts from that request.
    pub cleanup_on_stop_timeout_ms: u64,
    /// How often custody checks for ended processes on systems without pidfds.
    pub cleanup_poll_interval_ms: u64,
    /// How long one round of KILL and scan waits before the next round.
    pub cleanup_retry_interval_ms: u64,
    /// How many rounds of KILL and scan are made before a survivor is reported.
    pub cleanup_max_retries: u32,
    /// Whether TERM goes to the worker's whole group or only to its main process. KILL always reaches all processes.
    pub process_group_kill: bool,
    /// The tier that contains the workers.
    pub containment: Containment,
    /// Whether ledger records are synced to the disk.
    pub ledger_sync: LedgerSync,
    /// Where runs are recorded. For `None`, see [`crate::default_state_dir`].
    pub state_dir: Option<PathBuf>,
    /// How often this host looks for dead runs of other hosts. Zero means never.
    pub reap_interval: Duration,
    /// Whether keeper and shims have their own sessions or stay in the caller's.
    pub session: Session,
}

impl Default for CustodyOptions {
    fn default() -> Self {
        Self {
            cleanup_on_stop: true,
            cleanup_on_stop_timeout_ms: 3000,
            cleanup_poll_interval_ms: 50,
            cleanup_retry_interval_ms: 100,
            cleanup_max_retries: 10,
            process_group_kill: true,
            containment: Containment::Auto,
            ledger_sync: LedgerSync::Off,
            state_dir: None,
            reap_interval: Duration::from_mins(1),
            session: Session::Own,
        }
    }
}

/// Setters.
impl CustodyOptions {
    /// Kills workers at once when they are stopped. By default they get TERM first, and time to end.
    pub fn without_cleanup_on_stop(mut self) -> Self {
        self.cleanup_on_stop = false;
        self
    }

    /// Sets how long all workers together have between TERM and KILL. The workers of a pool are first asked to end in
    /// their own protocol. For them, the time counts from that request. The default is 3000.
    pub fn cleanup_on_stop_timeout_ms(mut self, millis: u64) -> Self {
        self.cleanup_on_stop_timeout_ms = millis;
        self
    }

    /// Sets how often custody checks for ended processes on systems without pidfds. The default is 50.
    pub fn cleanup_poll_interval_ms(mut self, millis: u64) -> Self {
        self.cleanup_poll_interval_ms = millis;
        self
    }

    /// Sets how long one round of KILL and scan waits before the next round. The default is 100.
    pub fn cleanup_retry_interval_ms(mut self, millis: u64) -> Self {
        self.cleanup_retry_interval_ms = millis;
        self
    }

    /// Sets how many rounds of KILL and scan are made before a survivor is reported. The default is 10.
    pub fn cleanup_max_retries(mut self, rounds: u32) -> Self {
        self.cleanup_max_retries = rounds;
        self
    }

    /// Sends TERM only to a worker's main process. By default its whole group gets TERM. KILL always reaches all
    /// processes.
    pub fn without_process_group_kill(mut self) -> Self {
        self.process_group_kill = false;
        self
    }

    /// Sets the tier that contains the workers. The default is [`Containment::Auto`].
    pub fn containment(mut self, containment: Containment) -> Self {
        self.containment = containment;
        self
    }

    /// Sets whether ledger records are synced to the disk. The default is [`LedgerSync::Off`].
    pub fn ledger_sync(mut self, sync: LedgerSync) -> Self {
        self.ledger_sync = sync;
        self
    }

    /// Sets where runs are recorded. The default is [`crate::default_state_dir`].
    pub fn state_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.state_dir = Some(dir.into());
        self
    }

    /// Sets how often this host looks for dead runs of other hosts. Zero means never. The default is a minute.
    pub fn reap_interval(mut self, interval: Duration) -> Self {
        self.reap_interval = interval;
        self
    }

    /// Sets whether keeper and shims have their own sessions or stay in the caller's. The default is [`Session::Own`].
    pub fn session(mut self, session: Session) -> Self {
        self.session = session;
        self
    }
}

impl CustodyOptions {
    /// Returns how long workers have between TERM and KILL: `cleanup_on_stop_timeout_ms`, or zero without
    /// `cleanup_on_stop`.
    pub fn grace(&self) -> Duration {
        self.allowed(Duration::from_millis(self.cleanup_on_stop_timeout_ms))
    }

    /// Returns the grace that a caller gets when it asks for `grace`: zero without `cleanup_on_stop`.
    pub(crate) fn allowed(&self, grace: Duration) -> Duration {
        if self.cleanup_on_stop { grace } else { Duration::ZERO }
    }

    pub(crate) fn poll_interval(&self) -> Duration {
        Duration::from_millis(self.cleanup_poll_interval_ms)
    }

    pub(crate) fn retry_interval(&self) -> Duration {
        Duration::from_millis(self.cleanup_retry_interval_ms)
    }
}

/// The tier that a host asks for. A tier that is not available is an error and never silently replaced by a lower one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Containment {
    /// `Shim`, backed by `cgroup.kill` if this user may create a cgroup v2. On systems other than Linux, `Group`.
    #[default]
    Auto,
    /// A PID namespace per worker. It holds even if keeper and shims are stopped and the host is killed.
    Namespace,
    /// A subreaper per worker. Needs no privilege.
    Shim,
    /// Process groups only. A process that leaves the group escapes.
    Group,
}

/// The tier of a run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Tier {
    /// A PID namespace per worker.
    Namespace,
    /// A subreaper per worker.
    Shim,
    /// Process groups only.
    Group,
}

impl Tier {
    /// All tiers, the strongest first.
    pub const ALL: [Self; 3] = [Self::Namespace, Self::Shim, Self::Group];

    /// Returns the name of the tier, as it is spelled in configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Namespace => "namespace",
            Self::Shim => "shim",
            Self::Group => "group",
        }
    }
}

impl From<Tier> for Containment {
    fn from(tier: Tier) -> Self {
        match tier {
            Tier::Namespace => Self::Namespace,
            Tier::Shim => Self::Shim,
            Tier::Group => Self::Group,
        }
    }
}

impl std::fmt::Display for Tier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// Whether a record must reach the disk before the spawn continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LedgerSync {
    /// Only `write`. The record survives the death of every process, and a crash of the machine also ends the
    /// processes.
    #[default]
    Off,
    /// `fdatasync` after each record.
    Data,
}

/// Whether keeper and shims have their own sessions or stay in the caller's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Session {
    /// Their own sessions, so that no signal of the terminal reaches them. For services.
    #[default]
    Own,
    /// The caller's session, in their own groups, so that job control works. For programs on a terminal.
    Caller,
}
