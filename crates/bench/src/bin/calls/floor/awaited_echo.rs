//! The raw echo for an asynchronous host: the same Python loop, and a task that awaits its socket.
//!
//! It differs from the blocking echo only in what no asynchronous library can avoid: the event loop's own system call.

use std::process::Command;
use std::time::{Duration, Instant};

use snakepit_bench::BenchResult;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::runtime::Runtime;

use super::blocking_echo::SCRIPT;
use crate::child::PythonChild;
use crate::python::BenchPython;
use crate::turns::{CallPace, CallTimes, EchoCaller};

/// A raw echo, its process, and the runtime that awaits it.
pub(crate) struct AwaitedEcho {
    runtime: Runtime,
    stream: Option<UnixStream>,
    _child: PythonChild,
}

impl AwaitedEcho {
    pub(crate) fn start(python: &BenchPython) -> BenchResult<Self> {
        let (child, stream) =
            PythonChild::with_socket(Command::new(python.path()).args(["-c", SCRIPT, "0"]))?;
        stream.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let stream = runtime.block_on(async { UnixStream::from_std(stream) })?;
        Ok(Self { runtime, stream: Some(stream), _child: child })
    }
}

async fn echoes(
    mut stream: UnixStream,
    bytes: usize,
    calls: usize,
) -> std::io::Result<(UnixStream, Vec<Duration>)> {
    let mut frame = vec![0x5a; 4 + bytes];
    frame[..4].copy_from_slice(&(bytes as u32).to_le_bytes());
    let mut answer = vec![0; frame.len()];
    let mut times = Vec::with_capacity(calls);
    for _ in 0..calls {
        let began = Instant::now();
        stream.write_all(&frame).await?;
        stream.read_exact(&mut answer).await?;
        times.push(began.elapsed());
    }
    Ok((stream, times))
}

impl EchoCaller for AwaitedEcho {
    fn one(&mut self, bytes: usize, calls: usize) -> BenchResult<CallTimes> {
        let stream = self.stream.take().ok_or("an earlier turn failed")?;
        let began = Instant::now();
        let turn = self.runtime.block_on(async move { tokio::spawn(echoes(stream, bytes, calls)).await });
        let total = began.elapsed();
        let (stream, times) = turn??;
        self.stream = Some(stream);
        Ok(CallTimes::new(total, times.iter().map(Duration::as_secs_f64)))
    }

    fn many(&mut self, _bytes: usize, _calls: usize, _in_flight: usize) -> BenchResult<CallTimes> {
        Err("the raw echo has one call in flight".into())
    }

    fn pace(&self) -> CallPace {
        CallPace::Fast
    }
}
