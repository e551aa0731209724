//! One fault in one tier: what must exist before, and what must not be left after.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::event::PollFd;
use rustix::process::Signal;

use crate::bystander::Bystander;
use crate::deadline::{READABLE, recheck};
use crate::{
    AllowedSurvivors, CensusEntry, CensusTime, Deadline, GridCell, GridTier, HostProcess, HostReply,
    ObservedProcess, OpenAs, Tag,
};
use crate::{census, cgroup, random};

/// The paths of the two programs of this crate.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The host.
    pub host: PathBuf,
    /// The hostile workers.
    pub hostile: PathBuf,
}

/// A fault in a tier, with everything that belongs to it.
#[derive(Debug)]
pub struct Case {
    /// The tier under test.
    pub tier: GridTier,
    /// What the table expects.
    pub cell: GridCell,
    /// How hosts are started.
    pub options: OpenAs,
    token: String,
    dir: PathBuf,
    programs: Programs,
    tag: Tag,
    bystanders: Vec<Bystander>,
    runs: Vec<String>,
    groups: Vec<i32>,
    /// The processes that had left the groups before the fault. If the table allows them to survive, all of them must.
    left: Option<BTreeSet<i32>>,
    cgroups: Vec<PathBuf>,
    finished: bool,
}

impl Case {
    /// Prepares everything except the host.
    pub fn new(programs: &Programs, tier: GridTier, cell: GridCell) -> Self {
        Self::with(programs, tier, cell, OpenAs::default())
    }

    /// Like [`Case::new`], with options for the hosts.
    pub fn with(programs: &Programs, tier: GridTier, cell: GridCell, options: OpenAs) -> Self {
        let token = format!("proving-{}", random::word());
        let dir = std::env::temp_dir().join(&token);
        fs::create_dir(&dir).expect("make the case's directory");
        open_to_all(&dir);
        let home = dir.join("home");
        fs::create_dir(&home).expect("make the home");
        let programs = match options.user {
            Some(user) => {
                chown(&home, Some(user), Some(user)).expect("hand the home over");
                reachable(programs, &dir)
            }
            None => programs.clone(),
        };
        let tag = Tag::create(&dir, &format!("{token}-tag")).expect("make the tag");
        let hostile = &programs.hostile;
        let mut bystanders = vec![Bystander::plain(hostile), Bystander::of_another_run(hostile)];
        // An unprivileged user could not harm root's processes, so there is also a bystander of the same user.
        bystanders.extend(options.user.map(|user| Bystander::of_the_user(hostile, user)));
        Self {
            tier,
            cell,
            options,
            token,
            dir,
            programs,
            tag,
            bystanders,
            runs: Vec::new(),
            groups: Vec::new(),
            left: None,
            cgroups: Vec::new(),
            finished: false,
        }
    }

    /// Returns the directory of the case.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the state directory of the hosts, which custody creates.
    pub fn state(&self) -> PathBuf {
        self.dir.join("home/state")
    }

    /// Returns the tag that the workers carry.
    pub fn tag(&self) -> &Tag {
        &self.tag
    }

    /// Returns the path of the hostile workers' program, where the case's user can reach it.
    pub fn hostile(&self) -> &Path {
        &self.programs.hostile
    }

    /// Returns the host program as a command, not yet started.
    pub fn host_command(&self) -> Command {
        let mut command = match self.options.through.split_first() {
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(&self.programs.host);
                command
            }
            None => Command::new(&self.programs.host),
        };
        command.arg(&self.programs.hostile).arg(self.tag.path()).env("PROVING_CASE", &self.token);
        command
    }

    /// Starts a host that has not opened its run.
    pub fn bare_host(&self) -> HostProcess {
        HostProcess::start(self.host_command(), &self.options)
    }

    /// Starts a host and opens its run.
    pub fn host(&mut self) -> HostProcess {
        let mut host = self.bare_host();
        self.open(&mut host);
        host
    }

    /// Opens the run of a host that the test has started.
    pub fn open(&mut self, host: &mut HostProcess) {
        self.try_open(host).expect("open the run");
    }

    /// Like [`Case::open`], for a run that may be refused.
    pub fn try_open(&mut self, host: &mut HostProcess) -> HostReply {
        let reply = host.try_open(self.tier, &self.state(), &self.options);
        if let HostReply::Ok(_) = reply {
            self.runs.push(host.run.clone());
            self.cgroups.extend(host.cgroup.clone());
        }
        reply
    }

    /// Starts a host with an open run and `count` workers of a kind, and waits until they are ready.
    pub fn host_with(&mut self, count: usize, kind: &str) -> HostProcess {
        let mut host = self.host();
        host.spawn(count, kind);
        self.groups.extend(host.groups());
        host
    }

    /// Records the groups of workers that were spawned later.
    pub fn note(&mut self, host: &HostProcess) {
        self.groups.extend(host.groups());
    }

    /// Returns the processes that carry the tag.
    pub fn tagged_processes(&self) -> Vec<CensusEntry> {
        census::tagged_processes(self.tag.path())
    }

    /// Fails unless exactly `count` processes carry the tag: a fault without victims proves nothing. Also records which
    /// of them have left the groups.
    pub fn must_be_populated(&mut self, count: usize) {
        let found = self.tagged_processes();
        assert_eq!(found.len(), count, "hostile processes before the fault: {found:#?}");
        let left = found.iter().filter(|found| !self.groups.contains(&found.pgid));
        self.left = Some(left.map(|found| found.pid).collect());
    }

    /// Compares the survivors with the table.
    pub fn verdict(&mut self) {
        if self.cell.when == CensusTime::NextStart {
            self.next_start();
            // The reaper of the next host follows the marker, too, unless the keeper was only stopped and comes first.
            self.left = None;
        }
        self.workers_must_be_gone(Deadline::patient());
        self.custody_must_be_gone(Deadline::patient());
    }

    /// Starts the next host in the same state directory, and stops it again.
    pub fn next_start(&mut self) {
        let mut host = self.host();
        host.ask("stop").expect("stop the next host");
        host.say("return");
        assert!(host.wait().success(), "the next host ends well");
    }

    /// Waits until only workers are left that the table allows to survive.
    pub fn workers_must_be_gone(&self, deadline: Deadline) {
        if self.cell.allowed == AllowedSurvivors::Nobody {
            assert!(self.tag.is_free_before(deadline), "survivors: {:#?}", self.tagged_processes());
        }
        loop {
            let unexpected_survivors = self.unexpected_survivors();
            if unexpected_survivors.is_empty() {
                break;
            }
            assert!(wait_for_one(&unexpected_survivors, deadline), "survivors: {unexpected_survivors:#?}");
        }
        self.who_left_must_survive();
    }

    /// Fails if a worker is left now that the table does not allow. For what must be over before an answer comes.
    pub fn workers_must_be_gone_already(&self) {
        if self.cell.allowed == AllowedSurvivors::Nobody {
            // A process that reads another one's maps at the moment of that one's end holds its memory, and the tag in
            // it, a little longer. The census of another test may do so.
            let free = self.tag.is_free();
            let found = self.tagged_processes();
            assert!(free || found.is_empty(), "survivors: {found:#?}");
            assert!(self.tag.is_free_before(Deadline::patient()), "survivors that no list shows");
        } else {
            let unexpected_survivors = self.unexpected_survivors();
            assert!(unexpected_survivors.is_empty(), "survivors: {unexpected_survivors:#?}");
            self.who_left_must_survive();
        }
    }

    /// Fails unless the survivors of the group tier are exactly the processes that had left. With fewer, the table
    /// would be wrong.
    fn who_left_must_survive(&self) {
        if let (AllowedSurvivors::WhoLeftTheGroup, Some(left)) = (self.cell.allowed, &self.left) {
            let found = self.tagged_processes();
            let survivors: BTreeSet<i32> = found.iter().map(|found| found.pid).collect();
            assert_eq!(survivors, *left, "who left the groups, and who survives: {found:#?}");
        }
    }

    /// Waits until no keeper and no shim of this case's runs is left.
    pub fn custody_must_be_gone(&self, deadline: Deadline) {
        loop {
            let words = self.words();
            let found: Vec<_> =
                census::mentioning(&words).into_iter().filter(CensusEntry::is_custody).collect();
            if found.is_empty() {
                return;
            }
            assert!(wait_for_one(&found, deadline), "keeper or shims are left: {found:#?}");
        }
    }

    /// Returns words that identify every process and file of this case.
    pub fn words(&self) -> Vec<String> {
        std::iter::once(self.token.clone()).chain(self.runs.iter().cloned()).collect()
    }

    /// Forgets the runs so far, for a case that judges each of many rounds.
    pub fn forget_runs(&mut self) {
        self.runs.clear();
        self.groups.clear();
        self.left = None;
    }

    /// Allows processes that left the groups to survive or not from here on, because custody may still find them by the
    /// marker.
    pub fn who_left_may_end(&mut self) {
        self.left = None;
    }

    /// Records a group as created by custody.
    pub fn note_group(&mut self, group: i32) {
        self.groups.push(group);
    }

    /// Returns the cgroups that this case's runs had.
    pub fn cgroups(&self) -> &[PathBuf] {
        &self.cgroups
    }

    /// Records a run that was opened without [`Case::open`].
    pub fn note_run(&mut self, run: &str) {
        self.runs.push(run.to_owned());
    }

    /// Runs the reaper on the state directory as the case's user, and returns its report.
    pub fn cleanup(&self) -> HostReply {
        let mut host = self.bare_host();
        let reply = host.ask(&format!("reap state={}", self.state().display()));
        host.say("return");
        host.wait();
        reply
    }

    /// Returns the run directories, except one that a keeper has emptied and set aside.
    pub fn run_dirs(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.state().join("runs")) else { return Vec::new() };
        let names = entries.map(|entry| entry.expect("a run directory").path());
        names.filter(|path| !path.ends_with(".old")).collect()
    }

    /// Adds a bystander.
    pub fn beside(&mut self, bystander: Bystander) {
        self.bystanders.push(bystander);
    }

    /// Returns what was done to the bystanders, in words.
    pub fn harm(&self) -> Vec<String> {
        self.bystanders.iter().filter_map(Bystander::harm).collect()
    }

    /// Returns the hostile processes that the table does not allow to survive.
    pub fn unexpected_survivors(&self) -> Vec<CensusEntry> {
        self.tagged_processes().into_iter().filter(|found| !self.cell.allows(found, &self.groups)).collect()
    }

    /// Ends the allowed survivors, including fork bombs. After this, no process can take the tag.
    pub fn end_allowed_survivors(&mut self) {
        self.tag.halt();
        self.end_survivors_and_go_on();
    }

    /// Ends the allowed survivors in the middle of a case.
    pub fn end_survivors_and_go_on(&mut self) {
        self.left = None;
        let deadline = Deadline::patient();
        while !self.tag.is_free() {
            for found in self.tagged_processes() {
                if let Some(process) = ObservedProcess::open(found.pid).expect("pidfd_open") {
                    process.signal(Signal::KILL);
                    process.signal(Signal::CONT);
                }
            }
            if self.tag.is_free_before(Deadline::after(std::time::Duration::from_millis(20))) {
                break;
            }
            assert!(deadline.left().is_some(), "cannot end {:#?}", self.tagged_processes());
        }
    }

    /// Proves that the case leaves nothing: no process, no run directory, no cgroup, and bystanders untouched.
    pub fn finish(mut self) {
        self.end_allowed_survivors();
        if self.state().exists() {
            let told = self.cleanup().expect("the reaper at the end");
            assert_eq!(self.run_dirs(), Vec::<PathBuf>::new(), "run directories are left: {told:?}");
        }
        for cgroup in &self.cgroups {
            recheck(Deadline::patient(), "the end of the run's cgroup", || (!cgroup.exists()).then_some(()));
        }
        for bystander in self.bystanders.drain(..) {
            bystander.must_be_untouched();
        }
        // A killed process stays readable until it is a zombie, and the test cannot watch its end.
        recheck(Deadline::patient(), "the end of everything that mentions the case", || {
            census::mentioning(&self.words()).is_empty().then_some(())
        });
        self.finished = true;
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        if !self.finished {
            // The test has already failed, but its processes must not outlive it.
            self.tag.halt();
            for found in census::mentioning(&self.words()) {
                if let Ok(Some(process)) = ObservedProcess::open(found.pid) {
                    process.signal(Signal::KILL);
                }
            }
            self.cgroups.iter().for_each(|cgroup| cgroup::try_remove_tree(cgroup));
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn wait_for_one(found: &[CensusEntry], deadline: Deadline) -> bool {
    let opened: Vec<ObservedProcess> =
        found.iter().filter_map(|f| ObservedProcess::open(f.pid).ok().flatten()).collect();
    if opened.len() < found.len() {
        return deadline.left().is_some();
    }
    let mut fds: Vec<_> = opened.iter().map(|process| PollFd::new(process, READABLE)).collect();
    deadline.readable(&mut fds)
}

fn open_to_all(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("chmod");
}

/// Copies the programs to a place that every user can reach, because a build directory may lie below a closed home.
/// Another process makes the copy: a descriptor of this process that is open for writing could be inherited by what
/// another test starts at the same moment, and the program could not be executed until that copy is closed.
fn reachable(programs: &Programs, dir: &Path) -> Programs {
    let copy = |from: &Path, name: &str| {
        let to = dir.join(name);
        let copied = Command::new("install").args(["-m", "755"]).arg(from).arg(&to).status();
        assert!(copied.expect("run `install`").success(), "copy a program");
        to
    };
    Programs { host: copy(&programs.host, "host"), hostile: copy(&programs.hostile, "hostile") }
}
