//! Workers that serve HTTP on the loopback or a Unix socket: `FastAPI` under uvicorn, or any other server.
//!
//! A command becomes a request: `POST /COMMAND` with the arguments as JSON, or the request that its [`Route`]
//! describes. The body of the answer is the result. A stream is `text/event-stream`, `application/x-ndjson`, or text
//! or bytes as they arrive.
//!
//! The files, in the order in which data passes them:
//!
//! - `route.rs` describes the request of a command, and `template.rs` the arguments that it names.
//! - `plan.rs` checks a route, and `request.rs` builds the request of a call.
//! - `client.rs` holds the connections, and `stream.rs` is a socket that can be closed from outside.
//! - `payload.rs` is the body of an answer, `stream_splitter.rs` cuts streams into items, and `answer.rs` reads them.
//! - `cancellation.rs` cancels requests, and `handle.rs` implements the contract with the pool.
//! - `listen_address.rs` chooses where a worker listens, and `readiness.rs` detects that it does.

mod answer;
mod cancellation;
mod client;
mod handle;
mod listen_address;
mod readiness;
mod request;
mod stream;

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};

use super::listener::Listener;
use super::python::ProcessLaunch;
use super::ready_line::{self, Address, Listens};
use super::secret::secret;
use super::socket_dir::SocketDir;
use super::{Adapter, Handle, Introduction, Program, ProtocolFault, Spawner, StartError};
use crate::custody;
use crate::environment::Environment;
use client::Client;
use handle::HttpHandle;
use listen_address::{ListenOffer, ListeningServer, ToldAddress};
use request::{Requests, Routes};
use snakepit_core::PoolOptions;

pub use readiness::Readiness;
pub use request::route::{Body, EventFormat, HttpMethod, Route};

/// The variable with the path of a Unix socket for the worker to listen on. Other users cannot reach it.
const SOCKET: &str = "SNAKEPIT_SOCKET";
/// The variable with the port that the worker must listen on.
const PORT: &str = "SNAKEPIT_PORT";
/// The variable with the worker's secret.
const SECRET: &str = "SNAKEPIT_SECRET";

/// The hint for programs that print no ready line.
const OTHER_WAY: &str = "\nFor a program that prints no such line, add http = { ready = \"port\" } or http = { ready = { probe = \"/healthz\" } }, \
     and put {socket} or {port} into its arguments; in Rust it is HttpWorker::ready (docs/adapters.md)";

/// A worker that serves HTTP.
///
/// The worker announces itself (see [`adapter::ready_line`](super::ready_line)), unless [`ready`](Self::ready) says
/// otherwise. `SNAKEPIT_SOCKET` is the path of a Unix socket that it can listen on, in a directory that no other user
/// can enter. A server that needs a port of the loopback should answer a request only if its header `snakepit-secret`
/// equals the variable `SNAKEPIT_SECRET`, because other users of the machine can reach the port, too.
///
/// ```
/// use snakepit::http;
/// use snakepit::adapter::http::{HttpWorker, Readiness, Route};
///
/// let own = http(HttpWorker::new(["python3", "worker.py"]).prefix("/commands"));
/// // An application that knows nothing of Snakepit.
/// let plain = HttpWorker::new(["uvicorn", "app:app", "--uds", "{socket}"])
///     .ready(Readiness::probe("/healthz"))
///     .route("get_item", Route::get("/items/{id}").query(["fields"]));
/// let plain = http(plain);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct HttpWorker {
    program: Program,
    prefix: String,
    method: HttpMethod,
    routes: Vec<(String, Route)>,
    readiness: Readiness,
    port: Option<u16>,
}

impl HttpWorker {
    /// Creates a worker from its program.
    pub fn new(program: impl Into<Program>) -> Self {
        Self {
            program: program.into(),
            prefix: String::new(),
            method: HttpMethod::default(),
            routes: Vec::new(),
            readiness: Readiness::default(),
            port: None,
        }
    }

    /// Sets the prefix of every path, of commands and of [`Route`]s. With `/api`, the command `add` is at `/api/add`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets the method of commands that have no [`Route`]. The default is `POST`.
    pub fn method(mut self, method: HttpMethod) -> Self {
        self.method = method;
        self
    }

    /// Sets the request that a command becomes. An invalid route is reported when the pool starts.
    pub fn route(mut self, command: impl Into<String>, route: Route) -> Self {
        self.routes.push((command.into(), route));
        self
    }

    /// Sets how the host learns that the worker is ready. The default is the ready line.
    ///
    /// With [`Readiness::Port`] and [`Readiness::Probe`], the host tells the worker where to listen. In the program's
    /// arguments and in the values of its variables, `{socket}` stands for the path of a Unix socket and `{port}` for
    /// a free port. Without either, the worker gets a socket. The path of the socket is also in `SNAKEPIT_SOCKET`,
    /// the port in `SNAKEPIT_PORT`.
    pub fn ready(mut self, readiness: Readiness) -> Self {
        self.readiness = readiness;
        self
    }

    /// Sets a fixed port that the program listens on, for [`Readiness::Port`] and [`Readiness::Probe`]. Only one
    /// worker can use it.
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }
}

impl Route {
    /// Checks the route. An error describes what is wrong.
    pub fn check(&self) -> Result<(), String> {
        request::plan::RoutePlan::new(self).map(drop)
    }
}

impl<P: Into<Program>> From<P> for HttpWorker {
    fn from(program: P) -> Self {
        Self::new(program)
    }
}

/// Returns the options of a pool of HTTP workers. The pool is named after the program.
///
/// ```
/// let pool = snakepit::http(["python3", "app.py"]).workers(2);
/// ```
pub fn pool(worker: impl Into<HttpWorker>) -> PoolOptions {
    let worker = worker.into();
    let (name, service) = (worker.program.name(), HttpService::of(&worker));
    PoolOptions::new(name, HttpAdapter { launch: ProcessLaunch::command(worker.program), service })
}

struct HttpAdapter {
    launch: ProcessLaunch,
    /// An error is reported when the pool starts.
    service: Result<HttpService, String>,
}

/// The routes of a pool's workers, and how its workers are found.
struct HttpService {
    routes: Arc<Routes>,
    readiness: Readiness,
    offer: ListenOffer,
}

impl HttpService {
    fn of(worker: &HttpWorker) -> Result<Self, String> {
        let HttpWorker { program, prefix, method, routes, readiness, port } = worker;
        readiness.check()?;
        let offer = match readiness {
            Readiness::Line if port.is_some() => {
                return Err("its port is for a worker that prints no ready line: choose Readiness::Port or \
                            Readiness::Probe"
                    .into());
            }
            Readiness::Line => ListenOffer::Socket,
            Readiness::Port | Readiness::Probe(_) => ListenOffer::of(program, *port)?,
        };
        let routes = Arc::new(Routes::new(prefix, *method, routes)?);
        Ok(Self { routes, readiness: readiness.clone(), offer })
    }
}

/// A worker that is ready.
struct ReadyWorker {
    process: custody::WorkerProcess,
    told: Option<ToldAddress>,
    client: Client,
    introduction: Introduction,
}

impl HttpAdapter {
    fn service(&self) -> Result<&HttpService, StartError> {
        self.service.as_ref().map_err(|fault| StartError::Settings(fault.clone()))
    }

    /// Starts a worker that announces where it listens.
    async fn find_by_line(&self, spawner: &Spawner, secret: &str) -> Result<ReadyWorker, StartError> {
        // Without a directory for a socket, the worker listens on a port.
        let home = SocketDir::new(spawner.run_dir(), "http").ok();
        let command = self.launch.start()?.env(SECRET, secret);
        let command = match &home {
            Some(home) => command.env(SOCKET, home.socket()),
            None => command,
        };
        let command = command.env("SNAKEPIT_CONCURRENCY", spawner.concurrency().to_string());
        let announced = ready_line::start_or(spawner, command, Listens::Somewhere, OTHER_WAY).await?;
        let said = announced.announcement;
        let introduction = said.introduction();
        let address = said.address.ok_or_else(|| spawner.fault(ProtocolFault::NoAddress))?;
        let process = announced.process;
        let listening = match address {
            Address::Socket(path) => ListeningServer::Socket(path),
            Address::Port(port) => {
                let listener = Listener::new(process.clone(), port);
                if let Err(error) = listener.prove().await {
                    let fault = ProtocolFault::UnprovenListener(error.to_string());
                    return Err(spawner.ended_early(&process, fault).await);
                }
                ListeningServer::Port(listener)
            }
        };
        // A directory that the worker does not use is removed.
        let home =
            home.filter(|home| matches!(&listening, ListeningServer::Socket(path) if *path == home.socket()));
        let client = Client::new(listening.place(&process));
        Ok(ReadyWorker { process, told: home.map(ToldAddress::Socket), client, introduction })
    }

    /// Starts a worker that is told where to listen, and waits until it does.
    async fn find_by_asking(
        &self,
        spawner: &Spawner,
        service: &HttpService,
        requests: &Requests,
    ) -> Result<ReadyWorker, StartError> {
        let told = ToldAddress::new(service.offer, spawner)?;
        let (variable, value) = told.variable();
        let command = self
            .launch
            .start_with(|word| told.fill(word))?
            .env(SECRET, &requests.secret)
            .env(variable, value)
            .env("SNAKEPIT_CONCURRENCY", spawner.concurrency().to_string());
        let process = spawner.spawn(command).await?;
        let listening = told.listening(&process);
        readiness::wait((spawner, &process), (&told, &listening), requests, &service.readiness).await?;
        let client = Client::new(listening.place(&process));
        Ok(ReadyWorker { process, told: Some(told), client, introduction: Introduction::default() })
    }
}

impl Adapter for HttpAdapter {
    fn environment(&self) -> Option<&Environment> {
        self.launch.environment()
    }

    fn init<'a>(&'a self, spawner: &'a Spawner) -> BoxFuture<'a, Result<(), StartError>> {
        async {
            self.service()?;
            spawner.refuse_debug()?;
            self.launch.prepare(spawner).await
        }
        .boxed()
    }

    fn start_worker(&self, spawner: Spawner) -> BoxFuture<'_, Result<Arc<dyn Handle>, StartError>> {
        async move {
            let service = self.service()?;
            let secret = secret().map_err(|error| spawner.system("a secret", error))?;
            let requests = Requests { routes: Arc::clone(&service.routes), secret };
            let found = match service.readiness {
                Readiness::Line => self.find_by_line(&spawner, &requests.secret).await?,
                Readiness::Port | Readiness::Probe(_) => {
                    self.find_by_asking(&spawner, service, &requests).await?
                }
            };
            let ReadyWorker { process, told, client, mut introduction } = found;
            for command in service.routes.commands() {
                if !introduction.commands.iter().any(|known| known == command) {
                    introduction.commands.push(command.to_owned());
                }
            }
            let limits = (spawner.max_frame(), spawner.concurrency());
            let worker = HttpHandle::new((process, told), client, requests, limits, introduction);
            Ok(Arc::new(worker) as Arc<dyn Handle>)
        }
        .boxed()
    }
}
