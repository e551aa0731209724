//! The checks that every backend must pass, by name. Each gets a fresh mailbox and panics if it does not hold.

mod attempts;
mod delivery_limits;
mod leases;
mod operations;
mod order;
mod ranges;
mod reopening;
mod replies;
mod settings;
mod states;
mod waiting;

use std::fmt;
use std::time::Duration;

use futures_util::future::BoxFuture;

pub use crate::adapters::CheckVerdict;

use super::Fixture;
use crate::mailboxes::test_mailbox::TestMailbox;

/// A named check.
#[derive(Clone, Copy)]
pub struct MailboxCheck {
    /// The sentence that must hold.
    pub name: &'static str,
    /// Returns why the check does not apply to this mailbox.
    skipped: fn(&TestMailbox<'_>) -> Option<String>,
    check: fn(TestMailbox<'_>) -> BoxFuture<'_, ()>,
}

impl fmt::Debug for MailboxCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl MailboxCheck {
    /// Runs the check with a fresh mailbox, and panics if it does not hold.
    pub async fn run(&self, fixture: &dyn Fixture) -> CheckVerdict {
        let test = TestMailbox::new(fixture).await;
        if let Some(reason) = (self.skipped)(&test) {
            return CheckVerdict::Skipped(reason);
        }
        (self.check)(test).await;
        CheckVerdict::Held
    }
}

/// Runs the check of this name on the fixture's runtime.
pub fn run(name: &str, fixture: &dyn Fixture) {
    let check = CHECKS.iter().find(|check| check.name == name).expect("a check of this name");
    if let CheckVerdict::Skipped(reason) = fixture.runtime().block_on(check.run(fixture)) {
        println!("skipped: {reason}");
    }
}

/// Makes the list of checks, and the macro that turns it into tests. A check may need capabilities of the backend, in
/// parentheses, and a fixture that can let this much time pass, in brackets.
macro_rules! checks {
    ($dollar:tt $($module:ident: [$($name:ident $(($($capability:ident)*))? $([$time:expr])?)*])*) => {
        /// All checks.
        pub const CHECKS: &[MailboxCheck] = &[$($(
            MailboxCheck {
                name: stringify!($name),
                skipped: |_test| {
                    $($(
                        let support = _test.mailbox.capabilities().$capability;
                        if let Some(reason) = support.reason_against() {
                            return Some(format!("{}: {reason}", stringify!($capability)));
                        }
                    )*)?
                    $(
                        if _test.fixture.patience() < $time {
                            return Some(format!("{:?} is too long to wait", $time));
                        }
                    )?
                    None
                },
                check: |test| Box::pin($module::$name(test)),
            },
        )*)*];

        /// Defines a test for each check, with the fixture that the expression makes.
        #[macro_export]
        macro_rules! mailbox_conformance_tests {
            ($dollar fixture:expr) => {$($(
                #[test]
                fn $name() {
                    $dollar crate::mailboxes::conformance::run(stringify!($name), &$dollar fixture);
                }
            )*)*};
        }
    };
}

checks! { $
    operations: [
        a_message_is_received_as_it_was_sent
        a_body_can_be_any_bytes
        an_empty_mailbox_gives_nothing_at_once
        ids_are_never_the_same
        several_are_sent_in_one_step_and_in_order
        several_are_sent_or_none
        a_receive_takes_no_more_than_it_asked_for
        acks_of_several_leave_out_what_expired
        nacks_of_several_leave_out_what_expired
        releases_of_several_leave_out_what_expired
        an_extended_lease_lasts_longer
        an_extended_lease_ends_too
        an_extension_never_shortens_a_lease
        an_exact_extension_may_shorten_a_lease
        peek_shows_what_comes_next_and_leases_nothing
        a_purge_removes_all_but_the_dead
        dead_letters_are_listed_by_their_age
        redrive_puts_back_the_chosen_ones
        a_receipt_can_be_carried_as_a_text
        a_healthy_mailbox_says_so
    ]
    replies: [
        a_reply_arrives_and_acknowledges
        a_mailbox_can_reply_to_itself
        without_a_name_there_is_no_reply
        a_reply_to_a_mailbox_that_nobody_has_opened_waits_there
        a_reply_with_an_expired_receipt_sends_nothing
        a_reply_out_of_range_leaves_the_message_leased
        a_reply_has_the_id_the_attributes_and_the_trace_of_its_request
        a_result_is_kept_for_its_time_and_read_by_its_id
        a_result_is_kept_for_more_than_nothing_and_up_to_366_days
        a_result_is_kept_for_days[Duration::from_hours(24 * 5)]
        a_reply_wakes_who_waits_for_the_result
        each_of_many_requests_gets_its_own_answer
        a_request_that_nobody_answers_ends_in_time
        a_request_that_is_dropped_harms_nobody
        results_outlive_their_process(outlives_process)
    ]
    settings: [
        a_message_is_delivered_five_times_unless_somebody_says_otherwise
        a_limit_holds_for_failures_and_crashes_alike
        a_limit_that_one_sets_holds_for_all
        whoever_opens_without_a_limit_keeps_the_one_that_is_set
        a_limit_that_is_lowered_holds_for_what_is_there
        a_limit_that_is_raised_holds_for_what_is_held
        what_died_before_a_limit_is_raised_stays_dead
        a_limit_is_at_least_one_delivery
        settings_outlive_their_process(outlives_process)
    ]
    attempts: [
        each_attempt_is_remembered
        the_last_error_stays_with_what_is_given_up
        attempts_and_their_errors_are_bounded
        an_error_outlasts_many_crashes
        a_redrive_keeps_what_is_remembered
        a_new_message_remembers_nothing_of_those_before_it
        a_message_is_found_by_its_id_wherever_it_is
        looking_changes_nothing
    ]
    ranges: [
        a_receive_takes_1_to_10_messages
        a_lease_lasts_0_s_to_12_h
        a_receive_waits_0_s_to_20_s
        a_nack_pauses_0_s_to_12_h
        an_extension_lasts_0_s_to_12_h
        a_delay_lasts_0_s_to_366_days
        a_time_to_live_is_more_than_nothing
        priorities_are_all_of_an_i8
        a_message_is_delivered_at_least_once
    ]
    states: [
        a_send_makes_it_visible
        a_send_with_a_delay_makes_it_visible_later
        a_receive_leases_it
        an_ack_ends_it
        a_nack_makes_it_visible
        a_nack_with_a_pause_makes_it_visible_later
        a_release_makes_it_visible_as_if_it_had_not_been_delivered
        a_release_of_its_last_delivery_does_not_make_it_dead
        a_release_of_what_was_begun_before_counts_that
        a_lapsed_lease_makes_it_visible
        a_lease_of_no_time_lapses_at_once
        a_bury_makes_it_dead
        a_nack_of_its_last_delivery_makes_it_dead
        a_lapse_of_its_last_lease_makes_it_dead
        its_last_delivery_can_be_acknowledged
        the_end_of_its_time_to_live_makes_it_dead
        the_end_of_its_time_to_live_ends_a_delay
        a_message_that_is_held_outlives_its_time
        a_message_that_comes_back_too_late_is_dead
        a_message_that_is_released_too_late_is_the_latest_dead_letter
        a_redrive_makes_it_new
        a_redrive_lets_it_live_for_its_time_again
        a_dedup_key_is_taken_once
        a_dedup_key_counts_within_a_batch
        a_dedup_key_is_forgotten_after_five_minutes[Duration::from_mins(5)]
    ]
    delivery_limits: [
        messages_of_a_group_come_one_at_a_time_and_in_order(groups)
        other_groups_go_on(groups)
        a_batch_takes_one_of_each_group(groups)
        a_nack_keeps_its_group_waiting(groups)
        a_release_keeps_the_order_of_a_group(groups)
        a_lapse_keeps_the_order_of_a_group(groups)
        a_dead_letter_lets_its_group_go_on(groups)
        what_dies_of_age_lets_its_group_go_on(groups)
        looking_sees_who_follows_the_dying_first_of_a_group(groups)
        a_message_behind_its_group_dies_of_age(groups)
        what_is_redriven_goes_behind_its_group(groups)
        an_ack_wakes_a_receiver_for_the_next_of_its_group(groups)
        a_purge_forgets_groups(groups)
        the_order_of_a_group_outlives_its_process(groups outlives_process)
        a_group_has_a_name_and_no_delays
        a_rate_holds_for_the_whole_mailbox(rate_limits)
        the_end_of_a_period_wakes_a_receiver(rate_limits)
        a_rate_holds_for_each_group(groups rate_limits)
        a_rate_holds_for_each_key_and_other_keys_go_on(rate_limits)
        what_a_rate_delays_does_not_wait_longer_because_a_period_begins_late(rate_limits)
        a_rate_key_counts_instead_of_the_group(groups rate_limits)
        the_end_of_a_period_wakes_a_receiver_for_its_key(rate_limits)
        a_rate_of_keys_that_is_removed_lets_all_go_on(rate_limits)
        the_rate_of_a_key_outlives_its_process(rate_limits outlives_process)
        what_is_redriven_keeps_its_rate_key(rate_limits)
        a_rate_key_has_a_name
        a_rate_is_more_than_nothing
        a_paused_mailbox_takes_messages_and_gives_none(pauses)
        a_resume_wakes_a_receiver(pauses)
        a_pause_outlives_its_process(pauses outlives_process)
        a_dedup_key_is_remembered_for_as_long_as_asked[Duration::from_hours(25)]
    ]
    order: [
        first_deliveries_come_in_the_order_of_their_sends(ordered)
        higher_priorities_come_first(priorities)
        what_comes_back_keeps_its_place(ordered)
        what_was_delayed_takes_its_place_by_its_send(ordered)
        what_is_redriven_comes_last(ordered)
    ]
    leases: [
        m1_a_lapsed_receipt_is_refused_although_nobody_has_looked
        m2_a_receive_never_waits_to_fill_its_batch
        m3_a_closed_mailbox_takes_and_gives_nothing
        what_is_under_way_can_be_finished_after_a_close
        a_reply_to_a_closed_mailbox_leaves_the_message_leased
        m4_a_body_that_cannot_be_read_harms_no_neighbour
        m4_a_mailbox_that_nobody_touches_keeps_its_messages[Duration::from_hours(24 * 8)]
        a_typed_receive_goes_on_behind_what_cannot_be_read
        m5_a_message_that_kills_its_receivers_ends_as_a_dead_letter
        m6_a_message_is_moved_to_the_dead_letters_not_copied
        an_older_receipt_is_good_for_nothing
        a_receipt_is_never_given_out_twice
        a_receipt_of_another_mailbox_is_good_for_nothing
        a_receipt_that_was_made_up_is_good_for_nothing
    ]
    waiting: [
        a_wait_ends_after_its_time
        a_send_wakes_a_receiver
        a_reply_wakes_a_receiver
        a_nack_wakes_a_receiver
        a_release_wakes_a_receiver
        a_redrive_wakes_a_receiver
        the_end_of_a_delay_wakes_a_receiver
        the_end_of_a_pause_wakes_a_receiver
        a_lapse_wakes_a_receiver
        a_lease_that_is_shortened_wakes_a_receiver
        a_delay_that_begins_during_a_wait_wakes_in_time
        a_close_wakes_all_receivers
        each_of_several_receivers_gets_one
        a_receiver_that_goes_away_takes_no_wake_up_along
    ]
    reopening: [
        messages_outlive_their_process(outlives_process)
        leases_outlive_their_process(outlives_process)
        dead_letters_outlive_their_process(outlives_process)
        what_was_done_stays_done(outlives_process)
    ]
}
