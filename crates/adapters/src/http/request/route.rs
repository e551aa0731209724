//! Routes: the request that a command becomes, as a user describes it. `plan.rs` has what is made of it.

use hyper::Method;
use serde::Deserialize;

/// A method of HTTP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[non_exhaustive]
pub enum HttpMethod {
    /// `GET`.
    Get,
    /// `HEAD`. Its answer has no body, and the call's result is nil.
    Head,
    /// `POST`.
    #[default]
    Post,
    /// `PUT`.
    Put,
    /// `PATCH`.
    Patch,
    /// `DELETE`.
    Delete,
    /// `OPTIONS`.
    Options,
}

impl HttpMethod {
    /// What a request has for a body, unless its route says otherwise.
    pub(crate) fn usual_body(self) -> Body {
        match self {
            Self::Post | Self::Put | Self::Patch => Body::Json,
            Self::Get | Self::Head | Self::Delete | Self::Options => Body::None,
        }
    }
}

impl From<HttpMethod> for Method {
    fn from(method: HttpMethod) -> Self {
        match method {
            HttpMethod::Get => Self::GET,
            HttpMethod::Head => Self::HEAD,
            HttpMethod::Post => Self::POST,
            HttpMethod::Put => Self::PUT,
            HttpMethod::Patch => Self::PATCH,
            HttpMethod::Delete => Self::DELETE,
            HttpMethod::Options => Self::OPTIONS,
        }
    }
}

/// What a request has for a body.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Body {
    /// The arguments that have no other place, as JSON. The default of `POST`, `PUT` and `PATCH`.
    Json,
    /// The arguments that have no other place, as a form (`application/x-www-form-urlencoded`).
    Form,
    /// One argument, byte for byte: a byte string, or a text in UTF-8.
    Bytes {
        /// The argument's name.
        argument: String,
        /// What it is, for the header `content-type`: `application/octet-stream` unless a file says otherwise.
        #[serde(default = "octet_stream")]
        content_type: String,
    },
    /// None. The default of `GET`, `HEAD`, `DELETE` and `OPTIONS`.
    None,
}

fn octet_stream() -> String {
    "application/octet-stream".into()
}

/// How the events of a `text/event-stream` become the items of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventFormat {
    /// The data of each event: a value if it is JSON, else a text. An event `error` ends the stream with an error, and the data
    /// `[DONE]` ends it, too.
    #[default]
    Values,
    /// The same, but the data is a text in any case.
    Text,
    /// Each event as a map: `event` (its type, `message` if it names none), `id` (a text, or nil) and `data` (a text). None of
    /// them ends the stream.
    Full,
}

/// The request that a command becomes.
///
/// A `{name}` in the path or in a header stands for the argument of that name. Arguments that are named nowhere go to the body if it
/// is JSON or a form, and else to the query.
///
/// ```
/// use snakepit::adapter::http::{Body, Route};
///
/// let get_item = Route::get("/items/{id}").query(["fields"]).header("authorization", "Bearer {token}");
/// let upload = Route::put("/files/{name}").bytes("data", "application/octet-stream");
/// let log_in = Route::post("/login").body(Body::Form);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub struct Route {
    pub(crate) method: HttpMethod,
    pub(crate) path: String,
    pub(crate) query: Option<Vec<String>>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Body,
    pub(crate) events: EventFormat,
}

impl Route {
    /// A route by its method and its path, which comes after the prefix.
    pub fn new(method: HttpMethod, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            query: None,
            headers: Vec::new(),
            body: method.usual_body(),
            events: EventFormat::default(),
        }
    }

    /// `GET`.
    pub fn get(path: impl Into<String>) -> Self {
        Self::new(HttpMethod::Get, path)
    }

    /// `POST`.
    pub fn post(path: impl Into<String>) -> Self {
        Self::new(HttpMethod::Post, path)
    }

    /// `PUT`.
    pub fn put(path: impl Into<String>) -> Self {
        Self::new(HttpMethod::Put, path)
    }

    /// `PATCH`.
    pub fn patch(path: impl Into<String>) -> Self {
        Self::new(HttpMethod::Patch, path)
    }

    /// `DELETE`.
    pub fn delete(path: impl Into<String>) -> Self {
        Self::new(HttpMethod::Delete, path)
    }

    /// The arguments that become query parameters. One that a call does not have, or that is nil, is left out; a list repeats its
    /// name. Without this, the query takes all arguments that have no other place, if the body does not.
    pub fn query(mut self, arguments: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.query = Some(arguments.into_iter().map(Into::into).collect());
        self
    }

    /// A header, whose value may name arguments: `Bearer {token}`. It is left out if a call does not have them, or if they are nil.
    ///
    /// `snakepit-…` and what frames the message, such as `content-length`, are refused when the pool starts.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// What the request has for a body.
    pub fn body(mut self, body: Body) -> Self {
        self.body = body;
        self
    }

    /// One argument is the body, byte for byte.
    pub fn bytes(self, argument: impl Into<String>, content_type: impl Into<String>) -> Self {
        self.body(Body::Bytes { argument: argument.into(), content_type: content_type.into() })
    }

    /// What becomes of the events of a stream.
    pub fn events(mut self, events: EventFormat) -> Self {
        self.events = events;
        self
    }
}
