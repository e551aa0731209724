//! The order in which the loops of a group end: the lowest priority first, all loops of one priority together, under
//! one deadline.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use tokio::time::{Instant, timeout};

use super::loop_group::GroupMember;

/// Tells the loops to finish, priority by priority. Returns when the last loops have ended or their time is over.
///
/// Divides the remaining time evenly among the remaining priorities. A loop that does not finish in its share may
/// continue until the deadline.
pub(super) async fn shut_down(members: &[GroupMember], deadline: Instant) {
    let mut levels: BTreeMap<i32, Vec<&GroupMember>> = BTreeMap::new();
    for member in members {
        levels.entry(member.priority).or_default().push(member);
    }
    while let Some((_, level)) = levels.pop_first() {
        let left = deadline.saturating_duration_since(Instant::now());
        let ends: Vec<_> = level.iter().map(|member| member.runnable.shutdown(left)).collect();
        let share = left / u32::try_from(levels.len() + 1).unwrap_or(u32::MAX);
        // The group itself waits for the loops that have not finished.
        let _ = timeout(share, join_all(ends)).await;
    }
}
