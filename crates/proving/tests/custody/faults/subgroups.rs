//! A worker creates cgroups below its own. They are removed with it. The promise: nothing is left, not even a cgroup.

use std::path::{Path, PathBuf};

use snakepit_proving::{Case, GridTier, HostProcess};

use super::expected;

#[test]
fn each_worker_has_a_cgroup_of_its_own_below_the_runs() {
    with_a_cgroup(|case, mut host, cgroup| {
        host.spawn(2, "stand");
        case.note(&host);
        let name = cgroup.file_name().expect("a name").to_str().expect("plain text").to_owned();
        let of = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("its cgroups");
        let own: Vec<String> = host.workers.iter().map(|worker| of(worker.pid)).collect();
        assert!(own.iter().all(|own| own.contains(&format!("{name}/"))), "{own:?}");
        assert_ne!(own[0], own[1]);
        host.kill();
        case.verdict();
    });
}

#[test]
fn gone_before_wait_returns() {
    with_a_cgroup(|case, mut host, cgroup| {
        let worker = host.spawn(1, "subgroup leave").remove(0);
        case.note(&host);
        let told = host.ask(&format!("wait {}", worker.id)).expect("wait");
        assert_eq!(told.get("code").map(String::as_str), Some("5"), "{told:?}");
        case.workers_must_be_gone_already();
        assert_eq!(made_by_workers(&cgroup), Vec::<PathBuf>::new());
        host.ask("stop").expect("stop");
        host.say("return");
        host.wait();
        assert!(!cgroup.exists(), "the run's cgroup is left");
        case.verdict();
    });
}

#[test]
fn gone_after_the_host_is_killed() {
    with_a_cgroup(|case, mut host, cgroup| {
        host.spawn(3, "subgroup stay");
        case.note(&host);
        assert_eq!(made_by_workers(&cgroup).len(), 3);
        host.kill();
        case.verdict();
        assert!(!cgroup.exists(), "the run's cgroup is left");
    });
}

#[test]
fn gone_after_the_shim_is_killed() {
    with_a_cgroup(|case, mut host, cgroup| {
        let worker = host.spawn(1, "subgroup stay").remove(0);
        case.note(&host);
        snakepit_proving::ObservedProcess::of(worker.shim).end();
        host.ask(&format!("wait {}", worker.id)).expect("wait");
        case.workers_must_be_gone_already();
        host.ask("stop").expect("stop");
        host.say("return");
        host.wait();
        assert!(!cgroup.exists(), "the run's cgroup is left");
        case.verdict();
    });
}

/// A threaded cgroup does not list its processes. The cgroup above it does.
#[test]
fn a_threaded_cgroup_hides_no_process_from_the_reaper() {
    with_a_cgroup(|case, mut host, cgroup| {
        host.spawn(1, "bare");
        case.note(&host);
        let own = std::fs::read_dir(&cgroup).expect("the run's cgroup").flatten().map(|entry| entry.path());
        let threaded =
            own.into_iter().find(|path| path.is_dir()).expect("a worker's cgroup").join("threaded");
        std::fs::create_dir(&threaded).expect("make a cgroup");
        std::fs::write(threaded.join("cgroup.type"), "threaded").expect("make it threaded");
        super::leave_a_dead_run(case, &mut host);
        let told = case.cleanup().expect("the reaper");
        assert_eq!(told["clean"], "true", "{told:?}");
        assert!(!cgroup.exists(), "the run's cgroup is left");
        case.verdict();
    });
}

fn with_a_cgroup(body: fn(&mut Case, HostProcess, PathBuf)) {
    let mut case = Case::new(&super::programs(), GridTier::Auto, expected::cell("subgroups", GridTier::Auto));
    let host = case.host();
    match host.cgroup.clone() {
        Some(cgroup) => body(&mut case, host, cgroup),
        None => super::unproven("no cgroup of version 2 that we may create"),
    }
    case.finish();
}

/// Returns the cgroups that workers have created below their own.
fn made_by_workers(cgroup: &Path) -> Vec<PathBuf> {
    let dirs = |path: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
    };
    dirs(cgroup).iter().flat_map(|own| dirs(own)).collect()
}
