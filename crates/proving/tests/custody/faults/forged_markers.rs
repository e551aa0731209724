//! Another user puts a dead run's id into the environment of many processes. The defect behind this test: they delayed
//! root's cleanup for as long as they liked, and it killed them.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use snakepit_proving::{Case, ObservedProcess};

super::each_tier!(of_another_user);

const NOBODY: u32 = 65534;

fn of_another_user(case: &mut Case) {
    if !snakepit_proving::is_root() {
        return super::unproven("only root can become another user");
    }
    let mut host = case.host_with(2, "heir");
    super::leave_a_dead_run(case, &mut host);
    // The shell that starts them ends and makes them orphans. Only orphans would be ended because of their marker
    // alone.
    let script = "while :; do setsid sleep 300 & read -r line || exit; done";
    let mut forger = Command::new("sh");
    forger.args(["-c", script]).env("SNAKEPIT_RUN_ID", &host.run).uid(NOBODY).gid(NOBODY).current_dir("/");
    let mut forger: Child = forger.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("a forger");
    let mut lines = forger.stdin.take().expect("piped");
    for _ in 0..50 {
        std::io::Write::write_all(&mut lines, b"one more\n").expect("one more");
    }
    drop(lines);
    forger.wait().expect("the forger's end");
    let began = Instant::now();
    let told = case.cleanup().expect("the reaper");
    let took = began.elapsed();
    let forged = snakepit_proving::census::mentioning(&[host.run.clone()]);
    let forged: Vec<ObservedProcess> =
        forged.iter().filter_map(|found| ObservedProcess::open(found.pid).ok().flatten()).collect();
    forged.iter().for_each(ObservedProcess::end);
    assert!(forged.len() >= 50, "processes of another user were killed: {} are left, {told:?}", forged.len());
    assert_eq!((told["clean"].as_str(), told["removed"].as_str()), ("true", "1"), "{told:?}");
    assert!(took < Duration::from_secs(5), "held up for {took:?}");
    assert!(case.tag().is_free(), "survivors: {:#?}", case.tagged_processes());
    case.verdict();
}
