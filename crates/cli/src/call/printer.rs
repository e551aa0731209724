//! Prints values from a thread of its own: a reader that pauses holds up the stream, but never a signal.

use std::io::{self, Write as _};

use tokio::sync::{mpsc, oneshot};

/// How many values may wait to be printed.
const AHEAD: usize = 64;

pub(super) struct Printer {
    values: mpsc::Sender<Vec<u8>>,
    outcome: oneshot::Receiver<io::Result<()>>,
}

impl Printer {
    pub(super) fn start() -> io::Result<Self> {
        let (values, mut waiting) = mpsc::channel::<Vec<u8>>(AHEAD);
        let (done, outcome) = oneshot::channel();
        let mut print = move || {
            let mut stdout = io::BufWriter::new(io::stdout().lock());
            while let Some(value) = waiting.blocking_recv() {
                stdout.write_all(&value)?;
                if waiting.is_empty() {
                    stdout.flush()?;
                }
            }
            stdout.flush()
        };
        std::thread::Builder::new().name("printer".into()).spawn(move || done.send(print()))?;
        Ok(Self { values, outcome })
    }

    /// Takes a value when there is room; `false` once nothing can be printed any more.
    pub(super) async fn print(&self, value: Vec<u8>) -> bool {
        self.values.send(value).await.is_ok()
    }

    /// Until everything is printed, or cannot be.
    pub(super) async fn finish(self) -> io::Result<()> {
        drop(self.values);
        self.outcome.await.unwrap_or(Ok(()))
    }
}
