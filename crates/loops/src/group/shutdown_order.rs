//! In which order the loops of a group end: all of one priority at once, the lowest priority first, under one deadline.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use tokio::time::{Instant, timeout};

use super::loop_group::GroupMember;

/// Tells the loops to finish, priority by priority; returns when the last loops have ended, or their time is over.
///
/// The time that is left is divided evenly among the priorities that are left. A loop that is not done in its share may go on until the deadline.
pub(super) async fn shut_down(members: &[GroupMember], deadline: Instant) {
    let mut levels: BTreeMap<i32, Vec<&GroupMember>> = BTreeMap::new();
    for member in members {
        levels.entry(member.priority).or_default().push(member);
    }
    while let Some((_, level)) = levels.pop_first() {
        let left = deadline.saturating_duration_since(Instant::now());
        let ends: Vec<_> = level.iter().map(|member| member.runnable.shutdown(left)).collect();
        let share = left / u32::try_from(levels.len() + 1).unwrap_or(u32::MAX);
        // The group waits for the loops that are not done.
        let _ = timeout(share, join_all(ends)).await;
    }
}
