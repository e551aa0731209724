//! The checks that every adapter must pass, by name. They are for the adapters of this library and for any other.
//!
//! The author of an adapter writes the worker of `docs/adapters-contract.md`, implements a [`Subject`] that returns a
//! pool of this worker and declares what the adapter cannot do, and gets a test for each check:
//!
//! ```ignore
//! snakepit::conformance_tests!(MySubject);            // all checks
//! snakepit::first_conformance_tests!(MySubject);      // those that a new adapter passes first
//! ```
//!
//! Each check starts its own engine in its own directory, and panics if something does not hold. At its end, it proves
//! that nothing is left, that `init` ran once, and that each worker that became ready was terminated exactly once.

mod checks;
mod mock;
mod recording;
mod subject;
mod test_engine;
#[cfg(test)]
mod tests;

use std::fmt;

use futures_util::future::BoxFuture;

pub use mock::MockSubject;
pub use subject::{Capability, Feature, Subject, Way};

use CheckVerdict::Held;

/// The outcome of a check that did not fail.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CheckVerdict {
    /// The check holds.
    Held,
    /// The adapter lacks a feature, for this reason.
    Skipped(String),
}

/// A named check.
#[derive(Clone, Copy)]
pub struct AdapterCheck {
    /// The sentence that must hold.
    pub name: &'static str,
    needs: &'static [Feature],
    check: fn(&dyn Subject) -> BoxFuture<'_, CheckEnd>,
}

/// How the function of a check ends. Most checks hold if they return; some skip a part of what they check.
struct CheckEnd(CheckVerdict);

impl From<()> for CheckEnd {
    fn from((): ()) -> Self {
        Self(Held)
    }
}

impl From<CheckVerdict> for CheckEnd {
    fn from(verdict: CheckVerdict) -> Self {
        Self(verdict)
    }
}

impl fmt::Debug for AdapterCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl AdapterCheck {
    /// Runs the check, and panics if it does not hold. Needs a multi-thread runtime.
    pub async fn run(&self, subject: &dyn Subject) -> CheckVerdict {
        for feature in self.needs {
            if let Capability::Absent(reason) = subject.capability(*feature) {
                return CheckVerdict::Skipped(format!("{feature:?}: {reason}"));
            }
        }
        (self.check)(subject).await.0
    }
}

/// Runs the check of this name in a new runtime, as a test does. Panics if it does not hold.
pub fn run(name: &str, subject: &dyn Subject) -> CheckVerdict {
    let Some(check) = CHECKS.iter().find(|check| check.name == name) else {
        panic!("there is no check {name}");
    };
    match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime.block_on(check.run(subject)),
        Err(error) => panic!("no runtime: {error}"),
    }
}

/// Makes the list of checks, and the macros that turn it into tests. A check may need features of the adapter, in
/// parentheses.
macro_rules! checks {
    ($dollar:tt first: [$($first:ident)*] $($module:ident: [$($name:ident $(($($feature:ident)*))?)*])*) => {
        /// All checks.
        pub const CHECKS: &[AdapterCheck] = &[$($(
            AdapterCheck {
                name: stringify!($name),
                needs: &[$($(Feature::$feature),*)?],
                check: |subject| Box::pin(async move { checks::$module::$name(subject).await.into() }),
            },
        )*)*];

        /// Defines a test for each check, with the [`Subject`](crate::adapters::Subject) that the expression makes.
        #[macro_export]
        macro_rules! conformance_tests {
            ($dollar subject:expr) => {
                $dollar crate::conformance_tests! { @ $dollar subject; $($($name)*)* }
            };
            (@ $dollar subject:expr; $dollar ($dollar name:ident)*) => {$dollar (
                #[test]
                fn $dollar name() {
                    let verdict = $dollar crate::adapters::run(stringify!($dollar name), &$dollar subject);
                    if let $dollar crate::adapters::CheckVerdict::Skipped(reason) = verdict {
                        println!("skipped: {reason}");
                    }
                }
            )*};
        }

        /// Defines a test for each check that a new adapter passes first: the worker becomes ready, answers, fails as
        /// it should and leaves nothing behind. These checks need only the commands `echo`, `add` and `fail`.
        #[macro_export]
        macro_rules! first_conformance_tests {
            ($dollar subject:expr) => {
                $dollar crate::conformance_tests! { @ $dollar subject; $($first)* }
            };
        }
    };
}

checks! { $
    first: [
        a_worker_that_is_ready_answers
        a_worker_that_is_never_ready_is_given_up
        a_worker_that_ends_before_it_is_ready_fails_at_once
        an_unknown_command_is_an_error_that_says_so
        a_call_is_answered_with_its_result
        many_calls_at_once_get_their_own_answers
        an_error_says_what_happened
        an_error_harms_nobody
        plain_values_come_back_as_they_were
        a_worker_that_is_killed_fails_its_call_and_is_replaced
        init_runs_once_and_each_worker_is_started_once
        a_stopped_worker_is_terminated_once
        a_call_that_comes_after_the_end_is_answered
    ]
    start: [
        a_worker_that_is_ready_answers
        a_worker_says_which_commands_it_has(Commands)
        an_unknown_command_is_an_error_that_says_so
        a_worker_that_is_never_ready_is_given_up(Processes)
        a_worker_that_ends_before_it_is_ready_fails_at_once(Processes)
    ]
    calls: [
        a_call_is_answered_with_its_result
        many_calls_at_once_get_their_own_answers
        calls_run_at_the_same_time_where_they_may(Concurrency)
        large_values_travel_both_ways
        what_a_worker_prints_is_kept_and_harms_nothing(Prints)
        a_worker_knows_how_much_time_is_left(Deadline)
        a_worker_knows_the_session(Sessions)
        a_worker_knows_what_the_caller_sent_along(Metadata)
        a_worker_uses_a_tool_of_the_host(Tools)
    ]
    values: [
        plain_values_come_back_as_they_were
        integers_keep_their_size
        floats_stay_floats
        numbers_that_are_none_come_back_or_are_refused
        byte_strings_come_back_or_are_refused
        date_times_come_back_or_are_refused
        keys_of_any_kind_come_back_or_are_refused
        values_inside_values_come_back
    ]
    errors: [
        an_error_says_what_happened
        an_error_tells_its_type(ErrorTypes)
        an_error_tells_where_it_happened(Tracebacks)
        an_error_tells_its_cause(Causes)
        an_error_harms_nobody
        a_result_that_cannot_be_sent_is_an_error_with_its_path(RefusedResults)
    ]
    streams: [
        a_stream_brings_its_values_in_order(Streams)
        a_stream_without_values_ends(Streams)
        a_plain_command_is_a_stream_of_one_value(Streams)
        a_stream_that_fails_brings_what_it_had(Streams)
        a_stream_that_nobody_reads_any_more_is_cancelled(Streams Cancel)
        a_slow_reader_holds_the_worker_back(Streams Backpressure)
    ]
    cancels: [
        a_call_that_nobody_waits_for_is_cancelled_in_the_worker(Cancel)
        a_call_whose_time_is_over_is_cancelled_in_the_worker(Cancel)
        a_cancelled_call_does_not_cost_the_worker(Cancel)
    ]
    deaths: [
        a_worker_that_exits_fails_its_call_with_an_autopsy(Crash)
        a_worker_that_a_signal_ends_fails_its_call_with_an_autopsy(Processes Crash)
        a_worker_that_is_killed_fails_its_call_and_is_replaced(Processes)
        a_death_harms_no_neighbour(Crash)
        calls_that_wait_behind_a_death_are_served(Crash)
        garbage_costs_its_own_call_only(Garbage)
        nothing_that_a_dead_worker_started_lives_on(Processes Crash)
    ]
    stops: [
        a_stop_lets_calls_finish
        a_stop_does_not_wait_for_ever(Processes)
        a_stopped_pool_takes_no_call
        nothing_that_a_worker_started_outlives_a_stop(Processes)
    ]
    lifecycle: [
        init_runs_once_and_each_worker_is_started_once
        a_start_that_is_cancelled_leaves_nothing(Processes)
        a_start_that_is_cancelled_while_it_warms_up_is_terminated_once
        a_worker_that_does_not_warm_up_is_terminated_once
        a_runtime_that_is_dropped_terminates_its_workers_once
        a_runtime_that_is_dropped_while_a_worker_warms_up_terminates_it_once
        a_runtime_that_is_dropped_during_a_goodbye_terminates_nobody_twice
    ]
    endings: [
        a_stopped_worker_is_terminated_once
        a_worker_too_many_is_terminated_once
        a_replaced_worker_is_terminated_once
        a_dead_worker_is_terminated_once(Processes)
        a_broken_worker_is_terminated_once
        a_stubborn_worker_is_terminated_once
        a_stuck_worker_is_terminated_once
        a_terminate_that_does_not_end_is_not_waited_for
        a_call_that_comes_after_the_end_is_answered
    ]
}
