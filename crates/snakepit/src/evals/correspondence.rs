//! An evaluation through mailboxes: samples go into one, records come back through another.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{EvalError, EvalRequest, Journal, Outcome, Plan, Progress, Record, Report, Stage};
use crate::loops::failpoint::{Step, reach};
use crate::mailbox::{DeadReason, MAX_MESSAGES, Mailbox, MessageId, Receive, Send, Typed, body};

/// How long one receive waits; dead letters are looked at in between, since no bell rings for them.
const WAIT: Duration = Duration::from_millis(500);

/// So many dead letters are looked at.
const DEAD: usize = 10_000;

/// So many requests are sent together.
const BATCH: usize = 100;

/// Sends samples to whoever evaluates them ([`EvalLoop`](super::EvalLoop), in this process or another) and collects the results.
///
/// Replies are acknowledged once they are in the journal, so none is lost, and one that comes twice is counted once. A request that
/// was given up is an error on record. What has not come when patience ends is missing, and the report says so.
#[derive(Debug)]
pub struct Correspondence {
    plan: Plan,
    requests: Arc<dyn Mailbox>,
    replies: Typed<Record>,
    patience: Duration,
}

impl Correspondence {
    /// Sends to `requests` and waits at `replies`, which belongs to this evaluation alone.
    pub fn new(plan: Plan, requests: Arc<dyn Mailbox>, replies: Arc<dyn Mailbox>) -> Self {
        Self { plan, requests, replies: Typed::over(replies), patience: Duration::from_mins(5) }
    }

    /// For how long it waits for another result; five minutes unless it is set.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Sends whatever the journal has no record of, and collects.
    pub async fn run(
        &self,
        journal: &mut Journal,
        mut on_progress: impl FnMut(&Progress),
    ) -> Result<Report, EvalError> {
        let mut progress = Progress::of(&self.plan, journal);
        // What came while nobody was here need not be asked again.
        while self.collect(Duration::ZERO, journal, &mut progress).await? > 0 {}
        on_progress(&progress);
        let sent = self.send(journal).await?;
        let mut last = Instant::now();
        while progress.done < progress.all && last.elapsed() < self.patience {
            let mut news = self.collect(WAIT.min(self.patience), journal, &mut progress).await?;
            if news == 0 {
                news = self.collect_dead(&sent, journal, &mut progress).await?;
            }
            if news > 0 {
                last = Instant::now();
                on_progress(&progress);
            }
        }
        reach(Step::Report);
        Ok(Report::of(&self.plan, journal))
    }

    async fn send(&self, journal: &Journal) -> Result<HashMap<MessageId, (String, String)>, EvalError> {
        let left = self.plan.left(journal);
        let mut sent = HashMap::with_capacity(left.len());
        for batch in left.chunks(BATCH) {
            let mut messages = Vec::with_capacity(batch.len());
            for (sample, experiment) in batch {
                let request = EvalRequest { experiment: (*experiment).clone(), sample: (*sample).clone() };
                let options = Send::new().reply_to(self.replies.mailbox().name());
                messages.push((body(&request)?, options));
            }
            let ids = self.requests.send_all(messages).await?;
            let names = batch.iter().map(|(sample, experiment)| (experiment.name.clone(), sample.id.clone()));
            sent.extend(ids.into_iter().zip(names));
        }
        Ok(sent)
    }

    /// Records what has come back; says how many replies there were.
    async fn collect(
        &self,
        wait: Duration,
        journal: &mut Journal,
        progress: &mut Progress,
    ) -> Result<usize, EvalError> {
        let receive = Receive::new().max_messages(MAX_MESSAGES).wait(wait);
        let replies = match self.replies.receive(receive).await {
            Ok(replies) => replies,
            // A backend that fails for a while ends no evaluation: patience does.
            Err(error) if error.is_passing() && !wait.is_zero() => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        for reply in &replies {
            let belongs = self.plan.experiment(&reply.value.experiment).is_some()
                && self.plan.dataset.samples().iter().any(|sample| sample.id == reply.value.sample);
            if belongs {
                record(reply.value.clone(), journal, progress)?;
                reach(Step::Noted);
                // If its lease is over it comes again, and is known then.
                let _ = reply.ack().await;
            } else {
                let error = "it belongs to no sample of the evaluation".to_owned();
                let _ = reply.bury(DeadReason::Failed { error }).await;
            }
        }
        Ok(replies.len())
    }

    async fn collect_dead(
        &self,
        sent: &HashMap<MessageId, (String, String)>,
        journal: &mut Journal,
        progress: &mut Progress,
    ) -> Result<usize, EvalError> {
        let before = progress.done;
        for letter in self.requests.dead_letters(DEAD).await? {
            let Some((experiment, sample)) = sent.get(&letter.message.id) else { continue };
            let message = match &letter.reason {
                DeadReason::Failed { error } | DeadReason::Undecodable { error } => error.clone(),
                DeadReason::Deliveries => {
                    format!("given up after {} deliveries", letter.message.delivery_count)
                }
                DeadReason::Expired => "its time to live was over".to_owned(),
            };
            let lost = Record {
                experiment: experiment.clone(),
                sample: sample.clone(),
                outcome: Outcome::Error { stage: Stage::Delivery, message },
                output: None,
                latency_ms: 0.0,
                tokens: None,
            };
            record(lost, journal, progress)?;
        }
        Ok(progress.done - before)
    }
}

fn record(record: Record, journal: &mut Journal, progress: &mut Progress) -> Result<(), EvalError> {
    let counted = record.clone();
    if journal.add(record)? {
        progress.count(&counted);
    }
    Ok(())
}
