//! The expectations, stated in advance: where a tier is available, and which processes may survive a fault in it.
//! docs/custody.md and docs/containers.md promise the same to users. tests/custody/faults/expected.rs is the longer
//! table for one place.

use snakepit_proving::{GridCell, GridTier};

use crate::cell::{CellObservation, CellOutcome};
use crate::fault::MatrixFault;
use crate::place::HostPlace;

/// The expected state of a tier in a place.
#[derive(Clone, Copy)]
enum ExpectedTier {
    /// The tier is available and holds.
    Holds,
    /// The same, with a cgroup.
    HoldsWithCgroup,
    /// The tier is refused, with a sentence that contains all of these words.
    Refused(&'static [&'static str]),
}

const YES: ExpectedTier = ExpectedTier::Holds;
const CGRP: ExpectedTier = ExpectedTier::HoldsWithCgroup;
const NO_NS: ExpectedTier =
    ExpectedTier::Refused(&["the tier namespace", "making the namespaces", "Operation not permitted"]);
const NO_PROC: ExpectedTier =
    ExpectedTier::Refused(&["the tier namespace", "mounting /proc", "Operation not permitted"]);
const NO_FDS: ExpectedTier = ExpectedTier::Refused(&["this kernel has no pidfds", "Linux 5.3 or newer"]);
const NUMBERS: ExpectedTier = ExpectedTier::Refused(&["/proc", "another PID namespace", "--mount-proc"]);

#[rustfmt::skip]
const PLACES: [(HostPlace, [ExpectedTier; 4]); 13] = [
    //                              namespace  auto     shim     group
    (HostPlace::Root,                  [YES,       CGRP,    YES,     YES]),
    (HostPlace::Unprivileged,          [YES,       YES,     YES,     YES]),
    (HostPlace::UserNamespace,         [YES,       YES,     YES,     YES]),
    (HostPlace::Docker,                [NO_NS,     YES,     YES,     YES]),
    (HostPlace::Podman,                [NO_PROC,   YES,     YES,     YES]),
    (HostPlace::Gvisor,                [YES,       YES,     YES,     YES]),
    (HostPlace::OldKernel,             [NO_FDS,    NO_FDS,  NO_FDS,  NO_FDS]),
    (HostPlace::PidNamespace,          [YES,       CGRP,    YES,     YES]),
    (HostPlace::PidNamespaceOuterProc, [NUMBERS,   NUMBERS, NUMBERS, NUMBERS]),
    (HostPlace::TimeNamespace,         [YES,       CGRP,    YES,     YES]),
    (HostPlace::NoCgroup,              [YES,       YES,     YES,     YES]),
    (HostPlace::DelegatedCgroup,       [YES,       CGRP,    YES,     YES]),
    (HostPlace::ThreadedCgroup,        [YES,       YES,     YES,     YES]),
];

/// Returns which processes may survive a fault in a tier, in every place where the tier is available.
pub(crate) fn survivors(fault: MatrixFault, tier: GridTier) -> GridCell {
    match (fault, tier) {
        (_, GridTier::Namespace | GridTier::Auto | GridTier::Shim) => GridCell::ZERO,
        // Processes that have left the group may survive.
        (_, GridTier::Group) => GridCell::LEFT,
    }
}

fn promise(place: HostPlace, tier: GridTier) -> ExpectedTier {
    let row = PLACES.iter().find(|(it, _)| *it == place).expect("a row for every place");
    row.1[tier.column()]
}

/// Returns how an outcome differs from the expectation, or `None` if it does not.
pub(crate) fn differs(
    place: HostPlace,
    tier: GridTier,
    _fault: MatrixFault,
    outcome: &CellOutcome,
) -> Option<String> {
    match (promise(place, tier), outcome) {
        (_, CellOutcome::Unproven(_)) => None,
        (_, CellOutcome::Broken(words)) => Some(words.clone()),
        (ExpectedTier::Refused(words), CellOutcome::Refused(said)) => {
            let missing = words.iter().find(|word| !said.contains(**word))?;
            Some(format!("refused without the words {missing:?}: {said}"))
        }
        (ExpectedTier::Refused(_), CellOutcome::Held(_)) => Some("should have been refused".to_owned()),
        (_, CellOutcome::Refused(said)) => Some(format!("refused: {said}")),
        (promise, CellOutcome::Held(seen)) => differs_in_what_was_seen(promise, tier, seen),
    }
}

fn differs_in_what_was_seen(promise: ExpectedTier, tier: GridTier, seen: &CellObservation) -> Option<String> {
    let expected = matches!(promise, ExpectedTier::HoldsWithCgroup);
    match seen {
        CellObservation { survivors: 1.., .. } => Some(format!("{} survive", seen.survivors)),
        CellObservation { harm, .. } if !harm.is_empty() => Some(harm.join("; ")),
        CellObservation { cgroup, .. } if tier == GridTier::Auto && *cgroup != expected => {
            Some(format!("a cgroup behind the tier: {cgroup}, expected: {expected}"))
        }
        _ => None,
    }
}
