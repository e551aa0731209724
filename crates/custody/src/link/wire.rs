//! The messages between host and keeper: one per packet, with descriptors attached.
//!
//! Both ends are built together from this file, so the format has no version. The file uses only std.

use std::borrow::Cow;
use std::ffi::CStr;

/// The size of the largest orders that travel inline. Larger orders travel as a memfd, the first descriptor.
pub(crate) const MAX_INLINE: usize = 32 * 1024;
/// The size of a buffer for any message with inline orders.
pub(crate) const MAX_MESSAGE: usize = MAX_INLINE + 1024;
/// The size of the largest orders. It is far above what exec accepts.
pub(crate) const MAX_ORDERS: usize = 16 * 1024 * 1024;
/// The most descriptors in one message. The kernel's own limit is 253.
pub(crate) const MAX_FDS: usize = 250;

/// Defines an enum whose values travel as one byte.
macro_rules! wire_bytes {
    ($(
        $(#[$attr:meta])*
        enum $name:ident { $($(#[$doc:meta])* $variant:ident = $byte:literal,)* }
    )*) => {$(
        $(#[$attr])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub(crate) enum $name {
            $($(#[$doc])* $variant = $byte,)*
        }

        impl $name {
            /// Returns the value with this number.
            pub(crate) fn from_byte(byte: u8) -> Option<Self> {
                match byte {
                    $($byte => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }

        impl MessageField for $name {
            fn put(&self, out: &mut MessageWriter) {
                out.u8(*self as u8);
            }

            fn take(take: &mut MessageReader<'_>) -> Option<Self> {
                Self::from_byte(take.u8()?)
            }
        }
    )*};
}

/// Defines a struct that travels field by field.
macro_rules! message_parts {
    ($(
        $(#[$attr:meta])*
        struct $name:ident { $($(#[$doc:meta])* $field:ident: $type:ty,)* }
    )*) => {$(
        $(#[$attr])*
        #[derive(Debug)]
        pub(crate) struct $name {
            $($(#[$doc])* pub(crate) $field: $type,)*
        }

        impl MessageField for $name {
            fn put(&self, out: &mut MessageWriter) {
                $(self.$field.put(out);)*
            }

            fn take(take: &mut MessageReader<'_>) -> Option<Self> {
                Some(Self { $($field: MessageField::take(take)?,)* })
            }
        }
    )*};
}

/// Defines messages: the number of each one, then its fields in the order in which they travel.
macro_rules! messages {
    ($(
        $(#[$attr:meta])*
        enum $name:ident {
            $($(#[$doc:meta])* $number:literal = $variant:ident $({ $($field:ident: $type:ty),* })?,)*
        }
    )*) => {$(
        $(#[$attr])*
        #[derive(Debug)]
        pub(crate) enum $name {
            $($(#[$doc])* $variant $({ $($field: $type),* })?,)*
        }

        impl $name {
            /// Encodes the message.
            pub(crate) fn encode(&self) -> Vec<u8> {
                let mut out = MessageWriter::default();
                match self {
                    $(Self::$variant $({ $($field),* })? => {
                        out.u8($number);
                        $($($field.put(&mut out);)*)?
                    })*
                }
                out.0
            }

            /// Decodes a message. Returns `None` if the bytes are not a valid message.
            pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
                let mut take = MessageReader(bytes);
                Some(match take.u8()? {
                    $($number => Self::$variant $({ $($field: MessageField::take(&mut take)?),* })?,)*
                    _ => return None,
                })
            }
        }
    )*};
}

wire_bytes! {
    /// The tier, as messages and records carry it.
    enum WireTier {
        /// A PID namespace per worker.
        Namespace = 1,
        /// A subreaper per worker.
        Shim = 2,
        /// Process groups only.
        Group = 3,
    }

    /// The processes that a signal reaches.
    enum SignalReach {
        /// The worker's group.
        Group = 1,
        /// The worker's main process.
        Process = 2,
    }

    /// The step of a spawn that failed.
    enum SpawnStage {
        /// Reading the request.
        Request = 1,
        /// Appending to the ledger.
        Ledger = 2,
        /// Creating the sockets to shim and gate.
        Sockets = 3,
        /// Cloning the shim.
        CloneShim = 4,
        /// Setting the shim up.
        ShimSetup = 5,
        /// Mapping the user in a new user namespace.
        UserMap = 6,
        /// Mounting the namespace's own /proc.
        MountProc = 7,
        /// Cloning the worker.
        CloneWorker = 8,
        /// Reading the worker's identity.
        Identity = 9,
        /// Creating the worker's session or group.
        Session = 10,
        /// Taking the terminal.
        Terminal = 11,
        /// Arranging the descriptors.
        Descriptors = 12,
        /// Changing the directory.
        Cwd = 13,
        /// Setting a resource limit.
        Rlimit = 14,
        /// Setting the niceness.
        Nice = 15,
        /// Setting `oom_score_adj`.
        OomScore = 16,
        /// Running the program.
        Exec = 17,
        /// The shim ended before the program ran.
        ShimDied = 18,
        /// The run is stopping.
        Stopping = 19,
        /// Requesting subreaper, pidfd or signalfd: what every tier except `group` needs from the kernel.
        Kernel = 20,
        /// The keeper ended before the program ran.
        KeeperDied = 21,
        /// Joining the run's cgroup.
        Cgroup = 22,
    }
}

messages! {
    /// A message from the host to the keeper.
    enum ToKeeper {
        /// The first message. Descriptors: lock, run directory, host pidfd, liveness pipe, and the cgroup, if there is
        /// one.
        1 = Init { init: KeeperInit },
        /// A command to start. Descriptors: the socket for the answer, the orders themselves if they are not inline,
        /// then one per target.
        2 = Spawn { key: u64, worker: Vec<u8>, orders: Vec<u8> },
        /// A signal for a worker.
        3 = Signal { key: u64, signal: i32, reach: SignalReach },
        /// Ends a worker and everything that it started.
        4 = Kill { key: u64 },
        /// Ends all workers and the keeper.
        5 = Finish,
    }

    /// A message from the keeper to the host.
    enum ToHost {
        /// The keeper serves.
        1 = Ready,
        /// The keeper cannot serve.
        2 = Unable { stage: SpawnStage, errno: i32 },
        /// The worker and everything that it started are gone.
        5 = Exit { key: u64, end: WorkerEnd },
        /// The worker was stopped by a signal.
        6 = Stopped { key: u64, signal: i32 },
        /// The worker continues.
        7 = Continued { key: u64 },
        /// A process outlived its shim and was killed.
        8 = Escaped { pid: i32 },
        /// A record could not be written.
        9 = LedgerTrouble { errno: i32 },
        /// A process of a worker now belongs to another user. The run may not signal the process and does not wait for
        /// it. Key 0 means that the worker is unknown.
        10 = Unkillable { key: u64, pid: i32 },
    }

    /// The keeper's answer to the thread that waits for a spawn, on a separate socket. This saves one wake-up compared
    /// with the host's common socket.
    enum SpawnAnswer {
        /// The worker's program runs. Descriptor: the worker's pidfd.
        1 = Spawned { pid: i32, shim: i32 },
        /// The worker's program does not run, and nothing of the attempt is left.
        2 = Failed { stage: SpawnStage, errno: i32 },
    }
}

message_parts! {
    /// The parameters that the keeper receives once.
    struct KeeperInit {
        /// The run's id, 32 hex digits.
        run: Vec<u8>,
        /// The tier of all its workers.
        tier: WireTier,
        /// Whether keeper and shims stay in the caller's session.
        caller_session: bool,
        /// Whether records are synced to the disk.
        sync: bool,
        /// The slot of the next record.
        next_slot: u64,
        /// The boot id of the machine.
        boot: [u8; 16],
        /// The PID namespace that host and keeper share.
        pidns: u64,
        /// Whether the kernel gives every process its own inode.
        pidfs: bool,
        /// The number of clock ticks by which start times are shifted in the time namespace that host and keeper share.
        clock_offset: u64,
        /// The signals that were ignored when the host was started. Bit n-1 is signal n.
        ignored: u64,
        /// The signals that were blocked when the host was started.
        blocked: u64,
        /// Faults to inject, in builds with failpoints.
        failpoints: Vec<u8>,
    }

    /// How a worker's main process ended.
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct WorkerEnd {
        /// The wait status, or -1 if the shim died before it could report.
        status: i32,
        /// The largest resident memory.
        max_rss_kib: u64,
        /// Processor time in user mode.
        user_us: u64,
        /// Processor time in the kernel.
        system_us: u64,
    }
}

impl WorkerEnd {
    /// The end of a worker whose shim could not report it.
    pub(crate) const LOST: Self = Self { status: -1, max_rss_kib: 0, user_us: 0, system_us: 0 };
}

/// Strings as exec takes them: one after another, each ended by a NUL. The process at the gate needs no copy of them.
#[derive(Debug, Default)]
pub(crate) struct CStrings<'a>(Cow<'a, [u8]>);

impl CStrings<'_> {
    /// Appends a string made of parts, none of which contains a NUL.
    pub(crate) fn push(&mut self, parts: &[&[u8]]) {
        let bytes = self.0.to_mut();
        for part in parts {
            bytes.extend_from_slice(part);
        }
        bytes.push(0);
    }

    /// Creates a list of one string.
    pub(crate) fn one(string: &[u8]) -> Self {
        let mut strings = Self::default();
        strings.push(&[string]);
        strings
    }

    /// Returns each string with its NUL.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &CStr> {
        self.0.split_inclusive(|byte| *byte == 0).filter_map(|bytes| CStr::from_bytes_with_nul(bytes).ok())
    }
}

/// What the process at the gate has to run. The keeper forwards the orders without reading them.
#[derive(Debug)]
pub(crate) struct LaunchOrders<'a> {
    /// The key of the spawn, counted from 1 within the run.
    pub(crate) key: u64,
    /// The program's path, already resolved.
    pub(crate) program: CStrings<'a>,
    /// The program's arguments, including the zeroth.
    pub(crate) argv: CStrings<'a>,
    /// The program's environment, as `KEY=value`.
    pub(crate) envp: CStrings<'a>,
    /// The program's working directory.
    pub(crate) cwd: CStrings<'a>,
    /// The number that each descriptor gets.
    pub(crate) targets: Vec<i32>,
    /// Resource, soft limit and hard limit.
    pub(crate) rlimits: Vec<(i32, u64, u64)>,
    /// The program's niceness.
    pub(crate) nice: Option<i32>,
    /// The program's `oom_score_adj`.
    pub(crate) oom_score_adj: Option<i32>,
    /// Whether the program takes the terminal on its standard input.
    pub(crate) foreground: bool,
}

impl<'a> LaunchOrders<'a> {
    /// Encodes the message.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = MessageWriter::default();
        out.u64(self.key);
        for strings in [&self.program, &self.argv, &self.envp, &self.cwd] {
            out.bytes(&strings.0);
        }
        out.list(&self.targets, |out, target| out.i32(*target));
        out.list(&self.rlimits, |out, (resource, soft, hard)| out.i32(*resource).u64(*soft).u64(*hard));
        out.list(self.nice.as_slice(), |out, nice| out.i32(*nice));
        out.list(self.oom_score_adj.as_slice(), |out, adj| out.i32(*adj));
        out.bool(self.foreground);
        out.0
    }

    /// Decodes a message. Returns `None` if the bytes are not a valid message.
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let mut take = MessageReader(bytes);
        Some(Self {
            key: take.u64()?,
            program: CStrings(Cow::Borrowed(take.slice()?)),
            argv: CStrings(Cow::Borrowed(take.slice()?)),
            envp: CStrings(Cow::Borrowed(take.slice()?)),
            cwd: CStrings(Cow::Borrowed(take.slice()?)),
            targets: take.list(MessageReader::i32)?,
            rlimits: take.list(|take| Some((take.i32()?, take.u64()?, take.u64()?)))?,
            nice: take.list(MessageReader::i32)?.first().copied(),
            oom_score_adj: take.list(MessageReader::i32)?.first().copied(),
            foreground: take.bool()?,
        })
    }
}

/// Builds a message.
#[derive(Default)]
pub(crate) struct MessageWriter(pub(crate) Vec<u8>);

impl MessageWriter {
    pub(crate) fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    fn bool(&mut self, value: bool) -> &mut Self {
        self.u8(value.into())
    }

    pub(crate) fn i32(&mut self, value: i32) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.u64(value.len() as u64).0.extend_from_slice(value);
        self
    }

    fn list<T>(&mut self, items: &[T], each: impl for<'a> Fn(&'a mut Self, &T) -> &'a mut Self) {
        self.u64(items.len() as u64);
        for item in items {
            each(self, item);
        }
    }
}

/// Reads a message. Never reads past its end.
pub(crate) struct MessageReader<'a>(pub(crate) &'a [u8]);

impl<'a> MessageReader<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn bool(&mut self) -> Option<bool> {
        self.u8().map(|byte| byte == 1)
    }

    pub(crate) fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn slice(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.u64()?).ok()?;
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    fn list<T>(&mut self, each: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.u64()?;
        (0..count).map(|_| each(self)).collect()
    }
}

/// A value in a message.
pub(crate) trait MessageField: Sized {
    /// Appends the value to a message.
    fn put(&self, out: &mut MessageWriter);
    /// Reads a value from a message.
    fn take(take: &mut MessageReader<'_>) -> Option<Self>;
}

macro_rules! plain_fields {
    ($($type:ident),*) => {$(
        impl MessageField for $type {
            fn put(&self, out: &mut MessageWriter) {
                out.$type(*self);
            }

            fn take(take: &mut MessageReader<'_>) -> Option<Self> {
                take.$type()
            }
        }
    )*};
}

plain_fields!(bool, i32, u64);

impl MessageField for Vec<u8> {
    fn put(&self, out: &mut MessageWriter) {
        out.bytes(self);
    }

    fn take(take: &mut MessageReader<'_>) -> Option<Self> {
        take.slice().map(<[u8]>::to_vec)
    }
}

impl<const N: usize> MessageField for [u8; N] {
    fn put(&self, out: &mut MessageWriter) {
        out.0.extend_from_slice(self);
    }

    fn take(take: &mut MessageReader<'_>) -> Option<Self> {
        take.array()
    }
}
