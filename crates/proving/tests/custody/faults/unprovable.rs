//! A process that may belong to a dead run, without proof, is left alone and reported, and its record stays. The defect
//! behind this test: the reaper reported that nothing was left alive.

use snakepit_proving::deadline::recheck;
use snakepit_proving::{Case, Deadline, GridCell, GridTier, OpenAs, cgroup};

super::each_tier!(
    members_of_a_group_without_leader,
    members_of_a_group_whose_leader_is_not_reaped,
    a_cgroup_whose_directory_is_gone,
    a_cgroup_whose_ledger_is_gone
);

fn members_of_a_group_without_leader(case: &mut Case) {
    let mut host = case.host_with(2, "bare");
    case.must_be_populated(4);
    super::leave_a_dead_run(case, &mut host);
    // The leaders die with their shims. As long as a leader exists, it proves to which run its group belongs.
    let leaders: Vec<i32> = host.workers.iter().map(|worker| worker.pid).collect();
    recheck(Deadline::patient(), "the end of the leaders", || {
        leaders.iter().all(|leader| snakepit_proving::CensusEntry::read(*leader).is_none()).then_some(())
    });
    let told = case.cleanup().expect("the reaper");
    match case.tier {
        // The namespace ends with its init, and a cgroup proves to which run the processes belong.
        GridTier::Namespace => assert!(case.tag().is_free(), "{told:?}"),
        GridTier::Auto if host.cgroup.is_some() => {
            assert_eq!((told["clean"].as_str(), told["removed"].as_str()), ("true", "1"), "{told:?}");
            assert!(case.tag().is_free(), "survivors: {:#?}", case.tagged_processes());
        }
        GridTier::Auto | GridTier::Shim | GridTier::Group => {
            let left: Vec<String> =
                case.tagged_processes().iter().map(|found| found.pid.to_string()).collect();
            assert_eq!(left.len(), 2, "nobody was killed on a guess: {told:?}");
            let let_be: Vec<&str> = told["let_be"].split(',').collect();
            assert!(left.iter().all(|pid| let_be.contains(&pid.as_str())), "{left:?} are reported: {told:?}");
            assert_eq!((told["clean"].as_str(), told["removed"].as_str()), ("false", "0"), "{told:?}");
            assert_eq!(case.run_dirs().len(), 1, "the record stays");
            case.end_survivors_and_go_on();
            assert_eq!(case.cleanup().expect("the reaper")["clean"], "true", "nobody is left to doubt");
        }
    }
    case.verdict();
}

/// In many containers, init does not reap. A leader that has ended but is not reaped proves to which run its group
/// belongs.
fn members_of_a_group_whose_leader_is_not_reaped(case: &mut Case) {
    // The processes that custody leaves become our children, and we reap none before the verdict.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).expect("become a subreaper");
    let mut host = case.host_with(2, "bare");
    case.must_be_populated(4);
    super::leave_a_dead_run(case, &mut host);
    let told = case.cleanup().expect("the reaper");
    assert_eq!((told["clean"].as_str(), told["removed"].as_str()), ("true", "1"), "{told:?}");
    case.workers_must_be_gone(Deadline::patient());
    case.verdict();
}

fn a_cgroup_whose_ledger_is_gone(case: &mut Case) {
    let mut host = case.host_with(2, "bare");
    let cgroup = host.cgroup.clone();
    super::leave_a_dead_run(case, &mut host);
    std::fs::remove_file(snakepit_proving::ledger::file_of(&case.run_dirs()[0])).expect("remove the ledger");
    if cgroup.is_some() {
        let told = case.cleanup().expect("the reaper");
        assert_eq!(told["clean"], "true", "{told:?}");
        assert!(case.tag().is_free(), "survivors: {:#?}", case.tagged_processes());
    }
    // Without a cgroup, nothing shows to which run the processes belong.
    case.end_survivors_and_go_on();
    case.verdict();
}

fn a_cgroup_whose_directory_is_gone(case: &mut Case) {
    let mut host = case.host_with(2, "bare");
    let Some(group) = host.cgroup.clone() else {
        host.kill();
        return case.verdict();
    };
    // The directory of a live run is removed. Its keeper lives, so the run is left alone.
    let dir = case.run_dirs().remove(0);
    let aside = case.dir().join("aside");
    std::fs::rename(&dir, &aside).expect("take the directory away");
    let told = case.cleanup().expect("the reaper");
    assert_eq!((told["clean"].as_str(), told["killed"].as_str()), ("false", ""), "{told:?}");
    assert!(told["trouble"].contains("its_directory_is_gone"), "{told:?}");
    case.must_be_populated(4);
    super::leave_a_dead_run(case, &mut host);
    assert!(!case.tagged_processes().is_empty(), "a process lives in the cgroup");
    let told = case.cleanup().expect("the reaper");
    assert_eq!(told["clean"], "true", "{told:?}");
    assert!(case.tag().is_free(), "survivors: {:#?}", case.tagged_processes());
    assert!(!group.exists(), "the cgroup is removed");
    cgroup::try_remove_tree(&group);
    case.verdict();
}

/// Root can read every process. Another user cannot read a process of its own that forbids it.
#[test]
fn a_process_that_cannot_be_inspected_is_reported() {
    if !snakepit_proving::is_root() {
        return super::unproven("only root can become another user");
    }
    // A separate user, because unreadable processes of other tests' users would be reported, too.
    let options = OpenAs { user: Some(47_011), ..OpenAs::default() };
    let mut case = Case::with(&super::programs(), GridTier::Shim, GridCell::SHED_NEXT, options);
    let mut host = case.host_with(1, "undumpable");
    case.must_be_populated(2);
    super::leave_a_dead_run(&case, &mut host);
    let told = case.cleanup().expect("the reaper");
    let left = case.tagged_processes();
    assert_eq!(left.len(), 1, "{left:#?}");
    assert!(told["let_be"].split(',').any(|pid| pid == left[0].pid.to_string()), "{told:?}");
    assert_eq!((told["clean"].as_str(), told["removed"].as_str()), ("false", "0"), "{told:?}");
    case.end_survivors_and_go_on();
    let told = case.cleanup().expect("the reaper");
    assert_eq!(told["clean"], "true", "{told:?}");
    case.finish();
}
