//! The examples of the README.

use std::path::{Path, PathBuf};
use std::time::Duration;

use snakepit_proving::Deadline;
use snakepit_proving::built::built;

use super::{
    ConfinedHome, ExpectedResult, TIERS, each_profile, expected, finish, finish_before, must_be_refusal,
};

each_profile!(a_worker_in_python_answers_in_every_tier, the_examples_in_rust_run);

fn hello() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/hello.py")
}

fn a_worker_in_python_answers_in_every_tier(home: &ConfinedHome) {
    for tier in TIERS {
        let config = home.home.path().join("snakepit.toml");
        let text = format!(
            "[custody]\ncontainment = \"{tier}\"\n\n[pool.hello]\nworker = \"{}\"\n",
            hello().canonicalize().expect("the example").display()
        );
        std::fs::write(&config, text).expect("a configuration");
        let mut call = home.snakepit(&["call", "-c"]);
        let output = finish(call.arg(&config).args(["greet", "name=World"]));
        match expected(home.profile, tier) {
            ExpectedResult::Works => {
                assert_eq!(
                    (output.status, output.stdout.trim()),
                    (Some(0), "Hello, World!"),
                    "{tier}: {output:?}"
                );
            }
            ExpectedResult::Refused(words) => must_be_refusal(&output, words),
        }
        home.nothing_is_recorded();
    }
}

/// Runs the examples with the default tier.
fn the_examples_in_rust_run(home: &ConfinedHome) {
    if matches!(expected(home.profile, "auto"), ExpectedResult::Refused(_)) {
        return;
    }
    for example in ["hello", "embedded", "script", "survives"] {
        let program = built(&format!("examples/{example}"), "-p snakepit --features loops,sqlite --examples");
        // A thousand synced messages take long on a busy disk. The example itself gives up after two minutes.
        let deadline = Deadline::after(Duration::from_secs(100));
        let output = finish_before(deadline, &mut home.confined(&program));
        assert_eq!(output.status, Some(0), "{example}: {output:?}");
        home.nothing_is_recorded();
    }
}
