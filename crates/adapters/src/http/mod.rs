//! Workers that serve HTTP on the loopback or a Unix socket: `FastAPI` under uvicorn, or anything else.
//!
//! A command is a route: `POST /COMMAND` with the arguments as JSON, or whatever request its [`Route`] describes. The answer's
//! body is the result, and a stream is `text/event-stream`, `application/x-ndjson`, or texts and bytes as they come.
//!
//! As data passes them: `route.rs` is what a user says of a request, with `template.rs` for the arguments that it names; `plan.rs`
//! is what is made of that, and `request.rs` makes the request of a call. `client.rs` has the connections, `stream.rs` is a socket
//! that can be hung up. `payload.rs` is the body that comes back, `pieces.rs` cuts streams into items, `answer.rs` reads
//! them. `flow.rs` is how a call is held up and ended, `handle.rs` what the pool holds. `place.rs` is where a worker is told to listen,
//! and `readiness.rs` how the host learns that it does.

mod answer;
mod client;
mod flow;
mod handle;
mod place;
mod readiness;
mod request;
mod stream;

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};

use super::announce::{self, Address, Listens};
use super::home::SocketDir;
use super::listener::Listener;
use super::python::ProcessLaunch;
use super::secret::secret;
use super::{Adapter, Handle, Introduction, Program, Spawner, StartError};
use crate::custody;
use crate::environment::Environment;
use client::Client;
use handle::HttpHandle;
use place::{ListenOffer, ListeningServer, Reserved, ToldAddress};
use request::{Requests, Routes};
use snakepit_core::PoolOptions;

pub use readiness::Readiness;
pub use request::route::{Body, EventFormat, HttpMethod, Route};

/// The variable that tells a worker the path of a Unix socket that it can listen on, where nobody else can.
const SOCKET: &str = "SNAKEPIT_SOCKET";
/// The variable that tells a worker the port that it is to listen on.
const PORT: &str = "SNAKEPIT_PORT";
/// The variable that tells a worker its secret.
const SECRET: &str = "SNAKEPIT_SECRET";

/// What else there is for programs that print no ready line.
const OTHER_WAY: &str = "\nFor a program that prints no such line, add http = { ready = \"port\" } or http = { ready = { probe = \"/healthz\" } }, \
     and put {socket} or {port} into its arguments; in Rust it is HttpWorker::ready (docs/adapters.md)";

/// A worker that serves HTTP.
///
/// It announces itself (see [`adapter::announce`](super::announce)), unless [`ready`](Self::ready) says otherwise. `SNAKEPIT_SOCKET`
/// has the path of a Unix socket that it can listen on, in a directory that nobody else can enter. A server that needs a port of
/// the loopback should answer only those requests whose header `snakepit-secret` has what is in `SNAKEPIT_SECRET`: others on the
/// machine can reach the port, too.
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
    /// A worker by its program.
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

    /// What stands before a command in its route, and before the path of a [`Route`]: with `/api`, the command `add` is at
    /// `/api/add`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The method of commands that have no [`Route`], in place of `POST`.
    pub fn method(mut self, method: HttpMethod) -> Self {
        self.method = method;
        self
    }

    /// The request that a command becomes. A route that cannot be is told when the pool starts.
    pub fn route(mut self, command: impl Into<String>, route: Route) -> Self {
        self.routes.push((command.into(), route));
        self
    }

    /// How the host learns that the worker is ready, in place of the ready line.
    ///
    /// With [`Readiness::Port`] and [`Readiness::Probe`] the host says where the worker listens: `{socket}` in the program's arguments
    /// and in the values of its variables stands for the path of a Unix socket, `{port}` for a port that is free. Without either it
    /// is the socket, which is also in `SNAKEPIT_SOCKET`; a port is also in `SNAKEPIT_PORT`.
    pub fn ready(mut self, readiness: Readiness) -> Self {
        self.readiness = readiness;
        self
    }

    /// The port that the program listens on whatever it is told, for [`Readiness::Port`] and [`Readiness::Probe`]. Only one worker
    /// can have it.
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }
}

impl Route {
    /// Whether it can be, with what is wrong if not.
    pub fn check(&self) -> Result<(), String> {
        request::plan::RoutePlan::new(self).map(drop)
    }
}

impl<P: Into<Program>> From<P> for HttpWorker {
    fn from(program: P) -> Self {
        Self::new(program)
    }
}

/// A pool of workers that serve HTTP. Its name is that of the program.
pub fn pool(worker: impl Into<HttpWorker>) -> PoolOptions {
    let worker = worker.into();
    let (name, service) = (worker.program.name(), HttpService::of(&worker));
    PoolOptions::new(name, HttpAdapter { launch: ProcessLaunch::command(worker.program), service })
}

struct HttpAdapter {
    launch: ProcessLaunch,
    /// What is wrong with it is told when the pool starts.
    service: Result<HttpService, String>,
}

/// What the workers of a pool serve, and how they are found.
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
                return Err(
                    "its port is for a worker that prints no ready line: say how it is to be asked, by \
                            Readiness::Port or Readiness::Probe"
                        .into(),
                );
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
    reserved: Reserved,
    client: Client,
    introduction: Introduction,
}

impl HttpAdapter {
    fn service(&self) -> Result<&HttpService, StartError> {
        self.service.as_ref().map_err(|fault| StartError::Settings(fault.clone()))
    }

    /// Starts a worker that says where it listens.
    async fn find_by_line(&self, spawner: &Spawner, secret: &str) -> Result<ReadyWorker, StartError> {
        // Who cannot have one listens on a port.
        let home = SocketDir::new(spawner.run_dir(), "http").ok();
        let command = self.launch.start()?.env(SECRET, secret);
        let command = match &home {
            Some(home) => command.env(SOCKET, home.socket()),
            None => command,
        };
        let command = command.env("SNAKEPIT_CONCURRENCY", spawner.concurrency().to_string());
        let announced = announce::start_or(spawner, command, Listens::Somewhere, OTHER_WAY).await?;
        let said = announced.announcement;
        let introduction = said.introduction();
        let address = said.address.ok_or_else(|| spawner.fault("it does not say where it listens"))?;
        let process = announced.process;
        let listening = match address {
            Address::Socket(path) => ListeningServer::Socket(path),
            Address::Port(port) => {
                let listener = Listener::new(process.clone(), port);
                if let Err(error) = listener.prove().await {
                    return Err(spawner.ended_early(&process, &error.to_string()).await);
                }
                ListeningServer::Port(listener)
            }
        };
        // A directory that the worker does not use is not kept.
        let home =
            home.filter(|home| matches!(&listening, ListeningServer::Socket(path) if *path == home.socket()));
        let client = Client::new(listening.place(&process));
        Ok(ReadyWorker { process, reserved: home.into(), client, introduction })
    }

    /// Starts a worker that is told where to listen, and asks whether it does.
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
        Ok(ReadyWorker { process, reserved: told.into(), client, introduction: Introduction::default() })
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
            let ReadyWorker { process, reserved, client, mut introduction } = found;
            for command in service.routes.commands() {
                if !introduction.commands.iter().any(|known| known == command) {
                    introduction.commands.push(command.to_owned());
                }
            }
            let limits = (spawner.max_frame(), spawner.concurrency());
            let worker = HttpHandle::new((process, reserved), client, requests, limits, introduction);
            Ok(Arc::new(worker) as Arc<dyn Handle>)
        }
        .boxed()
    }
}
