//! An evaluation through mailboxes: samples go out through one mailbox, and records come back through another.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{EvalProgress, EvalRequest};
use crate::loops::failpoint::{LoopFailpoint, reach};
use crate::mailbox::{
    DeadReason, MAX_MESSAGES, Mailbox, MessageId, ReceiveOptions, SendOptions, TypedMailbox, body,
};
use crate::{EvalError, EvalJournal, EvalPlan, EvalReport, SampleOutcome, SampleRecord, SampleStage};

/// How long one receive waits. Between receives the dead letters are checked, because mailboxes do not notify of them.
const RECEIVE_WAIT: Duration = Duration::from_millis(500);

/// The largest number of dead letters that are checked.
const MAX_DEAD_LETTERS: usize = 10_000;

/// The number of requests that are sent together.
const SEND_BATCH: usize = 100;

/// An evaluation that sends samples to an [`EvalLoop`](crate::EvalLoop), in this process or another, and collects their
/// records.
///
/// A reply is acknowledged once it is in the journal, so no reply is lost, and a duplicate counts once. A request that
/// was given up is recorded as an error. Records that do not arrive in time are missing, and the report says so.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use snakepit::evals::{EvalError, EvalJournal, EvalPlan, RemoteEvaluation};
/// use snakepit::mailbox::Mailbox;
///
/// # async fn example(plan: EvalPlan, samples: Arc<dyn Mailbox>, records: Arc<dyn Mailbox>) -> Result<(), EvalError> {
/// let mut journal = EvalJournal::create("data.eval.jsonl", &plan)?;
/// // An `EvalLoop`, often on other machines, answers the messages of `samples`.
/// let evaluation = RemoteEvaluation::new(plan, samples, records);
/// let report = evaluation.run(&mut journal, |progress| println!("{}", progress.done)).await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct RemoteEvaluation {
    plan: EvalPlan,
    requests: Arc<dyn Mailbox>,
    replies: TypedMailbox<SampleRecord>,
    patience: Duration,
}

impl RemoteEvaluation {
    /// Returns an evaluation that sends to `requests` and receives from `replies`, which belongs to this evaluation
    /// alone.
    pub fn new(plan: EvalPlan, requests: Arc<dyn Mailbox>, replies: Arc<dyn Mailbox>) -> Self {
        Self { plan, requests, replies: TypedMailbox::over(replies), patience: Duration::from_mins(5) }
    }

    /// Sets how long to wait for another record. The default is five minutes.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Sends the samples that the journal has no record of, collects their records, and returns the report.
    pub async fn run(
        &self,
        journal: &mut EvalJournal,
        mut on_progress: impl FnMut(&EvalProgress),
    ) -> Result<EvalReport, EvalError> {
        let mut progress = EvalProgress::of(&self.plan, journal);
        // Samples whose records have arrived since the last run need not be sent again.
        while self.collect(Duration::ZERO, journal, &mut progress).await? > 0 {}
        on_progress(&progress);
        let sent = self.send(journal).await?;
        let mut last = Instant::now();
        while progress.done < progress.all && last.elapsed() < self.patience {
            let mut collected = self.collect(RECEIVE_WAIT.min(self.patience), journal, &mut progress).await?;
            if collected == 0 {
                collected = self.collect_dead(&sent, journal, &mut progress).await?;
            }
            if collected > 0 {
                last = Instant::now();
                on_progress(&progress);
            }
        }
        reach(LoopFailpoint::Report);
        Ok(EvalReport::of(&self.plan, journal))
    }

    async fn send(&self, journal: &EvalJournal) -> Result<HashMap<MessageId, (String, String)>, EvalError> {
        let left = self.plan.left(journal);
        let mut sent = HashMap::with_capacity(left.len());
        for batch in left.chunks(SEND_BATCH) {
            let mut messages = Vec::with_capacity(batch.len());
            for (sample, experiment) in batch {
                let request = EvalRequest { experiment: (*experiment).clone(), sample: (*sample).clone() };
                let options = SendOptions::new().reply_to(self.replies.mailbox().name());
                messages.push((body(&request)?, options));
            }
            let ids = self.requests.send_all(messages).await?;
            let names = batch.iter().map(|(sample, experiment)| (experiment.name.clone(), sample.id.clone()));
            sent.extend(ids.into_iter().zip(names));
        }
        Ok(sent)
    }

    /// Records the replies that have arrived. Returns how many there were.
    async fn collect(
        &self,
        wait: Duration,
        journal: &mut EvalJournal,
        progress: &mut EvalProgress,
    ) -> Result<usize, EvalError> {
        let receive = ReceiveOptions::new().max_messages(MAX_MESSAGES).wait(wait);
        let replies = match self.replies.receive(receive).await {
            Ok(replies) => replies,
            // A temporary failure of a mailbox does not end the evaluation.
            Err(error) if error.is_passing() && !wait.is_zero() => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        for reply in &replies {
            let belongs = self.plan.experiment(&reply.value.experiment).is_some()
                && self.plan.dataset().samples().iter().any(|sample| sample.id == reply.value.sample);
            if belongs {
                record(reply.value.clone(), journal, progress)?;
                reach(LoopFailpoint::Noted);
                // If the lease has expired, the reply is delivered again and counts once.
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
        journal: &mut EvalJournal,
        progress: &mut EvalProgress,
    ) -> Result<usize, EvalError> {
        let before = progress.done;
        for letter in self.requests.dead_letters(MAX_DEAD_LETTERS).await? {
            let Some((experiment, sample)) = sent.get(&letter.message.id) else { continue };
            let message = match &letter.reason {
                DeadReason::Failed { error } | DeadReason::Undecodable { error } => error.clone(),
                DeadReason::Deliveries => {
                    format!("given up after {} deliveries", letter.message.delivery_count)
                }
                DeadReason::Expired => "its time to live ran out".to_owned(),
                other => other.kind().to_owned(),
            };
            let outcome = SampleOutcome::Error { stage: SampleStage::Delivery, message };
            record(SampleRecord::new(experiment, sample, outcome), journal, progress)?;
        }
        Ok(progress.done - before)
    }
}

fn record(
    record: SampleRecord,
    journal: &mut EvalJournal,
    progress: &mut EvalProgress,
) -> Result<(), EvalError> {
    let counted = record.clone();
    if journal.add(record)? {
        progress.count(&counted);
    }
    Ok(())
}
