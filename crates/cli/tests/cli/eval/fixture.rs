//! A data set in its own directory, and `snakepit eval` on it.

use std::io::Read as _;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::Command;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value as Json, json};

use crate::support::{Done, PATIENCE, Running, Scene, finish, worker};

pub(crate) const SAMPLES: u32 = 16;

/// A data set in its own directory.
pub(crate) struct EvalFixture {
    pub(crate) scene: Scene,
    pub(crate) home: tempfile::TempDir,
}

impl EvalFixture {
    pub(crate) fn new() -> Self {
        let fixture = Self { scene: Scene::new(), home: tempfile::tempdir().expect("a directory") };
        let line =
            |n| json!({ "id": format!("s{n}"), "input": { "n": n }, "expected": 2 * n }).to_string() + "\n";
        fixture.write("data.jsonl", &(0..SAMPLES).map(line).collect::<String>());
        fixture
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.home.path().join(file)
    }

    pub(crate) fn write(&self, file: &str, text: &str) {
        std::fs::write(self.path(file), text).expect("a file");
    }

    pub(crate) fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.path(file)).expect("a file")
    }

    /// Returns `snakepit eval data.jsonl -w eval.py --command answer --timeout 2s …` with one worker, in the fixture's
    /// directory.
    pub(crate) fn eval(&self, more: &[&str]) -> Command {
        let mut eval = self.scene.verb("eval");
        eval.arg("data.jsonl").arg("-w").arg(worker("eval.py")).args([
            "--command",
            "answer",
            "--workers",
            "1",
        ]);
        eval.args(["--timeout", "2s"]).args(more).current_dir(self.home.path());
        eval
    }

    /// Runs an evaluation that must succeed, and returns its report.
    #[track_caller]
    pub(crate) fn report(&self, more: &[&str]) -> Json {
        let done = finish(&mut self.eval(&[&["--json"], more].concat()));
        done.assert_status(0);
        serde_json::from_str(&done.stdout).unwrap_or_else(|error| panic!("{error}: {done:?}"))
    }

    /// Starts an evaluation that reaches this sample and stays there.
    #[track_caller]
    pub(crate) fn stopped_at(&self, sample: u32, more: &[&str]) -> Running {
        let gate = self.path("gate");
        let _ = std::fs::remove_file(&gate);
        let listener = UnixListener::bind(&gate).expect("a socket");
        let mut eval = self.eval(more);
        eval.env("EVAL_STOP_AT", sample.to_string()).env("EVAL_GATE", &gate);
        let running = Running::start(&mut eval);
        let time = Timespec::try_from(PATIENCE).expect("a short time");
        let ready = poll(&mut [PollFd::new(&listener, PollFlags::IN)], Some(&time)).expect("poll");
        assert!(ready > 0, "it does not come to sample {sample}: {:?}", running.finish());
        // Reads everything that the worker sends. If the gate closed earlier, the sample would end in an error.
        let (mut worker, _) = listener.accept().expect("the worker");
        worker.read_exact(&mut [0; 4]).expect("its word");
        running
    }

    pub(crate) fn results(&self) -> usize {
        self.read("data.eval.jsonl").lines().count() - 1
    }
}

/// Removes the parts of a report that differ between any two runs.
pub(crate) fn timeless(mut report: Json) -> Json {
    for experiment in report["experiments"].as_array_mut().expect("experiments") {
        experiment.as_object_mut().expect("an object").remove("latency_ms").expect("latencies");
    }
    report
}

#[track_caller]
pub(crate) fn assert_refused(done: &Done, status: i32, words: &[&str]) {
    done.assert_status(status);
    assert!(done.stdout.is_empty(), "{done:?}");
    for word in words {
        assert!(done.stderr.contains(word), "{word:?} is missing: {}", done.stderr);
    }
}
