//! The texts of all errors of custody.

use std::io;
use std::path::Path;

use snakepit_error_texts::{ErrorTexts, every_variant};

use crate::doctor::tiers;
use crate::link::keeper_thread;
use crate::link::wire::{SpawnStage, ToHost};
use crate::{
    DirError, InvalidId, KeepError, NotesError, OpenError, PidScopeError, Signal, SignalError, SpawnError,
    StateError, Tier, WorkerId,
};

fn denied() -> io::Error {
    io::Error::from_raw_os_error(libc::EACCES)
}

fn missing() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOENT)
}

fn full() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOSPC)
}

fn unable(stage: SpawnStage, errno: i32) -> OpenError {
    OpenError::Keeper { reason: keeper_thread::not_ready(Some(&ToHost::Unable { stage, errno })) }
}

fn worker() -> WorkerId {
    WorkerId::new("numbers-1").expect("an id")
}

#[test]
fn every_error_says_the_thing_the_place_and_the_way_out() {
    let mut texts = ErrorTexts::new();
    errors_of_spawns_and_signals(&mut texts);
    errors_of_runs_and_the_state_directory(&mut texts);
    errors_of_pid_namespaces(&mut texts);
    insta::assert_snapshot!(texts);
}

fn errors_of_spawns_and_signals(texts: &mut ErrorTexts) {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("worker.sh"), "#!/usr/bin/pyhton3\n").expect("a script");
    let run_script =
        |errno| SpawnError::from_stage(SpawnStage::Exec, errno, "./worker.sh", dir.path(), Path::new("/run"));
    every_variant!(texts, SpawnError {
        NotFound => [SpawnError::NotFound { program: "pyhton3".into() }],
        NotExecutable => [
            run_script(libc::EACCES),
            run_script(libc::ENOENT),
        ],
        NulByte => [SpawnError::NulByte { what: "an argument", value: "a\0b".into() }],
        BadVariable => [SpawnError::BadVariable("A=B".into())],
        Cwd => [SpawnError::Cwd { dir: "/srv/app".into(), source: missing() }],
        NoCurrentDir => [SpawnError::NoCurrentDir { source: missing() }],
        ClosedStream => [SpawnError::ClosedStream { stream: "standard input" }],
        BadDescriptors => [SpawnError::BadDescriptors(
            "descriptor number 2 is taken: give each descriptor its own number, 3 or above".into(),
        )],
        TooLarge => [SpawnError::TooLarge],
        Limit => [SpawnError::Limit { what: "oom_score_adj", source: denied() }],
        Ledger => [SpawnError::Ledger { dir: "/home/ann/.local/state/snakepit/runs/1".into(), source: full() }],
        Process => [SpawnError::Process {
            step: "forking the shim",
            source: io::Error::from_raw_os_error(libc::EAGAIN),
        }],
        ShimDied => [SpawnError::ShimDied],
        KeeperLost => [SpawnError::KeeperLost],
        Stopped => [SpawnError::Stopped],
        NotOwner => [SpawnError::NotOwner],
        DuplicateWorker => [SpawnError::DuplicateWorker(worker())],
    });
    every_variant!(texts, SignalError {
        Ended => [SignalError::Ended(worker())],
        KeeperLost => [SignalError::KeeperLost(worker())],
        NotOwner => [SignalError::NotOwner],
        NoSuchSignal => [SignalError::NoSuchSignal(99)],
    });
    every_variant!(texts, NotesError {
        Taken => [NotesError::Taken],
        Pipe => [NotesError::Pipe(io::Error::from_raw_os_error(libc::EMFILE))],
        Handler => [NotesError::Handler {
            signal: Signal::TERM,
            source: io::Error::from_raw_os_error(libc::EINVAL),
        }],
    });
    every_variant!(texts, InvalidId {
        Run => [InvalidId::Run("run 7".into())],
        Worker => [InvalidId::Worker("numbers 1".into())],
    });
}

fn errors_of_runs_and_the_state_directory(texts: &mut ErrorTexts) {
    let state = || "/home/ann/.local/state/snakepit";
    every_variant!(texts, OpenError {
        State => [OpenError::State(StateError::NoPlace)],
        Tier => [OpenError::Tier {
            tier: Tier::Namespace,
            reason: tiers::explain("0 8 1").expect("a reason"),
        }],
        NoPidfds => [OpenError::NoPidfds {
            reason: tiers::no_pidfds("pidfd_open", &io::Error::from_raw_os_error(libc::ENOSYS)),
        }],
        Keeper => [
            OpenError::Keeper { reason: keeper_thread::not_ready(None) },
            unable(SpawnStage::Ledger, libc::ENOSPC),
            unable(SpawnStage::Ledger, libc::EFBIG),
            unable(SpawnStage::Session, libc::EPERM),
            unable(SpawnStage::Request, libc::EPROTO),
            unable(SpawnStage::Kernel, libc::ENOSYS),
            OpenError::Keeper {
                reason: keeper_thread::no_thread(&io::Error::from_raw_os_error(libc::EAGAIN)),
            },
        ],
        PidScope => [OpenError::PidScope(PidScopeError::ChildrenElsewhere)],
        Identity => [OpenError::Identity(missing())],
    });
    every_variant!(texts, StateError {
        NoPlace => [StateError::NoPlace],
        Dir => [StateError::Dir {
            path: state().into(),
            source: DirError::NotOurs { path: state().into(), own: 1000 },
        }],
        Io => [StateError::Io { doing: "create", path: state().into(), source: full() }],
    });
    every_variant!(texts, DirError {
        IsLink => [DirError::IsLink { path: state().into() }],
        ForeignOwner => [DirError::ForeignOwner { path: "/srv/shared".into(), owner: 1001 }],
        NotOurs => [DirError::NotOurs { path: state().into(), own: 1000 }],
        UnknownOwner => [DirError::UnknownOwner { path: "/srv/shared".into() }],
        Unmapped => [DirError::Unmapped { own: 65_534 }],
        WritableByOthers => [DirError::WritableByOthers { path: "/srv/shared".into(), mode: 0o777 }],
        WritableByGroup => [DirError::WritableByGroup { path: "/srv/shared".into(), group: 100, mode: 0o775 }],
        TooManyLinks => [DirError::TooManyLinks { path: "/srv/loop".into() }],
        Io => [DirError::Io { doing: "open", path: state().into(), source: denied() }],
    });
    every_variant!(texts, KeepError {
        Look => [KeepError::Look { path: format!("{}/keeper-1.bin", state()).into(), source: denied() }],
        Write => [KeepError::Write { path: format!("{}/keeper-1.bin", state()).into(), source: full() }],
        Replace => [KeepError::Replace { path: format!("{}/keeper-1.bin", state()).into(), source: full() }],
    });
}

fn errors_of_pid_namespaces(texts: &mut ErrorTexts) {
    every_variant!(texts, PidScopeError {
        NoProc => [PidScopeError::NoProc(missing())],
        NoBootId => [PidScopeError::NoBootId(missing())],
        ForeignProc => [PidScopeError::ForeignProc {
            shown: "4711".into(),
            own: crate::Pid::new(12).expect("a pid"),
        }],
        ChildrenElsewhere => [PidScopeError::ChildrenElsewhere],
    });
}
