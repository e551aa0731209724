//! The expected survivors of each fault in each tier.
//!
//! No process may survive, with two exceptions: in the group tier, processes that left the group; in the shim tier
//! without a cgroup, with keeper and shims killed, descendants that removed the marker. If keeper and shims are dead or
//! stopped, no process acts before the next start.

use std::collections::BTreeSet;

use snakepit_proving::{GridCell, GridTier};

const ZERO: GridCell = GridCell::ZERO;
const NEXT: GridCell = GridCell::ZERO_NEXT;
const LEFT: GridCell = GridCell::LEFT;
const LEFT_NEXT: GridCell = GridCell::LEFT_NEXT;
const SHED_NEXT: GridCell = GridCell::SHED_NEXT;

/// One row per file. The columns are namespace, auto (shims and a cgroup), shim, group.
#[rustfmt::skip]
const TABLE: &[(&str, [GridCell; 4])] = &[
    //                                        namespace  auto  shim        group
    ("normal_exit",                          [ZERO,      ZERO, ZERO,       LEFT]),
    ("process_exit",                         [ZERO,      ZERO, ZERO,       LEFT]),
    ("panic_unwind",                         [ZERO,      ZERO, ZERO,       LEFT]),
    ("panic_abort",                          [ZERO,      ZERO, ZERO,       LEFT]),
    ("kill_host",                            [ZERO,      ZERO, ZERO,       LEFT]),
    ("kill_keeper",                          [ZERO,      ZERO, ZERO,       LEFT]),
    ("kill_host_and_keeper",                 [ZERO,      ZERO, ZERO,       LEFT]),
    ("kill_host_keeper_and_shims",           [ZERO,      NEXT, SHED_NEXT,  LEFT_NEXT]),
    ("stop_keeper_then_kill_host",           [ZERO,      ZERO, ZERO,       LEFT]),
    ("stop_keeper_and_shims_then_kill_host", [ZERO,      NEXT, NEXT,       LEFT_NEXT]),
    ("kill_spare",                           [ZERO,      ZERO, ZERO,       ZERO]),
    ("stopped_workers",                      [ZERO,      ZERO, ZERO,       ZERO]),
    ("ignored_signals",                      [ZERO,      ZERO, ZERO,       ZERO]),
    ("double_fork",                          [ZERO,      ZERO, ZERO,       LEFT]),
    ("shed_everything",                      [ZERO,      ZERO, ZERO,       LEFT]),
    ("fork_chains",                          [ZERO,      ZERO, ZERO,       LEFT]),
    ("fork_bomb",                            [ZERO,      ZERO, ZERO,       LEFT]),
    // In the group tier every child leaves the group and keeps forking.
    ("breeding",                             [ZERO,      ZERO, ZERO,       LEFT]),
    ("changed_credentials",                  [ZERO,      ZERO, ZERO,       ZERO]),
    ("spawning_thread_exits",                [ZERO,      ZERO, ZERO,       LEFT]),
    ("main_thread_exits",                    [ZERO,      ZERO, ZERO,       LEFT]),
    ("inherited_descriptors",                [ZERO,      ZERO, ZERO,       LEFT]),
    ("ctrl_c",                               [ZERO,      ZERO, ZERO,       LEFT]),
    ("ctrl_backslash",                       [ZERO,      ZERO, ZERO,       LEFT]),
    ("hang_up",                              [ZERO,      ZERO, ZERO,       LEFT]),
    ("kill_host_group",                      [ZERO,      ZERO, ZERO,       LEFT]),
    ("oom_host",                             [ZERO,      ZERO, ZERO,       LEFT]),
    ("oom_worker",                           [ZERO,      ZERO, ZERO,       LEFT]),
    ("spawn_storm",                          [ZERO,      ZERO, ZERO,       ZERO]),
    ("kill_at_every_step",                   [ZERO,      ZERO, ZERO,       ZERO]),
    ("errno_at_every_step",                  [ZERO,      ZERO, ZERO,       ZERO]),
    ("pid_reuse",                            [ZERO,      ZERO, ZERO,       ZERO]),
    // This fault sends no signal. The test itself ends the remaining processes.
    ("ledger_of_another_boot",               [ZERO,      ZERO, ZERO,       ZERO]),
    ("ledger_of_another_namespace",          [ZERO,      ZERO, ZERO,       ZERO]),
    // The worker sheds the marker, so only its own record identifies it. A cgroup finds it without the record.
    ("ledger_torn",                          [ZERO,      NEXT, NEXT,       NEXT]),
    ("ledger_truncated",                     [ZERO,      NEXT, NEXT,       NEXT]),
    ("ledger_bit_flipped",                   [ZERO,      NEXT, NEXT,       NEXT]),
    ("ledger_damaged_anywhere",              [ZERO,      ZERO, ZERO,       ZERO]),
    ("two_reapers",                          [ZERO,      NEXT, NEXT,       NEXT]),
    // The processes cannot die while they are frozen, which is reported. They are gone after the thaw.
    ("frozen_v1",                            [ZERO,      ZERO, ZERO,       ZERO]),
    ("frozen_v2",                            [ZERO,      ZERO, ZERO,       ZERO]),
    ("disk_full",                            [ZERO,      ZERO, ZERO,       ZERO]),
    ("read_only_state_dir",                  [ZERO,      ZERO, ZERO,       ZERO]),
    ("left_children",                        [ZERO,      ZERO, ZERO,       LEFT]),
    ("stop_races_exit",                      [ZERO,      ZERO, ZERO,       ZERO]),
    ("foreign_parent_dir",                   [ZERO,      ZERO, ZERO,       ZERO]),
    ("foreign_state_dir",                    [ZERO,      ZERO, ZERO,       ZERO]),
    ("symlinked_state_dir",                  [ZERO,      ZERO, ZERO,       ZERO]),
    ("umask_zero",                           [ZERO,      ZERO, ZERO,       ZERO]),
    ("forked_copy",                          [ZERO,      ZERO, ZERO,       LEFT]),
    ("foreign_proc",                         [ZERO,      ZERO, ZERO,       ZERO]),
    ("unseen_namespace",                     [ZERO,      ZERO, ZERO,       ZERO]),
    ("time_namespace",                       [ZERO,      NEXT, NEXT,       NEXT]),
    ("errors_of_looking",                    [ZERO,      NEXT, NEXT,       NEXT]),
    ("copied_environment",                   [ZERO,      ZERO, ZERO,       ZERO]),
    ("held_by_a_tracer",                     [ZERO,      ZERO, ZERO,       ZERO]),
    ("lost_keeper_unseen",                   [ZERO,      ZERO, ZERO,       ZERO]),
    ("own_namespace",                        [ZERO,      ZERO, ZERO,       LEFT]),
    ("many_starts",                          [ZERO,      ZERO, ZERO,       ZERO]),
    ("unprovable",                           [ZERO,      ZERO, ZERO,       ZERO]),
    ("forged_markers",                       [ZERO,      ZERO, ZERO,       ZERO]),
    // The test itself must end the child of another user.
    ("elevated_child",                       [ZERO,      ZERO, ZERO,       LEFT]),
    ("refused_calls",                        [ZERO,      ZERO, ZERO,       LEFT]),
    ("seized_shim",                          [ZERO,      ZERO, ZERO,       LEFT]),
    ("signalled_custody",                    [ZERO,      ZERO, ZERO,       LEFT]),
    ("subgroups",                            [ZERO,      ZERO, ZERO,       LEFT]),
    ("threaded_cgroup",                      [ZERO,      ZERO, ZERO,       LEFT]),
    ("ten_thousand_spawns",                  [ZERO,      ZERO, ZERO,       ZERO]),
];

/// Files without a fault: shared code, the harness's own tests, and the basic faults for another user.
const NOT_FAULTS: [&str; 4] = ["mod", "expected", "harness", "unprivileged"];

/// Returns the cell of the table.
pub(super) fn cell(fault: &str, tier: GridTier) -> GridCell {
    let row = TABLE.iter().find(|(name, _)| *name == fault);
    row.unwrap_or_else(|| panic!("the table has no row for {fault}")).1[tier.column()]
}

#[test]
fn every_fault_has_a_row_and_every_row_a_fault() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/custody/faults");
    let files = std::fs::read_dir(dir).expect("the faults");
    let files: BTreeSet<String> = files
        .map(|file| file.expect("a file").path())
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .filter(|name| !NOT_FAULTS.contains(&name.as_str()))
        .collect();
    let rows: BTreeSet<String> = TABLE.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(files, rows);
}
