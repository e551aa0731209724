//! Tests the bookkeeping of batches without workers: which calls wait where, and what is due.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::adapter::Batching;
use crate::sharded::ShardRef;
use crate::value::Encoded;

const MUCH: usize = 1 << 20;

fn command(size: u32, window: Duration) -> ShardRef<PoolCommand> {
    let command = PoolCommand::numbered("embed", 3);
    command.set_batching(Some(Batching { size, window_us: window.as_micros() as u64 }));
    ShardRef::from(Arc::new(command))
}

/// Returns the key of a call. All calls arrive at the same time.
fn key(priority: i8, number: u64) -> QueueKey {
    QueueKey::new(priority, *crate::call::queue_key::BEGINNING, number)
}

fn call(command: &ShardRef<PoolCommand>, priority: i8, number: u64) -> Call {
    let mut call = Call::carrier(command.clone(), key(priority, number), None);
    call.input = Input::One(Encoded::nil());
    call
}

/// Returns a scheduler with one batch at a worker.
fn busy(command: &PoolCommand) -> Scheduler {
    let mut scheduler = Scheduler::new(100, Arc::default());
    scheduler.batches.group(command).underway = 1;
    scheduler
}

fn is_queued(scheduler: &Scheduler) -> bool {
    assert_eq!(scheduler.batches.carriers, scheduler.queue.len());
    scheduler.batches.carriers == 1
}

#[tokio::test(start_paused = true)]
async fn nothing_under_way_means_due_at_once() {
    let command = command(4, Duration::from_millis(2));
    let mut scheduler = Scheduler::new(100, Arc::default());
    let gathered = scheduler.gather(call(&command, 0, 1), QueueLimit::Holds, MUCH, Instant::now());
    assert!(matches!(gathered, BatchStep::Queued), "there is no worker: its carrier waits");
    assert!(is_queued(&scheduler));
    assert_eq!(scheduler.depth(), 1, "carriers are no calls");
}

#[tokio::test(start_paused = true)]
async fn while_one_is_under_way_the_next_gathers_until_it_is_full() {
    let command = command(3, Duration::from_millis(2));
    let mut scheduler = busy(&command);
    let now = Instant::now();
    let first = scheduler.gather(call(&command, 0, 1), QueueLimit::Holds, MUCH, now);
    assert!(matches!(first, BatchStep::Opened), "the time must be kept");
    let second = scheduler.gather(call(&command, 0, 2), QueueLimit::Holds, MUCH, now);
    assert!(matches!(second, BatchStep::Waits) && !is_queued(&scheduler));
    let third = scheduler.gather(call(&command, 0, 3), QueueLimit::Holds, MUCH, now);
    assert!(matches!(third, BatchStep::Queued) && is_queued(&scheduler));
    assert_eq!(scheduler.depth(), 3);
}

#[tokio::test(start_paused = true)]
async fn while_one_is_under_way_the_next_gathers_until_its_window_is_over() {
    let window = Duration::from_millis(2);
    let command = command(3, window);
    let mut scheduler = busy(&command);
    let now = Instant::now();
    scheduler.gather(call(&command, 0, 1), QueueLimit::Holds, MUCH, now);
    assert_eq!(scheduler.watch(&command), Some(now + window));
    scheduler.attend(&command, now + window / 2);
    assert!(scheduler.next_batch(&command).is_none() && !is_queued(&scheduler));
    scheduler.attend(&command, now + window);
    assert!(scheduler.next_batch(&command).is_none() && is_queued(&scheduler));
    assert_eq!(scheduler.watch(&command), None, "a carrier in the queue needs no clock");
}

#[tokio::test(start_paused = true)]
async fn a_batch_of_several_ends_after_a_moment_and_one_call_at_once() {
    let command = command(3, Duration::from_millis(2));
    let mut scheduler = busy(&command);
    scheduler.gather(call(&command, 0, 1), QueueLimit::Holds, MUCH, Instant::now());
    scheduler.batch_ended(&command, 3);
    scheduler.next_batch(&command);
    assert!(!is_queued(&scheduler));
    scheduler.attend(&command, Instant::now());
    scheduler.next_batch(&command);
    assert!(is_queued(&scheduler));

    let mut scheduler = busy(&command);
    scheduler.gather(call(&command, 0, 1), QueueLimit::Holds, MUCH, Instant::now());
    scheduler.batch_ended(&command, 1);
    scheduler.next_batch(&command);
    assert!(is_queued(&scheduler));
}

#[tokio::test(start_paused = true)]
async fn a_carrier_stands_where_its_most_urgent_call_would_stand() {
    let command = command(8, Duration::from_millis(2));
    let mut scheduler = Scheduler::new(100, Arc::default());
    let now = Instant::now();
    let stands = |scheduler: &Scheduler| scheduler.queue.first_key_value().map(|(key, _)| *key);
    for (priority, number) in [(0, 1), (0, 2), (5, 3)] {
        scheduler.gather(call(&command, priority, number), QueueLimit::Holds, MUCH, now);
    }
    assert_eq!(stands(&scheduler), Some(key(5, 3)));
    assert!(scheduler.withdraw(key(5, 3)).is_some());
    assert_eq!(stands(&scheduler), Some(key(0, 1)));
    assert!(scheduler.withdraw(key(0, 1)).is_some_and(|call| !call.is_empty_carrier()));
    assert!(scheduler.withdraw(key(0, 2)).is_some());
    assert!(scheduler.queue.is_empty() && scheduler.depth() == 0 && scheduler.batches.carriers == 0);
    assert!(scheduler.withdraw(key(0, 2)).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_refuses_and_what_drains_is_all_there_was() {
    let command = command(8, Duration::from_millis(2));
    let mut scheduler = Scheduler::new(2, Arc::default());
    let now = Instant::now();
    for number in 1..3 {
        scheduler.gather(call(&command, 0, number), QueueLimit::Holds, MUCH, now);
    }
    let refused = scheduler.gather(call(&command, 9, 3), QueueLimit::Holds, MUCH, now);
    assert!(matches!(refused, BatchStep::Saturated(call, 2) if call.key == key(9, 3)));
    let waived = scheduler.gather(call(&command, 0, 4), QueueLimit::Waived, MUCH, now);
    assert!(matches!(waived, BatchStep::Queued));
    assert_eq!(scheduler.close().len(), 3);
    assert!(scheduler.is_done());
    let late = scheduler.gather(call(&command, 0, 5), QueueLimit::Holds, MUCH, now);
    assert!(matches!(late, BatchStep::Closed(_)));
}

#[tokio::test(start_paused = true)]
async fn no_more_travels_together_than_fits_into_a_frame() {
    let command = command(8, Duration::from_mins(1));
    let mut scheduler = busy(&command);
    let weight = weight(&call(&command, 0, 0));
    let most = 3 * weight + command.name.len() + 4 * AROUND;
    for number in 0..3 {
        scheduler.gather(call(&command, 0, number), QueueLimit::Holds, most, Instant::now());
    }
    assert!(is_queued(&scheduler), "three are all that fits");
    scheduler.gather(call(&command, 0, 3), QueueLimit::Holds, most, Instant::now());
    let group = scheduler.batches.group(&command);
    assert_eq!((group.load(8).len(), group.calls.len(), group.bytes), (3, 1, weight));
}

#[tokio::test(start_paused = true)]
async fn a_window_of_any_length_is_no_overflow() {
    let command = command(8, Duration::MAX);
    command.set_batching(Some(Batching { size: 8, window_us: u64::MAX }));
    let mut scheduler = busy(&command);
    let gathered = scheduler.gather(call(&command, 0, 1), QueueLimit::Holds, MUCH, Instant::now());
    assert!(matches!(gathered, BatchStep::Opened));
}
