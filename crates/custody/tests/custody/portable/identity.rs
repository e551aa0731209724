//! Which processes a start without pidfds recognizes as those of a run.

use std::path::Path;

use rustix::process::{Signal, kill_process, test_kill_process};
use snakepit_custody::{self as custody, Command, RunLife, Tier};

use super::host::Host;
use super::{assert_alive_and_end, bystander};
use crate::support::{Home, crc32};

/// Changes the records of a ledger, and updates their checksums.
fn rewrite_records(ledger: &Path, change: impl Fn(&mut [u8; 512])) {
    let mut bytes = std::fs::read(ledger).unwrap();
    for slot in bytes.as_chunks_mut::<512>().0 {
        change(slot);
        let crc = crc32(&slot[..508]);
        slot[508..].copy_from_slice(&crc.to_le_bytes());
    }
    std::fs::write(ledger, bytes).unwrap();
}

#[test]
fn the_next_cleanup_ends_processes_that_outlived_host_and_keeper() {
    let home = Home::new();
    let bystander = bystander();
    let mut host = Host::start(&home, "plain");
    host.kill_with_keeper();
    let [dead] = &custody::ledger(home.path()).unwrap()[..] else { panic!("one run") };
    assert_eq!(dead.life, RunLife::Dead);
    assert_eq!(dead.processes.iter().filter(|process| process.alive).count(), 3);
    let report = custody::cleanup(home.path()).unwrap();
    assert!(report.is_clean());
    assert_eq!(report.runs.len(), 1);
    assert_eq!(report.runs[0].killed.len(), 3, "{report:?}");
    assert!(report.runs[0].removed);
    host.wait_for_all();
    assert!(home.is_empty());
    assert_alive_and_end(bystander);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "workers that were left alone and are not reaped")]
fn a_process_not_proven_to_belong_to_a_dead_run_is_spared_and_reported() {
    // A start time of another process, and no start time.
    for start in [[0xEE; 8], [0; 8]] {
        let home = Home::new();
        let mut host = Host::start(&home, "plain");
        host.kill_with_keeper();
        let run = std::fs::read_dir(home.path().join("runs")).unwrap().next().unwrap().unwrap().path();
        rewrite_records(&run.join("ledger"), |slot| {
            if slot[6] == 5 {
                slot[48..56].copy_from_slice(&start);
            }
        });
        let report = custody::cleanup(home.path()).unwrap();
        assert!(report.runs[0].killed.is_empty(), "{report:?}");
        assert_eq!(report.runs[0].let_be.len(), 3, "{report:?}");
        assert!(!report.is_clean() && !report.runs[0].removed, "they may be of the run: {report:?}");
        for (_, pid) in host.pids.iter().filter(|(name, _)| name != "keeper") {
            test_kill_process(*pid).unwrap();
            kill_process(*pid, Signal::KILL).unwrap();
        }
        host.wait_for_all();
    }
}

#[test]
fn the_ledger_names_the_living_their_groups_and_their_tier() {
    let home = Home::new();
    let run = home.open();
    let worker = run.spawn(Command::new("sleep").arg("1000")).unwrap();
    let [entry] = &custody::ledger(home.path()).unwrap()[..] else { panic!("one run") };
    assert_eq!((entry.life, entry.tier), (RunLife::Live, Some(Tier::Group)));
    assert_eq!(entry.keeper_pid, run.keeper_pid());
    let [process] = &entry.processes[..] else { panic!("one worker") };
    assert_eq!((process.pid, process.pgid), (Some(worker.pid()), Some(worker.pid().as_raw())));
    assert!(process.alive && !process.at_gate);
    // A live run is not touched, even by other cleanups.
    assert!(custody::cleanup(home.path()).unwrap().runs.is_empty());
    assert!(worker.try_wait().is_none());
}
