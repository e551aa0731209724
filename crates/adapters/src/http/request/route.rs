//! Routes: the request that a command becomes, as a user describes it. `plan.rs` checks it.

use hyper::Method;
use serde::Deserialize;

/// An HTTP method.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[non_exhaustive]
pub enum HttpMethod {
    /// `GET`.
    Get,
    /// `HEAD`. The answer has no body, and the result of the call is nil.
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
    /// Returns the body of a request whose route names none.
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

/// The body of a request.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Body {
    /// The arguments that have no other place, as JSON. The default for `POST`, `PUT` and `PATCH`.
    Json,
    /// The arguments that have no other place, as a form (`application/x-www-form-urlencoded`).
    Form,
    /// One argument, byte for byte: a byte string, or text in UTF-8.
    Bytes {
        /// The name of the argument.
        argument: String,
        /// The value of the header `content-type`. In a file, the default is `application/octet-stream`.
        #[serde(default = "octet_stream")]
        content_type: String,
    },
    /// No body. The default for `GET`, `HEAD`, `DELETE` and `OPTIONS`.
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
    /// The data of each event: a value if it is JSON, otherwise text. An event `error` ends the stream with an error,
    /// and the data `[DONE]` ends the stream.
    #[default]
    Values,
    /// As `Values`, but the data is always text.
    Text,
    /// Each event as a map: `event` (the type, `message` by default), `id` (text or nil) and `data` (text). No event
    /// ends the stream.
    Full,
}

/// The request that a command becomes.
///
/// A `{name}` in the path or in a header stands for the argument of that name. Arguments that are not named anywhere
/// go to the body if it is JSON or a form, otherwise to the query.
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
    /// Creates a route from a method and a path below the prefix.
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

    /// Creates a `GET` route.
    pub fn get(path: impl Into<String>) -> Self {
        Self::new(HttpMethod::Get, path)
    }

    /// Creates a `POST` route.
    pub fn post(path: impl Into<String>) -> Self {
        Self::new(HttpMethod::Post, path)
    }

    /// Creates a `PUT` route.
    pub fn put(path: impl Into<String>) -> Self {
        Self::new(HttpMethod::Put, path)
    }

    /// Creates a `PATCH` route.
    pub fn patch(path: impl Into<String>) -> Self {
        Self::new(HttpMethod::Patch, path)
    }

    /// Creates a `DELETE` route.
    pub fn delete(path: impl Into<String>) -> Self {
        Self::new(HttpMethod::Delete, path)
    }

    /// Sets the arguments that become query parameters. An argument that is missing or nil is left out. A list
    /// repeats its name. By default, the query takes all arguments that have no other place, unless the body takes
    /// them.
    pub fn query(mut self, arguments: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.query = Some(arguments.into_iter().map(Into::into).collect());
        self
    }

    /// Adds a header. Its value may name arguments: `Bearer {token}`. The header is left out if such an argument is
    /// missing or nil.
    ///
    /// Headers `snakepit-…` and those that frame the message, such as `content-length`, are rejected when the pool
    /// starts.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sets the body.
    pub fn body(mut self, body: Body) -> Self {
        self.body = body;
        self
    }

    /// Sends one argument as the body, byte for byte.
    pub fn bytes(self, argument: impl Into<String>, content_type: impl Into<String>) -> Self {
        self.body(Body::Bytes { argument: argument.into(), content_type: content_type.into() })
    }

    /// Sets how the events of a stream become items.
    pub fn events(mut self, events: EventFormat) -> Self {
        self.events = events;
        self
    }
}
