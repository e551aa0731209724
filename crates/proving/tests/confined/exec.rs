//! `snakepit exec`, in every tier.

use super::{Expected, Scene, TIERS, each_profile, expected, finish, must_be_refusal};

each_profile!(a_command_runs_or_is_refused_in_one_sentence, eight_commands_at_once_run_as_well);

fn a_command_runs_or_is_refused_in_one_sentence(scene: &Scene) {
    for tier in TIERS {
        let done =
            finish(&mut scene.snakepit(&["exec", "--tier", tier, "--", "sh", "-c", "echo out; exit 7"]));
        match expected(scene.profile, tier) {
            Expected::Works => {
                let said = (done.status, done.stdout.as_str(), done.stderr.as_str());
                assert_eq!(said, (Some(7), "out\n", ""), "{tier}");
            }
            Expected::Refused(words) => must_be_refusal(&done, words),
        }
        scene.nothing_is_recorded();
    }
}

/// Many workers at once: the burst makes more shims than the spare one.
fn eight_commands_at_once_run_as_well(scene: &Scene) {
    for tier in scene.tiers() {
        let done = finish(
            &mut scene.snakepit(&["exec", "--tier", tier, "--copies", "8", "--", "sh", "-c", "echo out"]),
        );
        assert_eq!((done.status, done.stdout.lines().count()), (Some(0), 8), "{tier}: {done:?}");
    }
}
