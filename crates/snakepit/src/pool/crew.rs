//! The crew of a pool: how many workers there are, and who takes the place of one that is gone.
//!
//! One loop owns the truth: workers live in tasks of their own and report here; nobody else counts them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::session::Ended;
use super::{Health, Shared};
use crate::adapter::{Handle, Reason, Spawner, StartError};
use crate::call::waiting::after;
use crate::custody::{Run, WorkerId};
use crate::worker::{Berth, Ending, Order, Output, tend};

/// The pause after the second failure in a row; it doubles from there.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause between two attempts to start a worker.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A worker that lives shorter than this has failed as if it had not started.
const SHORT_LIFE: Duration = Duration::from_secs(1);

/// A pool's crew, from the outside.
#[derive(Clone, Debug)]
pub(crate) struct Crew(mpsc::UnboundedSender<Directive>);

#[derive(Debug)]
enum Directive {
    Scale(usize),
    Stop(oneshot::Sender<()>),
}

/// What the tasks of the workers report.
enum News {
    Serving(Arc<Berth>),
    /// It finishes what it has, and takes no more.
    Leaving(usize),
}

/// How a worker's task ended.
enum Left {
    NotStarted(StartError),
    Ended { berth: Arc<Berth>, ending: Ending },
}

impl Crew {
    /// Starts the workers. The receiver hears of the first full strength, or of the first failure.
    pub(crate) fn start(
        shared: Arc<Shared>,
        run: Option<Run>,
    ) -> (Self, oneshot::Receiver<Result<(), StartError>>) {
        let (orders, orders_in) = mpsc::unbounded_channel();
        let (first, first_in) = oneshot::channel();
        let (news, news_in) = mpsc::unbounded_channel();
        let roster = Roster {
            target: shared.config.workers,
            shared,
            run,
            next_name: 1,
            news,
            tasks: JoinSet::new(),
            starting: 0,
            serving: BTreeMap::new(),
            leaving: Vec::new(),
            failures: 0,
            pause_until: None,
            trouble: None,
            first: Some(first),
        };
        let runtime = roster.shared.runtime.clone();
        runtime.spawn(roster.work(orders_in, news_in));
        (Self(orders), first_in)
    }

    pub(crate) fn scale(&self, workers: usize) {
        let _ = self.0.send(Directive::Scale(workers));
    }

    /// Ends every worker.
    pub(crate) async fn stop(&self) {
        let (done, gone) = oneshot::channel();
        if self.0.send(Directive::Stop(done)).is_ok() {
            let _ = gone.await;
        }
    }
}

struct Roster {
    shared: Arc<Shared>,
    run: Option<Run>,
    target: usize,
    next_name: u64,
    news: mpsc::UnboundedSender<News>,
    tasks: JoinSet<Left>,
    starting: usize,
    serving: BTreeMap<usize, Arc<Berth>>,
    /// Those that finish what they have.
    leaving: Vec<Arc<Berth>>,
    failures: u32,
    pause_until: Option<Instant>,
    trouble: Option<Arc<str>>,
    first: Option<oneshot::Sender<Result<(), StartError>>>,
}

impl Roster {
    async fn work(
        mut self,
        mut orders: mpsc::UnboundedReceiver<Directive>,
        mut news: mpsc::UnboundedReceiver<News>,
    ) {
        let mut sessions_at = after(Instant::now(), self.shared.config.session_ttl);
        loop {
            self.fill_up();
            self.tell_health();
            let paused_until = self.pause_until;
            tokio::select! {
                order = orders.recv() => match order {
                    Some(Directive::Scale(workers)) => self.scale(workers),
                    Some(Directive::Stop(done)) => {
                        self.stop(news).await;
                        let _ = done.send(());
                        return;
                    }
                    None => return self.stop(news).await,
                },
                Some(heard) = news.recv() => self.hear(heard),
                Some(left) = self.tasks.join_next() => {
                    // Serving is reported before the end, through another channel: hear it first.
                    while let Ok(heard) = news.try_recv() {
                        self.hear(heard);
                    }
                    self.bury(left);
                }
                () = wait_until(paused_until) => self.pause_until = None,
                () = tokio::time::sleep_until(sessions_at) => {
                    let (ended, next) = self.shared.sessions.expire();
                    for session in ended {
                        tell_of_session_end(&self.shared, &session);
                    }
                    sessions_at = after(Instant::now(), next.max(Duration::from_millis(10)));
                }
            }
        }
    }

    fn fill_up(&mut self) {
        while self.pause_until.is_none()
            && self.starting < self.shared.config.start_batch
            && self.serving.len() + self.starting < self.target
        {
            self.starting += 1;
            let name = format!("{}-{}", self.shared.name, self.next_name);
            self.next_name += 1;
            self.tasks.spawn(life(Arc::clone(&self.shared), self.run.clone(), name, self.news.clone()));
        }
    }

    fn tell_health(&mut self) {
        let health = if self.serving.len() >= self.target {
            if let Some(first) = self.first.take() {
                let _ = first.send(Ok(()));
            }
            Health::Ready(self.target)
        } else if let Some(reason) = &self.trouble {
            Health::Short { serving: self.serving.len(), reason: Arc::clone(reason) }
        } else {
            Health::Starting
        };
        self.shared.health.send_if_modified(|current| {
            let changed = *current != health;
            *current = health;
            changed
        });
    }

    fn scale(&mut self, workers: usize) {
        self.target = workers;
        let surplus = self.serving.len().saturating_sub(workers);
        // Those with the least work first.
        let mut berths: Vec<_> = self.serving.values().cloned().collect();
        berths.sort_by_key(|berth| self.shared.scheduler().held_by(berth.post));
        berths.into_iter().take(surplus).for_each(|berth| berth.order(Order::Retire(Reason::Stopped)));
    }

    fn hear(&mut self, news: News) {
        match news {
            News::Serving(berth) => {
                self.starting -= 1;
                self.serving.insert(berth.post, Arc::clone(&berth));
                if self.serving.len() > self.target {
                    berth.order(Order::Retire(Reason::Stopped));
                }
            }
            News::Leaving(post) => self.leaving.extend(self.serving.remove(&post)),
        }
    }

    fn bury(&mut self, left: Result<Left, tokio::task::JoinError>) {
        let Ok(left) = left else { return };
        let failure = match left {
            Left::NotStarted(error) => {
                self.starting -= 1;
                let said = error.to_string();
                tracing::warn!(pool = %self.shared.name, error = %said, "a worker could not be started");
                if let Some(first) = self.first.take() {
                    let _ = first.send(Err(error));
                }
                Some((said, true))
            }
            Left::Ended { berth, ending } => {
                // Its index may belong to another one by now.
                if self.serving.get(&berth.post).is_some_and(|serving| Arc::ptr_eq(serving, &berth)) {
                    self.serving.remove(&berth.post);
                }
                self.leaving.retain(|leaving| !Arc::ptr_eq(leaving, &berth));
                let age = berth.ready_at.elapsed();
                match ending {
                    Ending::Told => None,
                    Ending::Untold(autopsy) => {
                        tracing::warn!(pool = %self.shared.name, %autopsy, "a worker died");
                        Some((autopsy, age < SHORT_LIFE))
                    }
                }
            }
        };
        let Some((reason, at_once)) = failure else { return };
        self.trouble = Some(reason.into());
        self.failures = if at_once { self.failures + 1 } else { 0 };
        // One accident is replaced at once, a series slowly.
        if self.failures > 1 {
            let pause = FIRST_PAUSE.saturating_mul(1 << (self.failures - 2).min(16)).min(LONGEST_PAUSE);
            self.pause_until = Some(Instant::now() + pause);
        }
    }

    /// Ends every worker, whatever it has.
    async fn stop(mut self, mut news: mpsc::UnboundedReceiver<News>) {
        self.shared.shut();
        drop(self.first.take());
        while let Ok(heard) = news.try_recv() {
            self.hear(heard);
        }
        self.end_all();
        loop {
            tokio::select! {
                Some(News::Serving(berth)) = news.recv() => {
                    berth.order(Order::End(Reason::Stopped));
                }
                left = self.tasks.join_next() => if left.is_none() {
                    self.shared.health.send_replace(Health::Stopped);
                    return;
                },
            }
        }
    }

    fn end_all(&self) {
        let all = self.serving.values().chain(&self.leaving);
        all.for_each(|berth| berth.order(Order::End(Reason::Stopped)));
    }
}

async fn wait_until(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}

/// One worker, from its start to its end.
async fn life(
    shared: Arc<Shared>,
    run: Option<Run>,
    name: String,
    news: mpsc::UnboundedSender<News>,
) -> Left {
    let post = shared.scheduler().reserve();
    let started = match WorkerId::new(name.clone()) {
        Ok(id) => start(&shared, run, &id).await.map(|(handle, output)| (id, handle, output)),
        Err(error) => Err(StartError::Missing(format!("{name} cannot be a worker's name: {error}"))),
    };
    let (id, handle, output) = match started {
        Ok(started) => started,
        Err(error) => {
            shared.scheduler().vacate(post);
            return Left::NotStarted(error);
        }
    };
    shared.learn(handle.introduction());
    let berth = Arc::new(Berth::new(post, id, Arc::clone(&shared), handle, output));
    shared.scheduler().enlist(Arc::clone(&berth));
    let _ = news.send(News::Serving(Arc::clone(&berth)));
    shared.feed(post);
    let grace = shared.config.cancel_grace.terminate;
    let ending = tend(Arc::clone(&berth), grace, || drop(news.send(News::Leaving(post)))).await;
    Left::Ended { berth, ending }
}

async fn start(
    shared: &Arc<Shared>,
    run: Option<Run>,
    id: &WorkerId,
) -> Result<(Arc<dyn Handle>, Arc<Output>), StartError> {
    let output = Output::new(id.clone());
    let limits = (shared.config.concurrency, shared.config.max_frame);
    let spawner = Spawner::new(run, id.clone(), Arc::clone(&shared.name), limits, Arc::clone(&output));
    let process = spawner.process();
    let timeout = shared.config.start_timeout;
    let started = tokio::time::timeout(timeout, shared.adapter.start_worker(spawner)).await;
    let failure = match started {
        Ok(Ok(handle)) => return Ok((handle, output)),
        Ok(Err(error)) => error,
        Err(_) => StartError::Timeout { worker: id.clone(), after: timeout, output: output.last_lines() },
    };
    if let Some(process) = process.get().cloned() {
        let _ = process.kill();
        process.exited().await;
    }
    Err(failure)
}

/// Tells the workers that have served a session that it has ended.
pub(crate) fn tell_of_session_end(shared: &Arc<Shared>, session: &Ended) {
    for berth in session.served_by.iter().filter_map(std::sync::Weak::upgrade) {
        shared.tell_session_end(&berth, &session.id);
    }
}
