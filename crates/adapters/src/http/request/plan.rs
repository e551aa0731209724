//! A checked route, filled with the arguments of each call.
//!
//! Routes are checked once, when the pool starts. Arguments are checked before anything is sent.

use std::collections::HashSet;
use std::fmt::Write as _;

use hyper::Method;
use hyper::body::Bytes;
use hyper::header::{self, HeaderName, HeaderValue};

use super::route::{Body, EventFormat, HttpMethod, Route};
use super::template::Template;
use crate::json::{self, Integers};
use crate::value::{Map, Value, ValueError};

/// Headers that only the sender of the message may set.
const FRAMING: [HeaderName; 9] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::EXPECT,
    header::HOST,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
];
/// The prefix of the adapter's own headers.
const OURS: &str = "snakepit-";

/// A checked route.
#[derive(Clone, Debug)]
pub(crate) struct RoutePlan {
    pub(crate) method: Method,
    pub(crate) events: EventFormat,
    /// `None` if the path is the command.
    segments: Option<Vec<Template>>,
    query: Option<Vec<String>>,
    headers: Vec<(HeaderName, Template)>,
    body: Body,
    /// The route as errors show it, such as `GET /items/{id}`.
    shown: String,
    /// The arguments that the route names.
    placed: HashSet<String>,
}

/// The parts of a request.
#[derive(Debug, Default)]
pub(crate) struct Filled {
    /// `None` if the path is the command.
    pub(crate) path: Option<String>,
    /// The query with its question mark, or an empty string.
    pub(crate) query: String,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) body: Bytes,
}

impl RoutePlan {
    /// Returns the plan for commands without a route: the path is the command.
    pub(crate) fn usual(method: HttpMethod) -> Self {
        Self {
            method: method.into(),
            events: EventFormat::default(),
            segments: None,
            query: None,
            headers: Vec::new(),
            body: method.usual_body(),
            shown: format!("{} /COMMAND", Method::from(method)),
            placed: HashSet::new(),
        }
    }

    /// Checks a route.
    pub(crate) fn new(route: &Route) -> Result<Self, String> {
        let Route { method, path, query, headers, body, events } = route;
        let segments = segments(path)?;
        let mut checked = Vec::new();
        for (name, value) in headers {
            checked.push(read_header(name, value)?);
        }
        if let Body::Bytes { content_type, .. } = body {
            HeaderValue::from_str(content_type)
                .map_err(|_| format!("its content_type {content_type:?} is not a valid header value"))?;
        }
        let in_path = segments.iter().flat_map(Template::arguments);
        let in_headers = checked.iter().flat_map(|(_, value)| value.arguments());
        let in_query = query.iter().flatten().map(String::as_str);
        let in_body = match body {
            Body::Bytes { argument, .. } => Some(argument.as_str()),
            Body::Json | Body::Form | Body::None => None,
        };
        let placed = in_path.chain(in_headers).chain(in_query).chain(in_body).map(str::to_owned).collect();
        Ok(Self {
            method: (*method).into(),
            events: *events,
            query: query.clone(),
            body: body.clone(),
            shown: format!("{} {path}", Method::from(*method)),
            placed,
            segments: Some(segments),
            headers: checked,
        })
    }

    /// Returns the parts of the request of a call with these arguments.
    pub(crate) fn fill(
        &self,
        command: &str,
        arguments: Value,
        integers: Integers,
    ) -> Result<Filled, ValueError> {
        let given = match arguments {
            Value::Map(given) => given,
            Value::List(list) if list.is_empty() => Map::new(),
            by_position => return self.fill_by_position(command, by_position, integers),
        };
        let arguments = Arguments { command, plan: self, given };
        let mut filled = Filled { path: arguments.path()?, ..Filled::default() };
        let mut query = form_urlencoded::Serializer::new(String::new());
        for name in self.query.iter().flatten() {
            arguments.append(&mut query, name, "a query")?;
        }
        filled.headers = arguments.headers()?;
        match &self.body {
            Body::Json => {}
            Body::Form => {
                let mut form = form_urlencoded::Serializer::new(String::new());
                arguments.append_rest(&mut form, "a form")?;
                filled.body = form.finish().into();
            }
            Body::Bytes { argument, .. } => {
                filled.body = arguments.bytes(argument)?;
                arguments.append_rest(&mut query, "a query")?;
            }
            Body::None => arguments.append_rest(&mut query, "a query")?,
        }
        let query = query.finish();
        if !query.is_empty() {
            filled.query = format!("?{query}");
        }
        if self.body == Body::Json {
            let rest = match arguments.given {
                given if self.placed.is_empty() => given,
                given => given.into_iter().filter(|(name, _)| !self.has_place_for(name)).collect(),
            };
            filled.body = written(&Value::Map(rest), integers)?;
        }
        self.add_content_type(&mut filled.headers);
        Ok(filled)
    }

    /// Returns the parts of a request with positional arguments, which only a JSON body can hold.
    fn fill_by_position(
        &self,
        command: &str,
        arguments: Value,
        integers: Integers,
    ) -> Result<Filled, ValueError> {
        let none = Arguments { command, plan: self, given: Map::new() };
        if self.body != Body::Json || !self.placed.is_empty() {
            return Err(none.wrong("takes arguments by name, and these have no names (pass them by name)"));
        }
        let list = if let Value::List(_) = arguments { arguments } else { Value::List(vec![arguments]) };
        let mut headers = none.headers()?;
        self.add_content_type(&mut headers);
        Ok(Filled { path: none.path()?, headers, body: written(&list, integers)?, ..Filled::default() })
    }

    fn has_place_for(&self, name: &Value) -> bool {
        name.as_str().is_some_and(|name| self.placed.contains(name))
    }

    /// Adds the content type of the body, unless the route sets one.
    fn add_content_type(&self, headers: &mut Vec<(HeaderName, HeaderValue)>) {
        let value = match &self.body {
            Body::Json => HeaderValue::from_static("application/json"),
            Body::Form => HeaderValue::from_static("application/x-www-form-urlencoded"),
            Body::Bytes { content_type, .. } => match HeaderValue::from_str(content_type) {
                Ok(value) => value,
                Err(_) => return,
            },
            Body::None => return,
        };
        if !headers.iter().any(|(name, _)| *name == header::CONTENT_TYPE) {
            headers.push((header::CONTENT_TYPE, value));
        }
    }
}

fn written(value: &Value, integers: Integers) -> Result<Bytes, ValueError> {
    let mut body = Vec::new();
    json::write(&mut body, value, integers)?;
    Ok(body.into())
}

/// The arguments of one call, and the route that they are for.
struct Arguments<'a> {
    command: &'a str,
    plan: &'a RoutePlan,
    given: Map,
}

impl Arguments<'_> {
    fn wrong(&self, what: &str) -> ValueError {
        ValueError::unsendable(format!("the route of `{}` {what}: {}", self.command, self.plan.shown))
    }

    /// Returns an argument as text, or `None` if it is missing or nil.
    fn text(&self, name: &str, place: &str) -> Result<Option<String>, ValueError> {
        let Some(value) = self.given.get(name) else { return Ok(None) };
        as_text(value)
            .map_err(|what| self.wrong(&format!("sends `{name}` in {place}, which cannot hold {what}")))
    }

    fn path(&self) -> Result<Option<String>, ValueError> {
        let Some(segments) = &self.plan.segments else { return Ok(None) };
        let mut path = String::new();
        for segment in segments {
            let filled = segment.fill(|name| match self.text(name, "its path")? {
                Some(text) => Ok(Some(text)),
                None => Err(self.wrong(&format!("needs an argument `{name}`"))),
            })?;
            let filled = filled.unwrap_or_default();
            if let Some(name) = segment.arguments().next()
                && (matches!(filled.as_str(), "" | "." | "..") || filled.contains(['/', '\\']))
            {
                let shown: String = filled.chars().take(100).collect();
                return Err(self.wrong(&format!(
                    "sends `{name}` as one part of a path, which cannot be {shown:?}: it must not be empty, `.` or `..`, or have `/` \
                     or `\\`"
                )));
            }
            path.push('/');
            spell(&mut path, &filled);
        }
        Ok(Some(path))
    }

    fn headers(&self) -> Result<Vec<(HeaderName, HeaderValue)>, ValueError> {
        let mut headers = Vec::new();
        for (name, value) in &self.plan.headers {
            let Some(text) = value.fill(|argument| self.text(argument, "a header"))? else { continue };
            let mut read = header_value(&text).map_err(|why| {
                let argument = value.arguments().next().unwrap_or_default();
                self.wrong(&format!("sends `{argument}` in the header `{name}`, and its value {why}"))
            })?;
            read.set_sensitive(value.arguments().next().is_some());
            headers.push((name.clone(), read));
        }
        Ok(headers)
    }

    fn bytes(&self, name: &str) -> Result<Bytes, ValueError> {
        match self.given.get(name) {
            Some(Value::Bytes(bytes)) => Ok(bytes.clone()),
            Some(Value::Str(text)) => Ok(Bytes::copy_from_slice(text.as_bytes())),
            Some(_) => {
                Err(self.wrong(&format!("sends `{name}` as the body, which must be a byte string or a text")))
            }
            None => Err(self.wrong(&format!("needs an argument `{name}`"))),
        }
    }

    /// Adds the arguments that the route does not name to a query or a form.
    fn append_rest(
        &self,
        to: &mut form_urlencoded::Serializer<'_, String>,
        place: &str,
    ) -> Result<(), ValueError> {
        let takes_rest = self.plan.body == Body::Form || self.plan.query.is_none();
        for (name, _) in self.given.iter().filter(|(name, _)| !self.plan.has_place_for(name)) {
            match name {
                Value::Str(name) if takes_rest => self.append(to, name, place)?,
                Value::Str(name) => {
                    return Err(
                        self.wrong(&format!("has no place for the argument `{name}` (name it in `query`)"))
                    );
                }
                _ => {
                    return Err(self.wrong("takes only arguments whose names are texts"));
                }
            }
        }
        Ok(())
    }

    /// Adds an argument to a query or a form. A list is added entry by entry.
    fn append(
        &self,
        to: &mut form_urlencoded::Serializer<'_, String>,
        name: &str,
        place: &str,
    ) -> Result<(), ValueError> {
        let Some(value) = self.given.get(name) else { return Ok(()) };
        let entries =
            if let Value::List(list) = value { list.as_slice() } else { std::slice::from_ref(value) };
        for entry in entries {
            let text = as_text(entry).map_err(|what| {
                self.wrong(&format!("sends `{name}` in {place}, which cannot hold {what}"))
            })?;
            if let Some(text) = text {
                to.append_pair(name, &text);
            }
        }
        Ok(())
    }
}

/// Returns the text of a value in a path, a query, a header or a form, or `None` for nil. The error names a kind of
/// value that has no text.
fn as_text(value: &Value) -> Result<Option<String>, &'static str> {
    match value {
        Value::Nil => Ok(None),
        Value::Bool(flag) => Ok(Some(flag.to_string())),
        Value::Int(number) => Ok(Some(number.to_string())),
        Value::BigInt(number) => Ok(Some(number.to_string())),
        Value::Float(number) if number.is_finite() => Ok(Some(format!("{number:?}"))),
        Value::Float(_) => Err("a number that is not finite"),
        Value::Str(text) => Ok(Some(text.clone())),
        Value::DateTime(time) => Ok(Some(time.to_string())),
        Value::NaiveDateTime(time) => Ok(Some(time.to_string())),
        Value::Bytes(_) => Err("a byte string"),
        Value::List(_) => Err("a list"),
        Value::Map(_) => Err("a map"),
    }
}

/// Returns the segments of a route's path.
fn segments(path: &str) -> Result<Vec<Template>, String> {
    let Some(path_below) = path.strip_prefix('/') else {
        return Err(format!("its path {path:?} must begin with `/`"));
    };
    if let Some(odd) = path.chars().find(|&c| matches!(c, '?' | '#' | '\\') || c.is_control()) {
        return Err(format!(
            "its path {path:?} must not contain {odd:?}: name the parameters of a query in `query`"
        ));
    }
    path_below
        .split('/')
        .map(|segment| match segment {
            "." | ".." => {
                Err(format!("its path {path:?} must not have a part {segment:?}: write the path without it"))
            }
            segment => Template::parse(segment).map_err(|fault| format!("its path {path:?}: {fault}")),
        })
        .collect()
}

fn read_header(name: &str, value: &str) -> Result<(HeaderName, Template), String> {
    let read = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| format!("{name:?} is not a valid header name"))?;
    if read.as_str().starts_with(OURS) || FRAMING.contains(&read) {
        return Err(format!("it sets the header `{read}`, which only the adapter may set: leave it out"));
    }
    let template = Template::parse(value).map_err(|fault| format!("its header `{read}`: {fault}"))?;
    // The fixed text must be valid now. The arguments are checked with each call.
    let sample = template.fill(|_| Ok::<_, String>(Some("x".into())))?.unwrap_or_default();
    header_value(&sample).map_err(|why| format!("the value of its header `{read}` {why}"))?;
    Ok((read, template))
}

/// Checks that a value has only visible ASCII characters and spaces between them. Any other character would be
/// changed in transit, or end the header.
fn header_value(text: &str) -> Result<HeaderValue, &'static str> {
    if text.trim_matches([' ', '\t']) != text {
        return Err("has spaces around it, which are lost in a header");
    }
    if !text.is_ascii() {
        return Err("is not ASCII");
    }
    HeaderValue::from_str(text).map_err(|_| "has a line break or another control character")
}

/// Appends a text to a path and percent-encodes all but unreserved characters.
pub(crate) fn spell(path: &mut String, text: &str) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            path.push(char::from(byte));
        } else {
            let _ = write!(path, "%{byte:02X}");
        }
    }
}
