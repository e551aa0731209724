//! A custom adapter that uses only the public API. Its workers read calls and write answers as lines of JSON.
//!
//! `cargo run -p snakepit --example adapter`

use std::error::Error;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use snakepit::adapter::{Adapter, Handle, Introduction, Reason, Spawner, StartError};
use snakepit::call::{Call, Input, RemoteErrorKind};
use snakepit::custody::{Command, WorkerProcess};
use snakepit::value::Encoded;
use snakepit::{PoolOptions, RemoteError, Snakepit, args};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::Mutex;

/// Any program: its first line says that it is ready, and then it answers each line with a line.
const PROGRAM: &str = r#"
import json, sys
print(json.dumps({"commands": ["add"]}), flush=True)
for line in sys.stdin:
    call = json.loads(line)
    answer = {"ok": sum(call["args"].values())} if call["command"] == "add" else {"error": "no such command"}
    print(json.dumps(answer), flush=True)
"#;

struct JsonLines;

impl Adapter for JsonLines {
    fn start_worker(&self, spawner: Spawner) -> BoxFuture<'_, Result<Arc<dyn Handle>, StartError>> {
        Box::pin(async move {
            let system = |error| spawner.system("a socket", error);
            let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(system)?;
            ours.set_nonblocking(true).map_err(system)?;
            let mut socket = BufReader::new(UnixStream::from_std(ours).map_err(system)?);
            // The output of a worker is captured as log lines, so the shell gives it the socket as standard input and
            // output.
            let words = ["-c", "exec \"$@\" <&3 >&3 3>&-", "sh", "python3", "-c", PROGRAM];
            let process = spawner.spawn(Command::new("sh").args(words).fd(theirs, 3)).await?;
            let mut ready = String::new();
            socket.read_line(&mut ready).await.map_err(system)?;
            let introduction = serde_json::from_str(&ready).map_err(|error| system(error.into()))?;
            Ok(Arc::new(Lines { process, introduction, socket: Mutex::new(socket) }) as _)
        })
    }
}

struct Lines {
    process: WorkerProcess,
    introduction: Introduction,
    socket: Mutex<BufReader<UnixStream>>,
}

impl Lines {
    async fn ask(&self, call: &Call) -> Result<Result<Encoded, RemoteError>, Box<dyn Error + Send + Sync>> {
        let Input::One(arguments) = call.input() else { return Err("one call at a time".into()) };
        let request = json!({ "command": call.command(), "args": arguments });
        let mut socket = self.socket.lock().await;
        socket.write_all(format!("{request}\n").as_bytes()).await?;
        let mut line = String::new();
        socket.read_line(&mut line).await?;
        let answer: Value = serde_json::from_str(&line)?;
        let failure =
            || RemoteError::new(RemoteErrorKind::Exception, answer["error"].as_str().unwrap_or_default());
        Ok(answer.get("ok").map(Encoded::encode).transpose()?.ok_or_else(failure))
    }
}

impl Handle for Lines {
    fn process(&self) -> Option<&WorkerProcess> {
        Some(&self.process)
    }

    fn introduction(&self) -> &Introduction {
        &self.introduction
    }

    fn execute(self: Arc<Self>, call: Call) {
        tokio::spawn(async move {
            // A call that is dropped without an answer fails when its worker ends.
            if let Ok(outcome) = self.ask(&call).await {
                call.finish(outcome);
            }
        });
    }

    fn terminate(&self, _reason: Reason) -> BoxFuture<'_, ()> {
        Box::pin(async { drop(self.socket.lock().await.shutdown().await) })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let pit = Snakepit::builder().pool(PoolOptions::new("lines", JsonLines).workers(2)).start().await?;
    let sum: i64 = pit.call("add", args! { a: 1, b: 2 }).await?;
    println!("1 + 2 = {sum}");
    println!("{:?}", pit.call::<i64>("subtract", ()).await.map_err(|error| error.to_string()));
    pit.stop().await;
    Ok(())
}
