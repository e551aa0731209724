//! The requests of calls: by the route of their command, or, if it has none, by the command itself.
pub(crate) mod plan;
pub(crate) mod route;
pub(crate) mod template;

use std::collections::BTreeMap;
use std::sync::Arc;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request};

use crate::call::{Call, Input};
use crate::json::Integers;
use crate::value::ValueError;
use plan::{RoutePlan, spell};
use route::{EventFormat, HttpMethod, Route};

/// The longest path with its query: most servers take less.
const LONGEST_PATH: usize = 65_000;

/// What can be asked of the workers of a pool.
#[derive(Clone, Debug)]
pub(crate) struct Routes {
    prefix: String,
    /// For commands without a route of their own.
    usual: RoutePlan,
    mapped: BTreeMap<String, RoutePlan>,
}

impl Routes {
    /// Checks all routes, and tells of the first that is wrong.
    pub(crate) fn new(prefix: &str, method: HttpMethod, routes: &[(String, Route)]) -> Result<Self, String> {
        let mut mapped = BTreeMap::new();
        for (command, route) in routes {
            let plan = RoutePlan::new(route)
                .map_err(|fault| format!("the route of `{command}` is wrong: {fault}"))?;
            mapped.insert(command.clone(), plan);
        }
        Ok(Self { prefix: path(prefix), usual: RoutePlan::usual(method), mapped })
    }

    /// The commands that have a route of their own.
    pub(crate) fn commands(&self) -> impl Iterator<Item = &str> {
        self.mapped.keys().map(String::as_str)
    }

    fn plan(&self, command: &str) -> &RoutePlan {
        self.mapped.get(command).unwrap_or(&self.usual)
    }
}

/// What is asked of one worker.
pub(crate) struct Requests {
    pub(crate) routes: Arc<Routes>,
    pub(crate) secret: String,
}

/// A request, and what is to be known when its answer is read.
pub(crate) struct Prepared {
    pub(crate) request: Request<Full<Bytes>>,
    pub(crate) reading: AnswerReading,
}

/// How the answer of a request is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AnswerReading {
    pub(crate) events: EventFormat,
    /// An answer to `HEAD` speaks of a body that does not come.
    pub(crate) is_head: bool,
}

impl Requests {
    /// The request of a call. Whatever is wrong with it is found here.
    pub(crate) fn prepare(&self, call: &Call, integers: Integers) -> Result<Prepared, ValueError> {
        let command = call.command();
        let Input::One(arguments) = call.input() else {
            return Err(ValueError::unsendable("this adapter takes one call at a time"));
        };
        let plan = self.routes.plan(command);
        let filled = plan.fill(command, arguments.to_value()?, integers)?;
        let path = match &filled.path {
            Some(path) => format!("{}{path}{}", self.routes.prefix, filled.query),
            None => format!("{}{}", command_path(&self.routes.prefix, command)?, filled.query),
        };
        if path.len() > LONGEST_PATH {
            let message = format!(
                "the path and query of `{command}` have {} bytes, and at most {LONGEST_PATH} can be sent: a body has no such limit",
                path.len()
            );
            return Err(ValueError::unsendable(message));
        }
        let mut request = self.begin(&plan.method, &path);
        if let Some(headers) = request.headers_mut() {
            headers.insert(header::ACCEPT, accepted(call.stream_credit().is_some(), filled.path.is_some()));
            for (name, value) in filled.headers {
                headers.insert(name, value);
            }
        }
        request = request.header("snakepit-call", call.id().get());
        if let Some(remaining) = call.remaining() {
            request = request.header("snakepit-timeout-ms", remaining.as_millis().to_string());
        }
        if let Some(session) = call.session() {
            request = request.header("snakepit-session", as_it_is(session)?);
        }
        for (key, value) in call.metadata() {
            request = request.header(format!("snakepit-metadata-{key}"), as_it_is(value)?);
        }
        if let Some(trace) = call.trace() {
            if let Some(headers) = request.headers_mut() {
                headers.remove("traceparent");
                headers.remove("tracestate");
            }
            request = request.header("traceparent", trace.traceparent());
            if let Some(state) = trace.tracestate() {
                request = request.header("tracestate", state);
            }
        }
        let request = request.body(Full::new(filled.body)).map_err(|error| {
            ValueError::unsendable(format!("command, session or metadata have no form in HTTP: {error}"))
        })?;
        let reading = AnswerReading { events: plan.events, is_head: plan.method == Method::HEAD };
        Ok(Prepared { request, reading })
    }

    /// Asks whether a worker is ready.
    pub(crate) fn probe(&self, path: &str) -> Result<Request<Full<Bytes>>, hyper::http::Error> {
        let request = self.begin(&Method::GET, path).header(header::ACCEPT, "*/*");
        request.body(Full::default())
    }

    fn begin(&self, method: &Method, path: &str) -> hyper::http::request::Builder {
        Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "localhost")
            .header("snakepit-secret", &self.secret)
    }
}

/// What an answer may be. A route of an application's own may answer with anything.
fn accepted(is_stream: bool, has_route: bool) -> HeaderValue {
    HeaderValue::from_static(match (is_stream, has_route) {
        (true, false) => "text/event-stream, application/x-ndjson, application/json",
        (false, false) => "application/json",
        (true, true) => "text/event-stream, application/x-ndjson, application/json, */*;q=0.5",
        (false, true) => "application/json, */*;q=0.5",
    })
}

/// The value of a header, which would come without the spaces around it.
fn as_it_is(value: &str) -> Result<&str, ValueError> {
    if value.trim_matches([' ', '\t']) == value {
        Ok(value)
    } else {
        let message = format!("session or metadata have no form in HTTP with spaces around them: {value:?}");
        Err(ValueError::unsendable(message))
    }
}

/// The path of a command below a prefix. A command that would leave the prefix is refused.
fn command_path(prefix: &str, command: &str) -> Result<String, ValueError> {
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
        spell(&mut path, part);
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
        let route = |command: &str| super::command_path("/api", command);
        assert_eq!(route("v1/add").expect("a route"), "/api/v1/add");
        assert_eq!(route("v1..add/...").expect("a route"), "/api/v1..add/...");
        for command in ["../admin", "a/../../admin", "..", "./add", "a\\..\\b", "/../x"] {
            let error = route(command).expect_err("refused");
            assert!(error.to_string().contains("leads out of its path"), "{command}: {error}");
        }
        assert_eq!(route("%2e%2e/admin").expect("spelled out"), "/api/%252e%252e/admin");
    }
}
