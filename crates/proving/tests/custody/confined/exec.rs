//! `snakepit exec`, in every tier.

use super::{ConfinedHome, ExpectedResult, TIERS, each_profile, expected, finish, must_be_refusal};

each_profile!(a_command_runs_or_is_refused_in_one_sentence, eight_commands_at_once_run_as_well);

fn a_command_runs_or_is_refused_in_one_sentence(home: &ConfinedHome) {
    for tier in TIERS {
        let output =
            finish(&mut home.snakepit(&["exec", "--tier", tier, "--", "sh", "-c", "echo out; exit 7"]));
        match expected(home.profile, tier) {
            ExpectedResult::Works => {
                let said = (output.status, output.stdout.as_str(), output.stderr.as_str());
                assert_eq!(said, (Some(7), "out\n", ""), "{tier}");
            }
            ExpectedResult::Refused(words) => must_be_refusal(&output, words),
        }
        home.nothing_is_recorded();
    }
}

/// Starts many workers at once, which need more shims than the spare one.
fn eight_commands_at_once_run_as_well(home: &ConfinedHome) {
    for tier in home.tiers() {
        let output = finish(
            &mut home.snakepit(&["exec", "--tier", tier, "--copies", "8", "--", "sh", "-c", "echo out"]),
        );
        assert_eq!((output.status, output.stdout.lines().count()), (Some(0), 8), "{tier}: {output:?}");
    }
}
