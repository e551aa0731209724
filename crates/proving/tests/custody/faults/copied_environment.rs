//! A bystander with a copied environment, such as a job of atd, carries the run's marker. The defect behind this test:
//! custody killed the bystander when the keeper died.

use snakepit_proving::bystander::Bystander;
use snakepit_proving::deadline::recheck;
use snakepit_proving::{Case, Deadline, HostReply};

super::each_tier!(when_the_keeper_is_killed, when_all_of_custody_is_killed);

fn when_the_keeper_is_killed(case: &mut Case) {
    let mut host = case.host_with(2, "heir");
    let bystander = Bystander::of_this_run(case.hostile(), &host.run);
    let keeper = host.keeper_process();
    keeper.end();
    recheck(Deadline::patient(), "a worker of the next keeper", || match host.ask("spawn 1 stand") {
        HostReply::Ok(_) => Some(()),
        HostReply::No(..) => None,
    });
    bystander.must_be_untouched();
    host.kill();
    bystander.must_be_untouched();
    drop(bystander);
    case.verdict();
}

fn when_all_of_custody_is_killed(case: &mut Case) {
    let mut host = case.host_with(2, "heir");
    let bystander = Bystander::of_this_run(case.hostile(), &host.run);
    super::leave_a_dead_run(case, &mut host);
    let told = case.cleanup().expect("the reaper");
    bystander.must_be_untouched();
    assert_eq!(told["let_be"], bystander.process().pid().to_string(), "it is reported: {told:?}");
    assert_eq!((told["clean"].as_str(), told["removed"].as_str()), ("true", "1"), "{told:?}");
    assert!(case.tag().is_free(), "survivors: {:#?}", case.tagged_processes());
    drop(bystander);
    case.verdict();
}
