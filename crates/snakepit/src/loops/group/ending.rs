//! In which order the loops of a group end: all of one priority at once, the lowest first, under one deadline.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, timeout};

use super::Member;
use crate::loops::Runnable;

/// Tells the loops to finish, level by level; ends when the last level was told and has ended, or its time is over.
///
/// A level is waited for only as long as leaves each of the later ones the same time; the last one has all that is left. Whoever
/// is not done by then may go on until the deadline of all.
pub(super) async fn shut_down(members: &[Member], deadline: Instant) {
    let mut levels = levels(members);
    while let Some(level) = levels.pop() {
        let left = deadline.saturating_duration_since(Instant::now());
        let ends: Vec<_> = level.iter().map(|runnable| runnable.shutdown(left)).collect();
        let share = left / u32::try_from(levels.len() + 1).unwrap_or(u32::MAX);
        // Those who are not done yet are waited for by the group.
        let _ = timeout(share.max(Duration::ZERO), join_all(ends)).await;
    }
}

/// The loops by priority; the lowest, which ends first, is the last.
fn levels(members: &[Member]) -> Vec<Vec<Arc<dyn Runnable>>> {
    let mut priorities: Vec<i32> = members.iter().map(|member| member.priority).collect();
    priorities.sort_unstable_by(|a, b| b.cmp(a));
    priorities.dedup();
    let of = |priority: i32| {
        let same = members.iter().filter(move |member| member.priority == priority);
        same.map(|member| Arc::clone(&member.runnable)).collect()
    };
    priorities.into_iter().map(of).collect()
}
