//! What is promised, stated beforehand: where a tier can be had, and who may survive a fault in it. README.md and
//! docs/containers.md tell the same to people; tests/faults/expected.rs is the longer table for one place.

use snakepit_proving::{Cell, GridTier};

use crate::cell::{Outcome, Seen};
use crate::fault::Fault;
use crate::place::Place;

/// What becomes of a tier in a place.
#[derive(Clone, Copy)]
enum Promise {
    /// It can be had, and holds.
    Holds,
    /// The same, and a cgroup stands behind it.
    HoldsWithCgroup,
    /// It is refused, with a sentence that has all of these words.
    Refused(&'static [&'static str]),
}

const YES: Promise = Promise::Holds;
const CGRP: Promise = Promise::HoldsWithCgroup;
const NO_NS: Promise =
    Promise::Refused(&["the tier namespace", "making the namespaces", "Operation not permitted"]);
const NO_PROC: Promise =
    Promise::Refused(&["the tier namespace", "mounting /proc", "Operation not permitted"]);
const NO_FDS: Promise = Promise::Refused(&["this kernel has no pidfds", "Linux 5.3 or newer"]);
const NUMBERS: Promise = Promise::Refused(&["/proc", "another PID namespace", "--mount-proc"]);

#[rustfmt::skip]
const PLACES: [(Place, [Promise; 4]); 13] = [
    //                              namespace  auto     shim     group
    (Place::Root,                  [YES,       CGRP,    YES,     YES]),
    (Place::Unprivileged,          [YES,       YES,     YES,     YES]),
    (Place::UserNamespace,         [YES,       YES,     YES,     YES]),
    (Place::Docker,                [NO_NS,     YES,     YES,     YES]),
    (Place::Podman,                [NO_PROC,   YES,     YES,     YES]),
    (Place::Gvisor,                [YES,       YES,     YES,     YES]),
    (Place::OldKernel,             [NO_FDS,    NO_FDS,  NO_FDS,  NO_FDS]),
    (Place::PidNamespace,          [YES,       CGRP,    YES,     YES]),
    (Place::PidNamespaceOuterProc, [NUMBERS,   NUMBERS, NUMBERS, NUMBERS]),
    (Place::TimeNamespace,         [YES,       CGRP,    YES,     YES]),
    (Place::NoCgroup,              [YES,       YES,     YES,     YES]),
    (Place::DelegatedCgroup,       [YES,       CGRP,    YES,     YES]),
    (Place::ThreadedCgroup,        [YES,       YES,     YES,     YES]),
];

/// Who may survive a fault in a tier, in every place where it can be had.
pub(crate) fn survivors(fault: Fault, tier: GridTier) -> Cell {
    match (fault, tier) {
        (_, GridTier::Namespace | GridTier::Auto | GridTier::Shim) => Cell::ZERO,
        // Whoever has left the group.
        (_, GridTier::Group) => Cell::LEFT,
    }
}

fn promise(place: Place, tier: GridTier) -> Promise {
    let row = PLACES.iter().find(|(it, _)| *it == place).expect("a row for every place");
    row.1[tier.column()]
}

/// How an outcome differs from what is promised; `None` if it does not.
pub(crate) fn differs(place: Place, tier: GridTier, _fault: Fault, outcome: &Outcome) -> Option<String> {
    match (promise(place, tier), outcome) {
        (_, Outcome::Unproven(_)) => None,
        (_, Outcome::Broken(words)) => Some(words.clone()),
        (Promise::Refused(words), Outcome::Refused(said)) => {
            let missing = words.iter().find(|word| !said.contains(**word))?;
            Some(format!("refused without the words {missing:?}: {said}"))
        }
        (Promise::Refused(_), Outcome::Held(_)) => Some("should have been refused".to_owned()),
        (_, Outcome::Refused(said)) => Some(format!("refused: {said}")),
        (promise, Outcome::Held(seen)) => differs_in_what_was_seen(promise, tier, seen),
    }
}

fn differs_in_what_was_seen(promise: Promise, tier: GridTier, seen: &Seen) -> Option<String> {
    let expected = matches!(promise, Promise::HoldsWithCgroup);
    match seen {
        Seen { survivors: 1.., .. } => Some(format!("{} survive", seen.survivors)),
        Seen { harm, .. } if !harm.is_empty() => Some(harm.join("; ")),
        Seen { cgroup, .. } if tier == GridTier::Auto && *cgroup != expected => {
            Some(format!("a cgroup behind the tier: {cgroup}, expected: {expected}"))
        }
        _ => None,
    }
}
