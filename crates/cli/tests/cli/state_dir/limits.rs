//! A limit on file sizes causes a clear error. A clock before 1970 causes none.
//!
//! About `crates/custody/src/state/file_limit.rs`.

use std::path::PathBuf;
use std::process::Command;

use crate::support::{Done, Scene, call, finish, worker};

/// Returns a shell that sets a limit and then executes the program.
fn limited(scene: &Scene, blocks: u32, words: &str) -> Command {
    let mut shell = scene.command("bash");
    shell.arg("-c").arg(format!("ulimit -f {blocks}; exec {words}"));
    shell
}

fn says_what_is_in_the_way(done: &Done) {
    done.assert_status(125);
    assert!(done.stderr.contains("ulimit -f"), "{done:?}");
}

/// Promise: errors say what to do. Once, SIGXFSZ ended the program without a word.
#[test]
fn a_file_size_limit_is_an_error_that_names_it_and_kills_nothing() {
    let scene = Scene::new();
    says_what_is_in_the_way(&finish(&mut limited(&scene, 0, "$S -- true")));
    // Enough for the run's first records, but not for the keeper's program.
    says_what_is_in_the_way(&finish(&mut limited(&scene, 4, "$S -- true")));
    finish(&mut scene.exec(&[], &["true"])).assert_status(0);
    // The program exists now, but the ledger cannot take a record.
    says_what_is_in_the_way(&finish(&mut limited(&scene, 0, "$S -- true")));
    scene.assert_clean();
}

/// The keeper writes the records of workers. It must not die of the limit, and must say which limit it is.
#[test]
fn a_ledger_that_reaches_the_file_size_limit_rejects_the_worker_with_the_reason() {
    let scene = Scene::new();
    finish(&mut scene.exec(&[], &["true"])).assert_status(0);
    for blocks in [1, 2] {
        says_what_is_in_the_way(&finish(&mut limited(&scene, blocks, "$S --copies 8 -- sleep 0.1")));
        scene.assert_nothing_is_alive();
    }
    scene.assert_clean();
}

/// The limit and its signal apply to the worker, too.
#[test]
fn a_worker_that_exceeds_the_file_size_limit_dies_of_sigxfsz() {
    let scene = Scene::new();
    finish(&mut scene.exec(&[], &["true"])).assert_status(0);
    let file = scene.state_dir().join("large");
    let write = format!("$S -- dd if=/dev/zero bs=1M count=1 of={}", file.display());
    let done = finish(&mut limited(&scene, 64, &write));
    done.assert_status(128 + 25);
    std::fs::remove_file(file).expect("removed");
    scene.assert_clean();
}

#[test]
fn a_call_under_a_file_size_limit_names_the_limit() {
    let scene = Scene::new();
    let call = |scene: &Scene| {
        let program = env!("CARGO_BIN_EXE_snakepit");
        let (dir, worker) = (scene.state_dir().display().to_string(), worker("worker.py"));
        format!("{program} call --state-dir {dir} -w {} add a:=1 b:=2", worker.display())
    };
    says_what_is_in_the_way(&finish(&mut limited(&scene, 0, &call(&scene))));
    // The keeper exists, but the SDK does not. Some files of the SDK are larger than the limit.
    finish(&mut scene.exec(&[], &["true"])).assert_status(0);
    says_what_is_in_the_way(&finish(&mut limited(&scene, 8, &call(&scene))));
    scene.assert_clean();
}

/// Builds a library for the loader that puts the wall clock back by 79 years.
fn early_clock(scene: &Scene) -> PathBuf {
    const SOURCE: &str = "
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <time.h>
        int clock_gettime(clockid_t clock, struct timespec *now) {
            static int (*real)(clockid_t, struct timespec *);
            if (!real) real = dlsym(RTLD_NEXT, \"clock_gettime\");
            int answer = real(clock, now);
            if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) now->tv_sec -= 2500000000L;
            return answer;
        }";
    let (source, library) = (scene.state_dir().join("clock.c"), scene.state_dir().join("clock.so"));
    std::fs::write(&source, SOURCE).expect("written");
    let mut compile = Command::new("cc");
    compile.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl");
    finish(&mut compile).assert_status(0);
    library
}

/// Promise: a machine without a battery starts in 1970 or before, and everything works. Once, the program panicked.
#[test]
fn a_clock_before_1970_changes_nothing() {
    let scene = Scene::new();
    let library = early_clock(&scene);
    let seen = finish(scene.command("date").arg("+%Y").env("LD_PRELOAD", &library));
    assert!(seen.stdout.trim().parse::<i32>().is_ok_and(|year| year < 1970), "{seen:?}");
    let early = |mut command: Command| finish(command.env("LD_PRELOAD", &library));
    early(scene.exec(&[], &["true"])).assert_status(0);
    let mut sum = call(&scene);
    sum.args(["add", "a:=1", "b:=2"]);
    let done = early(sum);
    done.assert_status(0);
    assert_eq!(done.stdout.trim(), "3", "{done:?}");
    for verb in ["ledger", "cleanup"] {
        early(scene.verb(verb)).assert_status(0);
    }
    let mut mailbox = scene.command(env!("CARGO_BIN_EXE_snakepit"));
    let file = scene.state_dir().join("box.db");
    mailbox.args(["mailbox", "send"]).arg(format!("sqlite:{}", file.display())).arg("{}");
    early(mailbox).assert_status(0);
    scene.assert_clean();
}
