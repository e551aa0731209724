//! A worker that dies fails its own call within milliseconds and says how it died; other calls go on.

use std::time::{Duration, Instant};

use snakepit::call::OomVerdict;
use snakepit::custody::ExitStatus;
use snakepit::{CallError, Value, args};

use crate::support::{self, Pit, kill, runs, soon, until, worker};

fn status_of(error: &CallError) -> Option<ExitStatus> {
    error.autopsy().and_then(|autopsy| autopsy.exit).map(|exit| exit.status)
}

async fn pid_of_only_worker(pit: &Pit) -> u32 {
    soon("the pid", pit.call("pid", args! {})).await.expect("a pid")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_killed_in_a_call_fails_it_within_milliseconds_and_is_replaced() {
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    let mut times = Vec::new();
    for round in 0..5 {
        let pid = pid_of_only_worker(&pit).await;
        let path = pit.file(&format!("started-{round}"));
        let call = tokio::spawn(pit.call::<Value>("sleepy", args! { path: path.as_str() }).into_future());
        until("the call is under way", || !support::lines(&path).is_empty()).await;
        let killed = Instant::now();
        kill(pid);
        let error = soon("the error", call).await.expect("no panic").expect_err("a death");
        times.push(killed.elapsed());
        assert_eq!(status_of(&error), Some(ExitStatus::Signal(9)), "{error}");
        assert!(error.to_string().contains("SIGKILL"), "{error}");
    }
    times.sort_unstable();
    println!("killed → error: median {:?}, worst {:?}", times[times.len() / 2], times[times.len() - 1]);
    assert!(times[times.len() / 2] < Duration::from_secs(2), "{times:?}");
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_killed_between_calls_is_replaced_before_anybody_notices() {
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    for _ in 0..5 {
        let pid = pid_of_only_worker(&pit).await;
        kill(pid);
        until("it is gone", || !runs(pid)).await;
        // The call may reach the dead worker before the engine knows of the death. It was not started, so the next
        // worker gets it.
        assert_ne!(pid_of_only_worker(&pit).await, pid);
    }
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_killed_in_its_start_is_replaced() {
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    pit.pools()[0].scale(3);
    // A process that is there, but is not the serving one, is starting.
    let run = pit.run().expect("a run").clone();
    let serving = pid_of_only_worker(&pit).await;
    let starting = || run.workers().into_iter().map(|w| w.pid().as_raw() as u32).find(|pid| *pid != serving);
    until("another one starts", || starting().is_some()).await;
    kill(starting().expect("one that starts"));
    soon("full strength", pit.await_ready(support::SOON)).await.expect("three workers");
    assert_eq!(pit.pools()[0].workers().len(), 3);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_way_to_die_is_reported_with_its_exit_status() {
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    let ways = [
        ("os._exit", ExitStatus::Code(5), ""),
        ("segfault", ExitStatus::Signal(11), "Segmentation fault"),
        ("abort", ExitStatus::Signal(6), "Aborted"),
        ("kill", ExitStatus::Signal(9), ""),
        ("stack overflow", ExitStatus::Signal(11), "in __getattr__"),
    ];
    for (how, status, said) in ways {
        let began = Instant::now();
        let call = pit.call::<Value>("end", args! { how: how });
        let error = soon(how, call).await.expect_err("a death");
        println!("{how} → error: {:?}", began.elapsed());
        assert_eq!(status_of(&error), Some(status), "{how}: {error}");
        assert!(error.to_string().contains(said), "{how}: {error}");
        assert!(error.to_string().contains("end"), "{how}: {error}");
    }
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_is_reported_with_the_python_stack_apart_from_the_output() {
    for concurrency in [1, 3] {
        let pit = Pit::start(worker("hostile.py").workers(1).concurrency(concurrency)).await;
        for (how, said) in [("segfault", "Segmentation fault"), ("abort", "Aborted")] {
            let error = soon(how, pit.call::<Value>("end", args! { how: how })).await.expect_err("a death");
            let autopsy = error.autopsy().expect("an autopsy");
            let stack = autopsy.stack.as_ref().unwrap_or_else(|| panic!("no stack: {error}"));
            let crashed = stack.split("\nThread 0x").next().expect("a thread");
            assert!(crashed.starts_with("Current thread 0x") && crashed.contains("in end"), "{stack}");
            assert!(!stack.contains("_answer_beats"), "the thread that beats is nobody's concern: {stack}");
            assert!(autopsy.output.iter().any(|line| line.contains(said)), "{error}");
            assert!(!autopsy.output.iter().any(|line| line.contains("  File ")), "{error}");
            assert!(error.to_string().contains("in end"), "{error}");
            assert!(autopsy.rss.is_some_and(|rss| rss > 1 << 20), "{autopsy:?}");
            assert_eq!(autopsy.oom, OomVerdict::No);
        }
        pit.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_external_kill_is_not_reported_as_an_oom_kill() {
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    for how in ["kill", "os._exit"] {
        let error = soon(how, pit.call::<Value>("end", args! { how: how })).await.expect_err("a death");
        let autopsy = error.autopsy().expect("an autopsy");
        assert_ne!(autopsy.oom, OomVerdict::Yes, "{error}");
        assert_eq!(autopsy.stack, None, "{error}");
        let (said, is_killed) = (error.to_string(), how == "kill");
        assert_eq!(said.contains("memory"), is_killed, "{said}");
        assert!(is_killed || autopsy.oom == OomVerdict::No, "{error}");
    }
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_oom_kill_is_reported_as_such() {
    let Some(cgroup) = support::MemoryCgroup::with_limit(60 << 20) else {
        return support::unproven("no memory cgroup of version 1 that we may make");
    };
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    cgroup.add(pid_of_only_worker(&pit).await);
    let error = soon("the end", pit.call::<Value>("end", args! { how: "hoard" })).await.expect_err("a death");
    let autopsy = error.autopsy().expect("an autopsy");
    assert_eq!(status_of(&error), Some(ExitStatus::Signal(9)), "{error}");
    // A cgroup that does not belong to the engine appears only in the kernel log.
    if support::reads_kernel_log() {
        assert_eq!(autopsy.oom, OomVerdict::Yes, "{error}");
        assert!(error.to_string().contains("the kernel killed it because memory ran out"), "{error}");
    } else {
        support::unproven("the kernel log cannot be read");
    }
    // The next worker, which is killed by hand, does not inherit the verdict.
    let error = soon("the end", pit.call::<Value>("end", args! { how: "kill" })).await.expect_err("a death");
    assert_ne!(error.autopsy().map(|autopsy| autopsy.oom), Some(OomVerdict::Yes), "{error}");
    pit.end().await;
    cgroup.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_that_python_can_catch_fails_the_call_and_not_the_worker() {
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    let pid = pid_of_only_worker(&pit).await;
    let ways = [
        ("sys.exit", "SystemExit"),
        ("recursion", "RecursionError"),
        ("MemoryError", "MemoryError"),
        ("KeyboardInterrupt", "KeyboardInterrupt"),
    ];
    for (how, name) in ways {
        let error = soon(how, pit.call::<Value>("end", args! { how: how })).await.expect_err("an exception");
        assert_eq!(error.remote().and_then(|error| error.type_name.as_deref()), Some(name), "{error}");
    }
    assert_eq!(pid_of_only_worker(&pit).await, pid);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_death_fails_no_other_workers_call() {
    let pit = Pit::start(worker("hostile.py").workers(3).quarantine(None)).await;
    let sleeper = || tokio::spawn(pit.call::<f64>("sleep", args! { seconds: 1.0 }).into_future());
    let (first, second) = (sleeper(), sleeper());
    for _ in 0..5 {
        let call = pit.call::<Value>("end", args! { how: "kill" });
        assert!(soon("the death", call).await.is_err_and(|error| error.autopsy().is_some()));
    }
    for call in [first, second] {
        assert!(soon("the neighbour", call).await.expect("no panic").is_ok());
    }
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_children_of_a_dead_worker_die_with_it() {
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    let pids: Vec<u32> = soon("children", pit.call("family", args! { count: 3 })).await.expect("pids");
    assert!(pids.iter().all(|pid| runs(*pid)));
    let _ = soon("the death", pit.call::<Value>("end", args! { how: "kill" })).await.expect_err("a death");
    until("all children are gone", || !pids.iter().any(|pid| runs(*pid))).await;
    let pids: Vec<u32> = soon("children", pit.call("family", args! { count: 2 })).await.expect("pids");
    pit.end().await;
    assert!(!pids.iter().any(|pid| runs(*pid)), "{pids:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forked_copy_that_returns_from_a_command_answers_nothing() {
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    for _ in 0..5 {
        let is_child: bool = soon("the call", pit.call("fork_and_return", args! {})).await.expect("a value");
        assert!(!is_child);
    }
    let echoed: u32 = soon("the call", pit.call("echo", args! { value: 7 })).await.expect("a value");
    assert_eq!(echoed, 7);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_worker_does_not_delay_the_shutdown() {
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    let pid = pid_of_only_worker(&pit).await;
    support::signal(pid, rustix::process::Signal::STOP);
    let began = Instant::now();
    soon("the end", pit.end_now()).await;
    println!("stop with a stopped worker: {:?}", began.elapsed());
    assert!(!runs(pid));
}
