//! The examples of the README.

use std::path::{Path, PathBuf};
use std::time::Duration;

use snakepit_proving::Deadline;
use snakepit_proving::built::built;

use super::{Expected, Scene, TIERS, each_profile, expected, finish, finish_before, must_be_refusal};

each_profile!(a_worker_in_python_answers_in_every_tier, the_examples_in_rust_run);

fn hello() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/hello.py")
}

fn a_worker_in_python_answers_in_every_tier(scene: &Scene) {
    for tier in TIERS {
        let config = scene.home.path().join("snakepit.toml");
        let text = format!(
            "[custody]\ncontainment = \"{tier}\"\n\n[pool.hello]\nworker = \"{}\"\n",
            hello().canonicalize().expect("the example").display()
        );
        std::fs::write(&config, text).expect("a configuration");
        let mut call = scene.snakepit(&["call", "-c"]);
        let done = finish(call.arg(&config).args(["greet", "name=World"]));
        match expected(scene.profile, tier) {
            Expected::Works => {
                assert_eq!((done.status, done.stdout.trim()), (Some(0), "Hello, World!"), "{tier}: {done:?}");
            }
            Expected::Refused(words) => must_be_refusal(&done, words),
        }
        scene.nothing_is_recorded();
    }
}

/// With the tier that a host gets without choosing.
fn the_examples_in_rust_run(scene: &Scene) {
    if matches!(expected(scene.profile, "auto"), Expected::Refused(_)) {
        return;
    }
    for example in ["hello", "embedded", "script", "survives"] {
        let program = built(&format!("examples/{example}"), "-p snakepit --features loops,sqlite --examples");
        // A thousand synced messages take long on a busy disk; the example gives up by itself after two minutes.
        let deadline = Deadline::after(Duration::from_secs(100));
        let done = finish_before(deadline, &mut scene.confined(&program));
        assert_eq!(done.status, Some(0), "{example}: {done:?}");
        scene.nothing_is_recorded();
    }
}
