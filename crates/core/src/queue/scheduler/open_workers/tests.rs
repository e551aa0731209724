//! Tests the rules between callers without the lock and the scheduler, with a scheduler that only queues.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use super::*;
use crate::worker::OpenPlaces;

struct Places(WorkerPlaces);

impl AsRef<WorkerPlaces> for Places {
    fn as_ref(&self) -> &WorkerPlaces {
        &self.0
    }
}

fn pool(workers: usize, places: usize, open: OpenPlaces) -> OpenWorkers<Places> {
    let pool = OpenWorkers::default();
    for index in 0..workers {
        let worker = Arc::new(Places(WorkerPlaces::new(places)));
        worker.0.open(open);
        pool.set_worker(index, Some(ShardedArc::new(&worker)));
    }
    pool
}

fn taken(pool: &OpenWorkers<Places>) -> Option<Arc<Places>> {
    pool.take(u32::MAX).place.map(|place| Arc::clone(&place.worker))
}

#[test]
fn idle_workers_come_first_and_then_every_free_place_is_taken_once() {
    let pool = pool(3, 2, OpenPlaces::Free);
    let first: Vec<_> = (0..3).filter_map(|_| taken(&pool)).collect();
    assert!(first.iter().all(|worker| worker.0.held() == 1), "each worker has one call");
    let second: Vec<_> = (0..3).filter_map(|_| taken(&pool)).collect();
    assert_eq!(second.len(), 3);
    assert!(first.iter().all(|worker| worker.0.held() == 2));
    assert!(taken(&pool).is_none());
}

#[test]
fn nobody_takes_a_place_past_a_call_that_waits() {
    let pool = pool(1, 1, OpenPlaces::Free);
    pool.announce();
    assert!(taken(&pool).is_none());
    pool.set_waiting(0, false);
    assert!(taken(&pool).is_some());
}

#[test]
fn a_closed_worker_is_not_chosen_and_an_opened_one_is() {
    let pool = pool(1, 1, OpenPlaces::None);
    assert!(taken(&pool).is_none());
    let worker = pool.table.load().workers[0].clone().expect("there is one");
    worker.0.open(OpenPlaces::Free);
    pool.list(0, &worker);
    assert!(taken(&pool).is_some());
}

#[test]
fn short_calls_wait_at_the_worker_with_less_work() {
    let pool = pool(2, 1, OpenPlaces::FreeAndAhead);
    for _ in 0..10 {
        let place = pool.take(1000).place.expect("short calls may wait");
        place.worker.0.add_work(1000);
    }
    let held: Vec<_> = pool.table.load().workers.iter().flatten().map(|worker| worker.0.held()).collect();
    assert_eq!(held, [5, 5]);
}

/// Calls that wait, under the lock that stands for the scheduler's.
struct Queue {
    pool: OpenWorkers<Places>,
    waiting: Mutex<VecDeque<usize>>,
    served: Vec<AtomicBool>,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, VecDeque<usize>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, call: usize, index: usize, worker: &Arc<Places>) {
        let was_served = self.served[call].swap(true, Ordering::SeqCst);
        assert!(!was_served, "a call is served once");
        assert!(worker.0.held() <= worker.0.places());
        self.free(index, worker);
    }

    fn free(&self, index: usize, worker: &Arc<Places>) {
        let freed = worker.0.free(0);
        if !self.pool.note_freed(index, worker, freed) {
            self.feed(index, worker);
        }
    }

    fn feed(&self, index: usize, worker: &Arc<Places>) {
        let mut waiting = self.lock();
        let next = if waiting.is_empty() { None } else { worker.0.take(worker.0.places()) };
        let call = next.and_then(|_| waiting.pop_front());
        self.pool.set_waiting(waiting.len(), false);
        drop(waiting);
        if let Some(call) = call {
            self.serve(call, index, worker);
        }
    }

    fn index_of(&self, worker: &Arc<Places>) -> usize {
        let table = self.pool.table.load();
        let is_it = |known: &Option<ShardedArc<Places>>| {
            known.as_ref().is_some_and(|known| Arc::ptr_eq(known, worker))
        };
        table.workers.iter().position(is_it).expect("the workers stay")
    }

    fn submit(&self, call: usize) {
        let taken = self.pool.take(u32::MAX);
        let place = taken.place.or_else(|| {
            let mut waiting = self.lock();
            let choose = || self.pool.choose(u32::MAX).place;
            let place = waiting.is_empty().then(choose).flatten().or_else(|| {
                self.pool.announce();
                waiting.is_empty().then(choose).flatten()
            });
            if place.is_none() {
                waiting.push_back(call);
            }
            self.pool.set_waiting(waiting.len(), false);
            place
        });
        if let Some(place) = place {
            self.serve(call, self.index_of(&place.worker), &place.worker);
        }
        if let Some(index) = taken.unlisted {
            let worker = self.pool.table.load().workers[index].clone().expect("the workers stay");
            self.feed(index, &worker);
        }
    }
}

#[test]
fn no_call_waits_while_a_worker_is_free() {
    const THREADS: usize = 4;
    let (rounds, calls) = if cfg!(miri) { (1, 10) } else { (200, 500) };
    for round in 0..rounds {
        let (workers, places) = (1 + round % 3, 1 + round % 2);
        let queue = Queue {
            pool: pool(workers, places, OpenPlaces::Free),
            waiting: Mutex::default(),
            served: (0..THREADS * calls).map(|_| AtomicBool::new(false)).collect(),
        };
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let queue = &queue;
                scope.spawn(move || (0..calls).for_each(|call| queue.submit(thread * calls + call)));
            }
        });
        let forgotten = queue.served.iter().filter(|served| !served.load(Ordering::SeqCst)).count();
        assert_eq!(forgotten, 0, "round {round}: all workers are free, and calls wait");
    }
}
