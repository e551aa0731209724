//! The keys of `http = { … }`: routes, and how a worker of the adapter `http` is reached.

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use serde::Deserialize;

use crate::adapter::Program;
use crate::adapter::http::{Body, EventFormat, HttpMethod, HttpWorker, Readiness, Route};

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct HttpTable {
    prefix: Option<String>,
    method: Option<HttpMethod>,
    ready: Option<Readiness>,
    port: Option<NonZeroU16>,
    #[serde(default)]
    routes: BTreeMap<String, RouteTable>,
}

/// A checked `http` table: its keys fit together.
#[derive(Clone, Default, Deserialize)]
#[serde(try_from = "HttpTable")]
pub(super) struct HttpKeys(HttpTable);

impl TryFrom<HttpTable> for HttpKeys {
    type Error = String;

    fn try_from(keys: HttpTable) -> Result<Self, String> {
        let readiness = keys.ready.clone().unwrap_or_default();
        readiness.check()?;
        if keys.port.is_some() && readiness == Readiness::Line {
            return Err("its `port` is only for a worker that prints no ready line: add ready = \"port\" or ready = { probe = \"/healthz\" }, or leave `port` out"
                .into());
        }
        Ok(Self(keys))
    }
}

impl HttpKeys {
    pub(super) fn worker(&self, program: Program) -> HttpWorker {
        let HttpTable { prefix, method, ready, port, routes } = self.0.clone();
        let worker = HttpWorker::new(program)
            .prefix(prefix.unwrap_or_default())
            .method(method.unwrap_or_default())
            .ready(ready.unwrap_or_default());
        let worker = match port {
            Some(port) => worker.port(port.get()),
            None => worker,
        };
        routes.into_iter().fold(worker, |worker, (command, RouteTable(route))| worker.route(command, route))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RouteKeys {
    method: HttpMethod,
    path: String,
    query: Option<Vec<String>>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<Body>,
    #[serde(default)]
    events: EventFormat,
}

/// A checked route.
#[derive(Clone, Deserialize)]
#[serde(try_from = "RouteKeys")]
struct RouteTable(Route);

impl TryFrom<RouteKeys> for RouteTable {
    type Error = String;

    fn try_from(keys: RouteKeys) -> Result<Self, String> {
        let mut route = Route::new(keys.method, keys.path).events(keys.events);
        if let Some(query) = keys.query {
            route = route.query(query);
        }
        if let Some(body) = keys.body {
            route = route.body(body);
        }
        let route = keys.headers.into_iter().fold(route, |route, (name, value)| route.header(name, value));
        route.check()?;
        Ok(Self(route))
    }
}
