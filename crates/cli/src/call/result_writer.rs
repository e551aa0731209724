//! Writes results on a separate thread. A slow reader delays the stream, but never a signal.

use std::io::{self, Write as _};

use tokio::sync::{mpsc, oneshot};

/// The number of values that may wait to be written.
const AHEAD: usize = 64;

pub(super) struct ResultWriter {
    values: mpsc::Sender<Vec<u8>>,
    outcome: oneshot::Receiver<io::Result<()>>,
}

impl ResultWriter {
    pub(super) fn start() -> io::Result<Self> {
        let (values, mut waiting) = mpsc::channel::<Vec<u8>>(AHEAD);
        let (done, outcome) = oneshot::channel();
        let mut write = move || {
            let mut stdout = io::BufWriter::new(io::stdout().lock());
            while let Some(value) = waiting.blocking_recv() {
                stdout.write_all(&value)?;
                if waiting.is_empty() {
                    stdout.flush()?;
                }
            }
            stdout.flush()
        };
        std::thread::Builder::new().name("results".into()).spawn(move || done.send(write()))?;
        Ok(Self { values, outcome })
    }

    /// Queues a value when there is room. Returns `false` once writing is no longer possible.
    pub(super) async fn write(&self, value: Vec<u8>) -> bool {
        self.values.send(value).await.is_ok()
    }

    /// Waits until everything is written or writing has failed.
    pub(super) async fn finish(self) -> io::Result<()> {
        drop(self.values);
        self.outcome.await.unwrap_or(Ok(()))
    }
}
