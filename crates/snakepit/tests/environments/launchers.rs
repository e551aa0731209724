//! Workers that a user's script starts, like `run_worker.sh` of the specification.
//!
//! About `crates/adapters/src/program.rs` and `crates/adapters/src/ready_line.rs`.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use snakepit::{PoolOptions, Value, args};

use crate::packages::workers;
use crate::support::{Pit, runs, soon, until};

/// Returns a script that finds Python and the SDK, and hands over in the given way.
fn launcher(dir: &Path, hand_over: &str) -> PoolOptions {
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python");
    let code = format!(
        "#!/bin/bash\nset -e\nDIR=\"$( cd \"$( dirname \"${{BASH_SOURCE[0]}}\" )\" &> /dev/null && pwd )\"\n\
         export PYTHONPATH={}\n{hand_over} python3 -m snakepit \"$@\"\n{}\n",
        sdk.display(),
        // Otherwise the shell would exec the last command implicitly.
        if hand_over.is_empty() { "echo it has ended" } else { "" },
    );
    let path = dir.join("run_worker.sh");
    std::fs::write(&path, code).expect("a script");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    snakepit::command([path.into_os_string(), workers().join("environment.py").into_os_string()]).workers(1)
}

/// The shipped script, beside an environment and a worker that speaks lines of JSON.
#[cfg(feature = "stdio")]
#[expect(clippy::disallowed_methods, reason = "the test makes an environment, as a user would")]
#[tokio::test(flavor = "multi_thread")]
async fn the_script_of_the_examples_runs_its_worker_in_its_environment() {
    let dir = tempfile::tempdir().expect("a directory");
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/stdio/run_worker.sh");
    let script = dir.path().join("run_worker.sh");
    std::fs::copy(shipped, &script).expect("the script");
    let worker = "import json, sys\nprint(json.dumps({'status': 'starting'}), flush=True)\n\
                  print(json.dumps({'status': 'ready'}), flush=True)\n\
                  for line in sys.stdin:\n    call = json.loads(line)\n    \
                  print(json.dumps({'id': call['id'], 'result': sys.prefix}), flush=True)\n";
    std::fs::write(dir.path().join("worker.py"), worker).expect("a worker");
    // Without the environment, the script says so, and nothing runs in another one.
    let pool = || snakepit::stdio([script.clone().into_os_string()]).workers(1);
    let refused =
        snakepit::Snakepit::builder().pool(pool()).custody(crate::support::config(&dir)).start().await;
    let error = crate::support::chain(&refused.expect_err("there is no environment"));
    assert!(error.contains("venv/bin/activate"), "{error}");
    let venv = dir.path().join("venv");
    let made =
        std::process::Command::new("python3").args(["-m", "venv", "--without-pip"]).arg(&venv).status();
    assert!(made.expect("python3").success());
    let pit = Pit::start(pool()).await;
    let prefix: String = soon("the call", pit.call("where", args! {})).await.expect("an answer");
    assert_eq!(Path::new(&prefix), venv.canonicalize().expect("a directory"));
    pit.end().await;
}

async fn pid_of_the_worker(pit: &Pit) -> i64 {
    let place: Value = soon("the call", pit.call("where", args! {})).await.expect("a place");
    place.get("pid").and_then(Value::as_i64).expect("a pid")
}

fn recorded_pid(pit: &Pit) -> i64 {
    i64::from(pit.pools()[0].workers()[0].pid.expect("a process").as_raw())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_with_exec_becomes_the_worker() {
    let dir = tempfile::tempdir().expect("a directory");
    // A version manager's script in front of Python would be another script that does not hand over.
    let pit = Pit::start(launcher(dir.path(), "exec")).await;
    assert_eq!(pid_of_the_worker(&pit).await, recorded_pid(&pit));
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_without_exec_ends_with_its_worker() {
    let dir = tempfile::tempdir().expect("a directory");
    let pit = Pit::start(launcher(dir.path(), "")).await;
    let (worker, script) = (pid_of_the_worker(&pit).await, recorded_pid(&pit));
    assert_ne!(worker, script);
    assert!(runs(worker as u32) && runs(script as u32));
    pit.end().await;
    assert!(!runs(worker as u32) && !runs(script as u32));
    // The same holds if only the script is killed, as the pool or the kernel may do.
    let pit = Pit::start(launcher(dir.path(), "")).await;
    let (worker, script) = (pid_of_the_worker(&pit).await, recorded_pid(&pit));
    let process =
        pit.run().expect("a run").workers().into_iter().find(|it| i64::from(it.pid().as_raw()) == script);
    process.expect("the script").signal_main(9).expect("killed");
    until("the worker behind the script is gone", || !runs(worker as u32)).await;
    pit.end().await;
}
