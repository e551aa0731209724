//! The tiers that work under each profile. docs/containers.md promises the same to users.

use snakepit_proving::confinement::Profile;

/// The names of the tiers on the command line.
pub(crate) const TIERS: [&str; 4] = ["auto", "shim", "group", "namespace"];

/// The expected result of a tier.
#[derive(Clone, Copy)]
pub(crate) enum ExpectedResult {
    Works,
    /// Refused with a sentence that contains all of these words.
    Refused(&'static [&'static str]),
}

const NO_NAMESPACES: ExpectedResult =
    ExpectedResult::Refused(&["the tier namespace", "making the namespaces", "Operation not permitted"]);
const NO_PROC: ExpectedResult =
    ExpectedResult::Refused(&["the tier namespace", "mounting /proc", "Operation not permitted"]);
const NO_PIDFDS: ExpectedResult =
    ExpectedResult::Refused(&["this kernel has no pidfds (pidfd_open: ", "Linux 5.3 or newer"]);
const NO_BOOT_ID: ExpectedResult =
    ExpectedResult::Refused(&["/proc/sys/kernel/random/boot_id", "ProcSubset=all"]);

/// Returns the expected result of this tier under this profile.
pub(crate) fn expected(profile: &Profile, tier: &str) -> ExpectedResult {
    let namespace = tier == "namespace";
    match profile.name {
        "docker" | "containerd" | "systemd" if namespace => NO_NAMESPACES,
        "podman" if namespace => NO_PROC,
        "docker" | "containerd" | "podman" | "gvisor" | "systemd" => ExpectedResult::Works,
        "old-kernel" => NO_PIDFDS,
        "systemd-pid-subset" => NO_BOOT_ID,
        other => panic!("nothing is expected of {other}"),
    }
}

/// People read the table, and tests read this file. Both must list the same profiles.
#[test]
fn the_table_in_the_docs_has_a_row_for_every_profile() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/containers.md");
    let text = std::fs::read_to_string(&path).expect("docs/containers.md");
    for profile in snakepit_proving::confinement::ALL {
        let cell = format!("| `{}` |", profile.name);
        let row = text.lines().find(|line| line.ends_with(&cell));
        let row = row.unwrap_or_else(|| panic!("no row for {}", profile.name));
        let works = matches!(expected(profile, "auto"), ExpectedResult::Works);
        assert_eq!(row.split('|').nth(2).is_some_and(|cell| cell.trim() == "yes"), works, "{row}");
    }
}
