//! Workers that exchange lines of JSON on their standard streams (`spec/stdio.md`). A shell script can be one.
//!
//! `connection.rs` holds the calls and writes them, `stdin.rs` knows how much of that the worker has read, `reader.rs`
//! reads the output, and `handle.rs` implements the contract with the pool.

mod connection;
mod handle;
mod reader;
mod stdin;

#[cfg(any(fuzzing, test))]
pub(crate) use reader::fuzzing;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use tokio::net::unix::pipe;

use super::lines::LineReader;
use super::python::ProcessLaunch;
use super::ready_line::{self, Listens};
use super::{Adapter, Handle, Program, ProtocolFault, Spawner, StartError};
use crate::environment::Environment;
use connection::StdioConnection;
use handle::StdioHandle;
use snakepit_core::PoolOptions;

/// The version of the protocol.
const PROTOCOL: u64 = 1;

/// Returns the options of a pool of workers in any language that exchange lines of JSON (`spec/stdio.md`). The pool
/// is named after the program.
///
/// ```
/// let pool = snakepit::stdio(["bash", "examples/stdio/worker.sh"]);
/// ```
pub fn pool(program: impl Into<Program>) -> PoolOptions {
    let program = program.into();
    PoolOptions::new(program.name(), StdioAdapter { launch: ProcessLaunch::command(program) })
}

struct StdioAdapter {
    launch: ProcessLaunch,
}

impl Adapter for StdioAdapter {
    fn environment(&self) -> Option<&Environment> {
        self.launch.environment()
    }

    fn init<'a>(&'a self, spawner: &'a Spawner) -> BoxFuture<'a, Result<(), StartError>> {
        async {
            spawner.refuse_debug()?;
            self.launch.prepare(spawner).await
        }
        .boxed()
    }

    fn start_worker(&self, spawner: Spawner) -> BoxFuture<'_, Result<Arc<dyn Handle>, StartError>> {
        async move {
            let system = |error| spawner.system("pipes for its streams", error);
            let (stdin, writer) = std::io::pipe().map_err(system)?;
            let writer = pipe::Sender::from_owned_fd(writer.into()).map_err(system)?;
            let command = self.launch.start()?.env("SNAKEPIT_CONCURRENCY", spawner.concurrency().to_string());
            let (process, stdout) = spawner.spawn_tapped(command, OwnedFd::from(stdin).into()).await?;
            let mut lines = LineReader::new(stdout, spawner.output(), spawner.max_frame()).map_err(system)?;
            let said = ready_line::ready(&spawner, &process, &mut lines, Listens::Nowhere, "").await?;
            match said.line.get("protocol") {
                None => {}
                Some(version) if version.as_u64() == Some(PROTOCOL) => {}
                Some(version) => {
                    let worker = version.to_string();
                    return Err(spawner.fault(ProtocolFault::Version { worker, engine: PROTOCOL }));
                }
            }
            let introduction = said.introduction();
            let connection = StdioConnection::open(lines, writer, spawner.concurrency(), &introduction);
            Ok(Arc::new(StdioHandle::new(process, connection, introduction)) as Arc<dyn Handle>)
        }
        .boxed()
    }
}
