//! Every fault of a broken backend is detected by the rule or check that is meant for it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use snakepit::mailbox::{DeadLetterPolicy, Mailbox, MemoryMailboxes, ReceiveOptions, SendOptions};
use snakepit::mailbox_conformance::history::ClientOperation;
use snakepit::mailbox_conformance::load::{self, ClientLoad};
use snakepit::mailbox_conformance::{
    CHECKS, CheckerReport, FinalState, Fixture, History, Rule, Terms, check, conformance,
};

use crate::broken::{BackendFault, BrokenFixture, BrokenMailbox};

const LIMIT: u32 = 5;
const LEASE: Duration = Duration::from_secs(10);

/// Runs clients, cuts the power, and runs more clients, while the wall clock stands still. Time passes only for the
/// mailbox, so a backend that reads the wall clock would see it jump back all the time.
async fn trial(fault: BackendFault, seed: u64) -> CheckerReport {
    let policy = DeadLetterPolicy::new().max_deliveries(LIMIT);
    let broken = BrokenMailbox::new(&MemoryMailboxes::new(), "trial", policy, fault, Arc::default())
        .expect("a mailbox");
    let mailbox: Arc<dyn Mailbox> = Arc::clone(&broken) as Arc<dyn Mailbox>;
    let history = History::new();
    let load =
        ClientLoad { producers: 3, consumers: 3, messages: 100, lease: LEASE, seed, patience: LEASE * 100 };
    let jumps = async {
        let mut ticks = tokio::time::interval(LEASE * 3);
        loop {
            ticks.tick().await;
            history.mark(ClientOperation::WallJump);
        }
    };
    tokio::select! {
        outcome = load::run(&history, &mailbox, load) => outcome.expect("the mailbox works"),
        () = jumps => {}
    }
    let client = history.client(99, &mailbox);
    for number in 0..30 {
        client
            .send(format!("before the cut {number} of {seed}").into(), SendOptions::new())
            .await
            .expect("it is sent");
    }
    let options = ReceiveOptions::new().max_messages(10).visibility_timeout(LEASE);
    for message in client.receive(options).await.expect("it can be received").iter().take(5) {
        // Messages that a fault made up cannot be acknowledged.
        drop(client.ack(message).await);
    }
    history.mark(ClientOperation::Cut);
    broken.cut().await;
    let load = ClientLoad { seed: seed + 1, messages: 80, ..load };
    load::run(&history, &mailbox, load).await.expect("the mailbox works");
    let ending = FinalState::of(&history, mailbox.as_ref()).await.expect("it can be looked at");
    check(&history.events(), &ending, Terms { max_deliveries: LIMIT, slack: Duration::ZERO })
}

fn tried(fault: BackendFault, seed: u64) -> CheckerReport {
    BrokenFixture::new(fault).runtime().block_on(trial(fault, seed))
}

fn assert_caught_by_rule(fault: BackendFault, rule: Rule) {
    let mut first = Vec::new();
    // The effect of a fault depends on chance, and some faults need two tasks at the same moment.
    for seed in 7..47 {
        let report = tried(fault, seed);
        if report.broken().contains(&rule) {
            return;
        }
        first.extend(report.violations.iter().take(5).map(ToString::to_string));
    }
    panic!("{fault:?} was to be caught by {rule:?}: {first:?}");
}

fn assert_caught_by_check(fault: BackendFault, name: &str) {
    let fixture = BrokenFixture::new(fault);
    let outcome = catch_unwind(AssertUnwindSafe(|| conformance::run(name, &fixture)));
    assert!(outcome.is_err(), "{fault:?} was to be caught by {name}");
}

#[test]
fn a_backend_without_faults_is_clean() {
    for seed in 0..5 {
        tried(BackendFault::Nothing, seed).assert_clean(&[]);
    }
    for check in CHECKS {
        conformance::run(check.name, &BrokenFixture::new(BackendFault::Nothing));
    }
}

macro_rules! caught_by_the_checker {
    ($($name:ident: $fault:ident, $rule:ident;)*) => {$(
        #[test]
        fn $name() {
            assert_caught_by_rule(BackendFault::$fault, Rule::$rule);
        }
    )*};
}

macro_rules! caught_by_the_suite {
    ($($name:ident: $fault:ident, $check:ident;)*) => {$(
        #[test]
        fn $name() {
            assert_caught_by_check(BackendFault::$fault, stringify!($check));
        }
    )*};
}

caught_by_the_checker! {
    q1_catches_sends_that_are_lost: LosesSends, Q1;
    q1_catches_nacks_that_lose: LosesNacks, Q1;
    q1_catches_dead_letters_that_are_dropped: DropsDeadLetters, Q1;
    q1_catches_burials_that_copy: CopiesInsteadOfMoving, Q1;
    q2_catches_messages_that_were_never_sent: DeliversUnsent, Q2;
    q2_catches_bodies_that_are_changed: ChangesBodies, Q2;
    q3_catches_deliveries_after_an_ack: DeliversAfterAck, Q3;
    q3_catches_two_accepted_acks: AcceptsStaleReceipts, Q3;
    q4_catches_stale_receipts_that_are_accepted: AcceptsStaleReceipts, Q4;
    q4_catches_acks_by_id: AcksByIdNotByReceipt, Q4;
    q4_catches_leases_that_outlast_a_nack: KeepsLeasesAfterNack, Q4;
    q4_catches_leases_that_lapse_late: LapsesLate, Q4;
    q6_catches_leases_that_lapse_early: LapsesEarly, Q6;
    q5_catches_receipts_that_are_reused: ReusesReceipts, Q5;
    q6_catches_leases_that_overlap: LeasesOverlap, Q6;
    q7_catches_attempts_that_are_forgotten: ForgetsAttempts, Q7;
    q7_catches_attempts_that_count_twice: CountsTwice, Q7;
    q7_catches_a_limit_that_is_ignored: IgnoresTheLimit, Q7;
    q7_catches_releases_that_count: CountsReleases, Q7;
    q7_catches_nacks_that_do_not_count: UncountsNacks, Q7;
    q7_catches_errors_that_are_lost: LosesErrors, Q7;
    q7_catches_crashes_that_are_not_remembered: LosesLapses, Q7;
    q1_catches_releases_that_lose: LosesReleases, Q1;
    q8_catches_two_dead_letters_of_one: DeadLettersTwice, Q8;
    q8_catches_exhausted_messages_without_a_dead_letter: DropsDeadLetters, Q8;
    q8_catches_messages_that_are_given_up_early: GivesUpEarly, Q8;
    q9_catches_sends_that_a_cut_takes: ForgetsAtCuts, Q9;
    q9_catches_acks_that_a_cut_undoes: UndoesAcksAtCuts, Q9;
    q10_catches_leases_by_the_wall_clock: LeasesByTheWallClock, Q10;
    q11_catches_a_mailbox_that_never_drains: NeverDrains, Q11;
}

caught_by_the_suite! {
    the_suite_catches_replies_without_the_id_of_their_request: RepliesWithoutId, a_reply_has_the_id_the_attributes_and_the_trace_of_its_request;
    the_suite_catches_replies_that_nobody_has_waited_for_yet: LosesEarlyReplies, a_reply_to_a_mailbox_that_nobody_has_opened_waits_there;
    the_suite_catches_answers_to_somebody_else: MixesUpResults, each_of_many_requests_gets_its_own_answer;
    the_suite_catches_results_that_are_forgotten: ForgetsResults, a_result_is_kept_for_its_time_and_read_by_its_id;
    the_suite_catches_looks_that_bury: BuriesWhenLookedAt, looking_changes_nothing;
    the_suite_catches_a_limit_that_others_do_not_see: KeepsTheLimitToItself, a_limit_that_one_sets_holds_for_all;
    the_suite_catches_errors_that_are_lost: LosesErrors, the_last_error_stays_with_what_is_given_up;
    the_suite_catches_crashes_that_are_not_remembered: LosesLapses, each_attempt_is_remembered;
    the_suite_catches_batches_out_of_order: Reorders, first_deliveries_come_in_the_order_of_their_sends;
    the_suite_catches_priorities_that_are_ignored: IgnoresPriorities, higher_priorities_come_first;
    the_suite_catches_receivers_that_are_never_woken: NeverWakes, a_send_wakes_a_receiver;
    the_suite_catches_waits_for_full_batches: FillsBatches, m2_a_receive_never_waits_to_fill_its_batch;
    the_suite_catches_sends_to_a_closed_mailbox: SendsWhenClosed, m3_a_closed_mailbox_takes_and_gives_nothing;
    the_suite_catches_a_close_that_nobody_hears: SleepsThroughClose, a_close_wakes_all_receivers;
    the_suite_catches_ranges_that_are_clamped: ClampsRanges, a_receive_takes_1_to_10_messages;
    the_suite_catches_dedup_keys_that_are_forgotten: ForgetsDedupKeys, a_dedup_key_is_taken_once;
    the_suite_catches_replies_without_an_ack: RepliesWithoutAck, a_reply_arrives_and_acknowledges;
    the_suite_catches_extensions_that_are_ignored: IgnoresExtensions, an_extended_lease_lasts_longer;
    the_suite_catches_extensions_that_shorten: ExtensionsShorten, an_extension_never_shortens_a_lease;
    the_suite_catches_receipts_that_outlive_their_lease: LapsesLate, m1_a_lapsed_receipt_is_refused_although_nobody_has_looked;
    the_suite_catches_poison_that_is_delivered_for_ever: IgnoresTheLimit, m5_a_message_that_kills_its_receivers_ends_as_a_dead_letter;
    the_suite_catches_groups_that_are_ignored: IgnoresGroups, messages_of_a_group_come_one_at_a_time_and_in_order;
    the_suite_catches_a_rate_that_is_ignored: IgnoresTheRate, a_rate_holds_for_the_whole_mailbox;
    the_suite_catches_a_rate_of_groups_that_is_ignored: IgnoresTheGroupRate, a_rate_holds_for_each_group;
    the_suite_catches_rate_keys_that_are_ignored: IgnoresRateKeys, a_rate_holds_for_each_key_and_other_keys_go_on;
    the_suite_catches_messages_of_a_paused_mailbox: GivesWhilePaused, a_paused_mailbox_takes_messages_and_gives_none;
    the_suite_catches_a_pause_that_is_forgotten: ForgetsThePauseAtReopening, a_pause_outlives_its_process;
    the_suite_catches_dedup_keys_that_are_forgotten_early: ForgetsDedupKeysEarly, a_dedup_key_is_remembered_for_as_long_as_asked;
    the_suite_catches_dead_letters_that_are_copies: CopiesInsteadOfMoving, m6_a_message_is_moved_to_the_dead_letters_not_copied;
}
