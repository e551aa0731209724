//! The faults that a backend can have.

use std::time::Duration;

use snakepit::mailbox::{DeadLetterPolicy, SendOptions, SettingsChange};

/// The fault of a backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BackendFault {
    Nothing,
    LosesSends,
    LosesNacks,
    DeliversUnsent,
    ChangesBodies,
    DeliversAfterAck,
    AcceptsStaleReceipts,
    AcksByIdNotByReceipt,
    KeepsLeasesAfterNack,
    LapsesLate,
    LapsesEarly,
    IgnoresExtensions,
    ExtensionsShorten,
    ReusesReceipts,
    LeasesOverlap,
    ForgetsAttempts,
    CountsTwice,
    IgnoresTheLimit,
    GivesUpEarly,
    CountsReleases,
    LosesReleases,
    UncountsNacks,
    DeadLettersTwice,
    DropsDeadLetters,
    CopiesInsteadOfMoving,
    ForgetsAtCuts,
    UndoesAcksAtCuts,
    LeasesByTheWallClock,
    NeverDrains,
    Reorders,
    IgnoresPriorities,
    NeverWakes,
    FillsBatches,
    SendsWhenClosed,
    SleepsThroughClose,
    ClampsRanges,
    ForgetsDedupKeys,
    RepliesWithoutAck,
    LosesErrors,
    LosesLapses,
    BuriesWhenLookedAt,
    KeepsTheLimitToItself,
    RepliesWithoutId,
    LosesEarlyReplies,
    MixesUpResults,
    ForgetsResults,
    IgnoresGroups,
    IgnoresTheRate,
    IgnoresTheGroupRate,
    IgnoresRateKeys,
    GivesWhilePaused,
    ForgetsThePauseAtReopening,
    ForgetsDedupKeysEarly,
}

impl BackendFault {
    /// Changes what is sent.
    pub(super) fn change_options(self, options: &mut SendOptions) {
        match self {
            Self::IgnoresPriorities => options.priority = 0,
            Self::ForgetsDedupKeys => options.dedup_key = None,
            // The time that a key is remembered by default.
            Self::ForgetsDedupKeysEarly => options.dedup_for = None,
            Self::IgnoresGroups => options.group = None,
            Self::IgnoresRateKeys => options.rate_key = None,
            _ => {}
        }
    }

    /// Returns how long a lease lasts instead of the time that was asked for.
    pub(super) fn change_lease(self, asked: Duration) -> Duration {
        match self {
            Self::LapsesLate => asked + asked / 2,
            Self::LapsesEarly => asked / 2,
            Self::LeasesByTheWallClock => Duration::from_hours(12),
            _ => asked,
        }
    }

    /// Changes how the mailbox is configured.
    pub(super) fn change_settings(self, change: &mut SettingsChange) {
        match self {
            Self::IgnoresTheRate => change.rate_limit = None,
            Self::IgnoresTheGroupRate => change.group_rate_limit = None,
            Self::GivesWhilePaused => change.paused = None,
            _ => {}
        }
    }

    /// Returns the policy that the mailbox follows instead of the one that it was given.
    pub(super) fn change_limit(self, policy: DeadLetterPolicy) -> DeadLetterPolicy {
        match (self, policy.max_deliveries) {
            (Self::IgnoresTheLimit, Some(_)) => policy.max_deliveries(u32::MAX),
            (Self::GivesUpEarly, Some(limit)) => policy.max_deliveries(limit.saturating_sub(1).max(1)),
            _ => policy,
        }
    }
}

impl std::fmt::Debug for super::BrokenMailbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.fault.fmt(f)
    }
}
