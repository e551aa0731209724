//! `snakepit doctor` reports what `exec` does.

use serde_json::Value;

use super::{ConfinedHome, ExpectedResult, TIERS, each_profile, expected, finish};

each_profile!(the_doctor_says_of_every_tier_what_exec_does);

fn the_doctor_says_of_every_tier_what_exec_does(home: &ConfinedHome) {
    let output = finish(&mut home.snakepit(&["doctor", "--json"]));
    let report: Value =
        serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let well = matches!(expected(home.profile, "auto"), ExpectedResult::Works);
    assert_eq!((output.status, &report["healthy"]), (Some(i32::from(!well)), &well.into()), "{report:#}");
    for tier in TIERS {
        let found = finding(&report["tiers"], tier);
        match expected(home.profile, tier) {
            ExpectedResult::Works => assert_eq!(found["verdict"], "ok", "{tier}: {report:#}"),
            ExpectedResult::Refused(words) => {
                assert_eq!(found["verdict"], "no", "{tier}: {report:#}");
                // The tier is the name of the finding and need not occur in its text.
                for word in words.iter().filter(|word| !word.starts_with("the tier")) {
                    assert!(
                        found["detail"].as_str().is_some_and(|it| it.contains(word)),
                        "{word}: {report:#}"
                    );
                }
            }
        }
    }
    assert_eq!(finding(&report["system"], "seccomp")["verdict"], "warn", "{report:#}");
    assert_eq!(finding(&report["tiers"], "cgroup.kill")["verdict"], "warn", "{report:#}");
    let left = std::fs::read_dir(home.temporary_files()).expect("a directory").count();
    assert_eq!(left, 0, "the trials leave nothing behind");
    // In the text for people, the verdict is the last line.
    let text = finish(&mut home.snakepit(&["doctor"])).stdout;
    assert_eq!(text.lines().last().is_some_and(|line| line.starts_with("All is well")), well, "{text}");
}

fn finding<'a>(findings: &'a Value, name: &str) -> &'a Value {
    let found = findings.as_array().and_then(|all| all.iter().find(|it| it["name"] == name));
    found.unwrap_or_else(|| panic!("{name} is missing: {findings:#}"))
}
