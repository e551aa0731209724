//! Workers that serve HTTP on the loopback or a Unix socket, which they announce: `FastAPI` under uvicorn, or anything else.
//!
//! A command is a route: `POST /COMMAND` with the arguments as JSON; the answer's body is the result, and a stream is
//! `text/event-stream` or `application/x-ndjson`. `client.rs` has the connections, `answer.rs` reads what comes back,
//! `pieces.rs` cuts streams into items, `stream.rs` is a socket that can be hung up, `flow.rs` how a call is held up and ended,
//! `handle.rs` is what the pool holds.

mod answer;
mod client;
mod flow;
mod handle;
mod pieces;
mod stream;

use std::fmt::Write as _;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use hyper::Method;
use serde::Deserialize;

use super::announce::{self, Address, Listens};
use super::home::Home;
use super::listener::Listener;
use super::python::Launch;
use super::secret::secret;
use super::{Adapter, Handle, Program, Spawner, StartError};
use crate::Pool;
use crate::environment::Environment;
use crate::value::ValueError;
use client::{Client, Place};
use handle::{HttpHandle, Route};

/// The variable that tells a worker the path of a Unix socket that it can listen on, where nobody else can.
const SOCKET: &str = "SNAKEPIT_SOCKET";
/// The variable that tells a worker its secret.
const SECRET: &str = "SNAKEPIT_SECRET";

/// A worker that serves HTTP.
///
/// It announces itself (see [`adapter::announce`](super::announce)). `SNAKEPIT_SOCKET` has the path of a Unix socket that it can
/// listen on, in a directory that nobody else can enter. A server that needs a port of the loopback should answer only those
/// requests whose header `snakepit-secret` has what is in `SNAKEPIT_SECRET`: others on the machine can reach the port, too.
///
/// ```
/// use snakepit::Pool;
/// use snakepit::adapter::http::HttpWorker;
///
/// let pool = Pool::http(HttpWorker::new(["python3", "worker.py"]).prefix("/commands"));
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct HttpWorker {
    program: Program,
    prefix: String,
    method: Method,
}

/// A method that has a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum HttpMethod {
    /// `POST`.
    #[default]
    Post,
    /// `PUT`.
    Put,
    /// `PATCH`.
    Patch,
}

impl HttpWorker {
    /// A worker by its program.
    pub fn new(program: impl Into<Program>) -> Self {
        Self { program: program.into(), prefix: String::new(), method: Method::POST }
    }

    /// What stands before a command in its route: with `/api`, the command `add` is at `/api/add`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The method of all requests, in place of `POST`.
    pub fn method(mut self, method: HttpMethod) -> Self {
        self.method = match method {
            HttpMethod::Post => Method::POST,
            HttpMethod::Put => Method::PUT,
            HttpMethod::Patch => Method::PATCH,
        };
        self
    }
}

impl<P: Into<Program>> From<P> for HttpWorker {
    fn from(program: P) -> Self {
        Self::new(program)
    }
}

impl Pool {
    /// A pool of workers that serve HTTP. Its name is that of the program.
    pub fn http(worker: impl Into<HttpWorker>) -> Self {
        let HttpWorker { program, prefix, method } = worker.into();
        Self::new(program.name(), HttpAdapter { launch: Launch::command(program), prefix, method })
    }
}

struct HttpAdapter {
    launch: Launch,
    prefix: String,
    method: Method,
}

impl Adapter for HttpAdapter {
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
            let secret = secret().map_err(|error| spawner.system("a secret", error))?;
            // Who cannot have one listens on a port.
            let home = Home::new(spawner.run_dir(), "http").ok();
            let command = self.launch.start()?.env(SECRET, &secret);
            let command = match &home {
                Some(home) => command.env(SOCKET, home.socket()),
                None => command,
            };
            let command = command.env("SNAKEPIT_CONCURRENCY", spawner.concurrency().to_string());
            let announced = announce::start(&spawner, command, Listens::Somewhere).await?;
            let said = announced.announcement;
            let introduction = said.introduction();
            let address = said.address.ok_or_else(|| spawner.fault("it does not say where it listens"))?;
            let route = Route { method: self.method.clone(), prefix: path(&self.prefix), secret };
            let process = announced.process;
            let place = match address {
                Address::Socket(path) => Place::Socket(path, users_of(&process)),
                Address::Port(port) => {
                    let listener = Listener::new(process.clone(), port);
                    if let Err(error) = listener.prove().await {
                        return Err(spawner.ended_early(&process, &error.to_string()).await);
                    }
                    Place::Port(listener)
                }
            };
            // A directory that the worker does not use is not kept.
            let home = home.filter(|home| matches!(&place, Place::Socket(path, _) if *path == home.socket()));
            let client = Client::new(place);
            let worker = HttpHandle::new((process, home), client, route, spawner.max_frame(), introduction);
            Ok(Arc::new(worker) as Arc<dyn Handle>)
        }
        .boxed()
    }
}

/// Who may serve in a worker's name: this user, root, and the one whom the worker has become.
fn users_of(process: &crate::custody::Worker) -> Vec<u32> {
    let status = std::fs::metadata(format!("/proc/{}", process.pid().as_raw()));
    let worker = status.ok().map(|status| std::os::unix::fs::MetadataExt::uid(&status));
    [0, rustix::process::geteuid().as_raw()].into_iter().chain(worker).collect()
}

/// The path of a command below a prefix. A command that would leave the prefix is refused.
fn route(prefix: &str, command: &str) -> Result<String, ValueError> {
    if command.split(['/', '\\']).any(|part| matches!(part, "." | "..")) {
        let message = format!("the command {command:?} has a part that leads out of its path");
        return Err(ValueError::unsendable(message));
    }
    Ok(format!("{prefix}{}", path(command)))
}

/// A prefix, or a command, as a part of a path: `/a/b`, with what does not belong there spelled out.
fn path(text: &str) -> String {
    let mut path = String::new();
    for part in text.split('/').filter(|part| !part.is_empty()) {
        path.push('/');
        for byte in part.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                path.push(char::from(byte));
            } else {
                let _ = write!(path, "%{byte:02X}");
            }
        }
    }
    path
}

#[cfg(test)]
mod tests {
    #[test]
    fn commands_become_paths() {
        assert_eq!(super::path("add"), "/add");
        assert_eq!(super::path("/api//v1/"), "/api/v1");
        assert_eq!(super::path("grüße?x#y z"), "/gr%C3%BC%C3%9Fe%3Fx%23y%20z");
        assert_eq!(super::path(""), "");
    }

    #[test]
    fn a_command_never_leaves_its_prefix() {
        let route = |command: &str| super::route("/api", command);
        assert_eq!(route("v1/add").expect("a route"), "/api/v1/add");
        assert_eq!(route("v1..add/...").expect("a route"), "/api/v1..add/...");
        for command in ["../admin", "a/../../admin", "..", "./add", "a\\..\\b", "/../x"] {
            let error = route(command).expect_err("refused");
            assert!(error.to_string().contains("leads out of its path"), "{command}: {error}");
        }
        assert_eq!(route("%2e%2e/admin").expect("spelled out"), "/api/%252e%252e/admin");
    }
}
