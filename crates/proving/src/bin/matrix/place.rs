//! The places in which hosts run, and how a host gets there.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use snakepit_proving::bystander::Bystander;
use snakepit_proving::cgroup::TestCgroup;
use snakepit_proving::deadline::recheck;
use snakepit_proving::{Case, Deadline, OpenAs, census};

use crate::fault::MatrixFault;

/// A place in which a host runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HostPlace {
    Root,
    Unprivileged,
    UserNamespace,
    Docker,
    Podman,
    Gvisor,
    OldKernel,
    PidNamespace,
    PidNamespaceOuterProc,
    TimeNamespace,
    NoCgroup,
    DelegatedCgroup,
    ThreadedCgroup,
}

impl HostPlace {
    pub(crate) const ALL: [Self; 13] = [
        Self::Root,
        Self::Unprivileged,
        Self::UserNamespace,
        Self::Docker,
        Self::Podman,
        Self::Gvisor,
        Self::OldKernel,
        Self::PidNamespace,
        Self::PidNamespaceOuterProc,
        Self::TimeNamespace,
        Self::NoCgroup,
        Self::DelegatedCgroup,
        Self::ThreadedCgroup,
    ];

    /// Returns the name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Unprivileged => "unprivileged",
            Self::UserNamespace => "user-namespace",
            Self::Docker => "docker",
            Self::Podman => "podman",
            Self::Gvisor => "gvisor",
            Self::OldKernel => "old-kernel",
            Self::PidNamespace => "pid-namespace",
            Self::PidNamespaceOuterProc => "pid-namespace-outer-proc",
            Self::TimeNamespace => "time-namespace",
            Self::NoCgroup => "no-cgroup",
            Self::DelegatedCgroup => "delegated-cgroup",
            Self::ThreadedCgroup => "threaded-cgroup",
        }
    }

    /// Returns the text in the table.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Root => "root, on the machine itself",
            Self::Unprivileged => "an ordinary user, without a cgroup",
            Self::UserNamespace => "a user namespace of that user (`unshare -Ur`)",
            Self::Docker => "as Docker starts it (imitated)",
            Self::Podman => "as Podman starts it (imitated)",
            Self::Gvisor => "calls as gVisor has them (imitated)",
            Self::OldKernel => "a kernel without pidfds (imitated)",
            Self::PidNamespace => "a PID namespace with its own `/proc`",
            Self::PidNamespaceOuterProc => "a PID namespace with the outer `/proc`",
            Self::TimeNamespace => "a time namespace (`unshare -T --boottime 100000`)",
            Self::NoCgroup => "root, no cgroup to be seen",
            Self::DelegatedCgroup => "an ordinary user, a cgroup v2 delegated to them",
            Self::ThreadedCgroup => "root, in a threaded cgroup",
        }
    }

    /// Reports whether the host belongs to an ordinary user.
    fn is_ordinary(self) -> bool {
        matches!(self, Self::Unprivileged | Self::UserNamespace | Self::DelegatedCgroup)
    }
}

/// The maximum number of processes of a fork bomb.
const LIMIT: u64 = 200;

/// A place that is ready for one fault.
pub(crate) struct PlaceSetup {
    pub(crate) options: OpenAs,
    groups: Vec<TestCgroup>,
    beside: Vec<Bystander>,
}

impl PlaceSetup {
    /// Creates the place. The error says why that is impossible on this machine.
    pub(crate) fn prepare(place: HostPlace, fault: MatrixFault, hostile: &Path) -> Result<Self, String> {
        let us = std::env::current_exe().map_err(|error| error.to_string())?.display().to_string();
        let options = OpenAs { user: place.is_ordinary().then(own_user), ..OpenAs::default() };
        let mut scene = Self { options, groups: Vec::new(), beside: Vec::new() };
        match place {
            HostPlace::Root | HostPlace::Unprivileged => {}
            HostPlace::UserNamespace => scene.go_through(&["unshare", "--user", "--map-root-user"]),
            HostPlace::NoCgroup | HostPlace::TimeNamespace => scene.go_through(&[&us, "enter", place.name()]),
            // As in a container, processes of others must not be visible.
            HostPlace::Docker | HostPlace::Podman | HostPlace::Gvisor | HostPlace::OldKernel => {
                scene.enter_pid_namespace(hostile, &["--pid", "--mount"]);
                scene.go_through(&[&us, "enter", place.name()]);
            }
            HostPlace::PidNamespace => scene.enter_pid_namespace(hostile, &["--pid", "--mount"]),
            HostPlace::PidNamespaceOuterProc => scene.enter_pid_namespace(hostile, &["--pid"]),
            HostPlace::DelegatedCgroup => {
                let group = version_2()?;
                group.delegate_to(scene.options.user.expect("an ordinary user"));
                scene.join(group, "cgroup.procs");
            }
            HostPlace::ThreadedCgroup => {
                let group = version_2()?;
                let threads = group.dir().join("threads");
                fs::create_dir(&threads).map_err(|error| error.to_string())?;
                fs::write(threads.join("cgroup.type"), "threaded").map_err(|error| error.to_string())?;
                scene.join(group, "cgroup.procs");
                scene.options.join.push(threads.join("cgroup.threads"));
            }
        }
        if fault.is_bomb() {
            scene.limit_processes()?;
        }
        Ok(scene)
    }

    /// Moves the case into this place.
    pub(crate) fn take_in(&mut self, case: &mut Case) {
        self.beside.drain(..).for_each(|bystander| case.beside(bystander));
        if let Some(user) = self.options.user {
            // A user namespace does not map root, and custody refuses a state directory below the directory of another
            // user.
            chown(case.dir(), Some(user), Some(user)).expect("hand the case's directory over");
        }
    }

    /// Returns the control groups that were created for the place.
    pub(crate) fn groups(&self) -> Vec<PathBuf> {
        self.groups.iter().map(|group| group.dir().to_owned()).collect()
    }

    /// Adds a command that runs the words after it.
    fn go_through(&mut self, words: &[&str]) {
        self.options.through.extend(words.iter().map(|&word| word.to_owned()));
    }

    fn join(&mut self, group: TestCgroup, file: &str) {
        self.options.join.push(group.dir().join(file));
        self.groups.push(group);
    }

    /// Enters a namespace whose first process is foreign and stays alive. The end of the host must not end the
    /// namespace.
    fn enter_pid_namespace(&mut self, hostile: &Path, which: &[&str]) {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
        // With SIGCHLD ignored, the process need not reap.
        command.args(["sh", "-c", "trap '' CHLD; exec \"$@\"", "sh"]).arg(hostile).arg("innocent");
        let outside = Bystander::of_a_command(&mut command);
        // `unshare` mounts `/proc` before it runs this program.
        let reused_pid = format!("{} innocent", hostile.display());
        let first = recheck(Deadline::patient(), "the first process of a PID namespace", || {
            let children = census::children(outside.process().pid());
            children.into_iter().find(|child| child.cmdline == reused_pid).map(|child| child.pid)
        });
        let target = first.to_string();
        let mut through = vec!["nsenter", "--target", &target];
        through.extend(which);
        self.go_through(&through);
        let mut inside = Command::new(through[0]);
        inside.args(&through[1..]).arg(hostile).arg("innocent");
        // The process inside comes first, because it would not outlive the namespace.
        self.beside.extend([Bystander::of_a_command(&mut inside), outside]);
    }

    /// Limits the processes of a bomb: for a user by a resource limit, for root by a cgroup.
    fn limit_processes(&mut self) -> Result<(), String> {
        if self.options.user.is_some() {
            self.options.processes = Some(LIMIT);
            return Ok(());
        }
        let group =
            TestCgroup::below_ours("pids").ok_or("no cgroup with the controller pids to hold a bomb")?;
        group.write("pids.max", &LIMIT.to_string());
        self.join(group, "cgroup.procs");
        Ok(())
    }
}

fn version_2() -> Result<TestCgroup, String> {
    TestCgroup::below_ours("").ok_or_else(|| "no cgroup v2 that we may create".to_owned())
}

/// Returns an unused user, a different one for each cell. A limit on processes counts all processes of a user,
/// including dead ones of the previous cell that are not reaped yet.
fn own_user() -> u32 {
    static CELLS: AtomicU32 = AtomicU32::new(0);
    // Larger than any pid.
    const APART: u32 = 5_000_000;
    100_000 + std::process::id() + CELLS.fetch_add(1, Ordering::Relaxed) * APART
}
