//! Builds the requests of calls, from the route of a command or, without one, from its name.

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

/// The maximum length of a path with its query. Most servers accept less.
const LONGEST_PATH: usize = 65_000;

/// The routes of a pool's workers.
#[derive(Clone, Debug)]
pub(crate) struct Routes {
    prefix: String,
    /// The plan for commands without a route.
    usual: RoutePlan,
    mapped: BTreeMap<String, RoutePlan>,
}

impl Routes {
    /// Checks all routes. Returns an error for the first invalid one.
    pub(crate) fn new(prefix: &str, method: HttpMethod, routes: &[(String, Route)]) -> Result<Self, String> {
        let mut mapped = BTreeMap::new();
        for (command, route) in routes {
            let plan = RoutePlan::new(route)
                .map_err(|fault| format!("the route of `{command}` is wrong: {fault}"))?;
            mapped.insert(command.clone(), plan);
        }
        Ok(Self { prefix: path(prefix), usual: RoutePlan::usual(method), mapped })
    }

    /// Returns the commands that have a route.
    pub(crate) fn commands(&self) -> impl Iterator<Item = &str> {
        self.mapped.keys().map(String::as_str)
    }

    fn plan(&self, command: &str) -> &RoutePlan {
        self.mapped.get(command).unwrap_or(&self.usual)
    }
}

/// Builds the requests to one worker.
pub(crate) struct Requests {
    pub(crate) routes: Arc<Routes>,
    pub(crate) secret: String,
}

/// A request, and how to read its response.
pub(crate) struct Prepared {
    pub(crate) request: Request<Full<Bytes>>,
    pub(crate) reading: AnswerReading,
}

/// How to read the response to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AnswerReading {
    pub(crate) events: EventFormat,
    /// Whether the request is a `HEAD`. The headers of its response describe a body that is not sent.
    pub(crate) is_head: bool,
}

impl Requests {
    /// Builds the request of a call. Any fault in the call is found here.
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
                "the path and query of `{command}` have {} bytes, and at most {LONGEST_PATH} can be sent: send the arguments in a body",
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
            ValueError::unsendable(format!(
                "the command, session or metadata cannot be sent over HTTP: {error}"
            ))
        })?;
        let reading = AnswerReading { events: plan.events, is_head: plan.method == Method::HEAD };
        Ok(Prepared { request, reading })
    }

    /// Builds the request of a readiness probe.
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

/// Returns the acceptable content types. The route of an application may answer with any type.
fn accepted(is_stream: bool, has_route: bool) -> HeaderValue {
    HeaderValue::from_static(match (is_stream, has_route) {
        (true, false) => "text/event-stream, application/x-ndjson, application/json",
        (false, false) => "application/json",
        (true, true) => "text/event-stream, application/x-ndjson, application/json, */*;q=0.5",
        (false, true) => "application/json, */*;q=0.5",
    })
}

/// Checks a header value. The spaces around it would be lost.
fn as_it_is(value: &str) -> Result<&str, ValueError> {
    if value.trim_matches([' ', '\t']) == value {
        Ok(value)
    } else {
        let message = format!(
            "{value:?} has spaces around it, and a session or metadata loses them over HTTP: remove them"
        );
        Err(ValueError::unsendable(message))
    }
}

/// Returns the path of a command below a prefix. A command that would leave the prefix is an error.
fn command_path(prefix: &str, command: &str) -> Result<String, ValueError> {
    if command.split(['/', '\\']).any(|part| matches!(part, "." | "..")) {
        let message =
            format!("the command {command:?} has a part that leads out of its path: leave `.` and `..` out");
        return Err(ValueError::unsendable(message));
    }
    Ok(format!("{prefix}{}", path(command)))
}

/// Returns a prefix or a command as a part of a path, such as `/a/b`. Other characters are percent-encoded.
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
    use snakepit_error_texts::ErrorTexts;

    use super::plan::RoutePlan;
    use super::route::{Body, HttpMethod, Route};
    use super::{Integers, Routes};
    use crate::http::Readiness;
    use crate::value::{Map, Value};

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
        assert_eq!(route("%2e%2e/admin").expect("spelled out"), "/api/%252e%252e/admin");
    }
    #[test]
    fn every_wrong_route_is_refused_with_its_place() {
        let mut texts = ErrorTexts::new();
        let get = || Route::get("/items");
        for route in [
            Route::get("items"),
            Route::get("/items?limit=1"),
            Route::get("/a/../b"),
            Route::get("/items/{id"),
            Route::get("/items/id}"),
            Route::get("/items/{}"),
            Route::get("/items/{id:int}"),
            get().header("two words", "x"),
            get().header("snakepit-secret", "x"),
            get().header("content-length", "1"),
            get().header("authorization", "Bearer {token"),
            get().header("authorization", " x"),
            get().header("authorization", "grüße"),
            get().header("authorization", "a\nb"),
            get().bytes("data", "image/\npng"),
        ] {
            let routes = [("get_item".to_owned(), route)];
            let error = Routes::new("", HttpMethod::Post, &routes).map(drop).expect_err("a wrong route");
            texts.add_text("", &error);
        }
        for path in ["healthz", "/a#b", "/a b"] {
            texts.add_text("", &Readiness::probe(path).check().expect_err("no path"));
        }
        insta::assert_snapshot!(texts);
    }

    #[test]
    fn arguments_that_a_route_cannot_send_are_refused_with_its_place() {
        let mut texts = ErrorTexts::new();
        let mut refused = |route: &Route, arguments: Value| {
            let plan = RoutePlan::new(route).expect("a route");
            texts.add(
                "",
                &plan.fill("get_item", arguments, Integers::Of64Bits).map(drop).expect_err("refused"),
            );
        };
        let given = |name: &str, value: Value| Value::from(Map::from([(name, value)]));
        let item = Route::get("/items/{id}").header("x-token", "{token}").query(["limit"]);
        let with_id = |name: &str, value| Value::from(Map::from([("id", Value::from(1)), (name, value)]));
        refused(&item, given("limit", 1.into()));
        refused(&item, given("id", "..".into()));
        refused(&item, given("id", vec![Value::from(1)].into()));
        refused(&item, with_id("token", "a\nb".into()));
        refused(&item, with_id("token", f64::NAN.into()));
        refused(&item, with_id("limit", Value::from(Map::new())));
        refused(&item, with_id("other", 1.into()));
        refused(&item, Value::from(vec![Value::from(1)]));
        let number = Map::from([(Value::from(7), Value::from(1))]);
        refused(&Route::get("/items"), number.into());
        let upload = Route::put("/file").bytes("data", "image/png");
        refused(&upload, Value::from(Map::new()));
        refused(&upload, given("data", 1.into()));
        let bytes = Value::from(bytes::Bytes::from_static(b"x"));
        refused(&Route::post("/form").body(Body::Form), given("file", bytes));
        for command in ["../admin", "a\\..\\b"] {
            texts.add("", &super::command_path("/api", command).expect_err("refused"));
        }
        texts.add("", &super::as_it_is(" ann").expect_err("refused"));
        insta::assert_snapshot!(texts);
    }
}
