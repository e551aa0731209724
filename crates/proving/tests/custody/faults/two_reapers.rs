//! Two hosts start at once, with a dead run to clear and a live one to leave alone.

use snakepit_proving::{Case, CensusEntry, HostProcess, rounds};

super::each_tier!(starting_at_once);

fn starting_at_once(case: &mut Case) {
    let mut live = case.host_with(2, "stand");
    let kept: Vec<i32> = live.workers.iter().map(|worker| worker.pid).collect();
    for round in 0..rounds(40, 8) {
        let mut dead = case.host_with(2, "heir");
        super::kill_all_of_custody(&mut dead);
        let mut hosts: Vec<HostProcess> = (0..2).map(|_| case.bare_host()).collect();
        let order = format!("open tier={} state={}", case.tier.name(), case.state().display());
        for host in &mut hosts {
            host.say(&order);
        }
        for mut host in hosts {
            let line = host.hear().expect("an answer");
            let run = line.split_ascii_whitespace().find_map(|word| word.strip_prefix("run="));
            case.note_run(run.unwrap_or_else(|| panic!("round {round}: {line}")));
            host.ask("stop").expect("stop");
            host.say("return");
            assert!(host.wait().success());
        }
        let mut left: Vec<i32> = case.tagged_processes().iter().map(|found| found.pid).collect();
        left.sort_unstable();
        let mut expected = kept.clone();
        expected.sort_unstable();
        assert_eq!(left, expected, "round {round}: the dead run is cleared and the live one is not");
        assert_eq!(case.run_dirs().len(), 1, "round {round}");
    }
    live.spawn(1, "stand");
    case.note(&live);
    for pid in kept {
        assert!(CensusEntry::read(pid).is_some_and(|found| !found.is_zombie()), "the live run was touched");
    }
    live.kill();
    case.verdict();
}
