//! Decodes the responses of workers: a value, an error or a stream.

pub(crate) mod payload;
pub(crate) mod stream_splitter;

use hyper::body::Bytes;
use hyper::{HeaderMap, StatusCode, header};
use serde::Serialize;
use serde::de::IgnoredAny;
use serde_json::Value as Json;

use super::request::AnswerReading;
use crate::call::{RemoteError, RemoteErrorKind};
use crate::json::{self, Integers};
use crate::value::{Encoded, Map, Value};
use payload::{BodyError, Payload};
use stream_splitter::{ServerEvent, StreamForm, StreamPiece};

/// How to read a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AnswerBody {
    /// There is no body.
    Nothing,
    Json,
    Text,
    Bytes,
    Stream(StreamForm),
}

impl AnswerBody {
    /// Chooses by the status and the content type. Without a content type, the body is JSON.
    pub(crate) fn of(status: StatusCode, headers: &HeaderMap, reading: AnswerReading) -> Self {
        if reading.is_head || status == StatusCode::NO_CONTENT {
            return Self::Nothing;
        }
        let Some(said) = headers.get(header::CONTENT_TYPE) else { return Self::Json };
        let said = said.to_str().unwrap_or_default().to_ascii_lowercase();
        let mut parts = said.split(';').map(str::trim);
        match parts.next().unwrap_or_default() {
            "text/event-stream" => Self::Stream(StreamForm::Events(reading.events)),
            "application/x-ndjson"
            | "application/ndjson"
            | "application/jsonl"
            | "application/x-jsonlines" => Self::Stream(StreamForm::Lines),
            kind if kind == "application/json" || kind.ends_with("+json") => Self::Json,
            kind if kind.starts_with("text/") && parts.all(is_unicode) => Self::Text,
            _ => Self::Bytes,
        }
    }

    /// Returns the stream format for a caller that asked for a stream, or `None` if the body is a single value.
    pub(crate) fn as_stream(self) -> Option<StreamForm> {
        match self {
            Self::Nothing | Self::Json => None,
            Self::Text => Some(StreamForm::Text),
            Self::Bytes => Some(StreamForm::Bytes),
            Self::Stream(form) => Some(form),
        }
    }

    /// Decodes a value from the complete body.
    pub(crate) fn value(self, body: Bytes, integers: Integers) -> Result<Encoded, RemoteError> {
        match self {
            Self::Nothing => Ok(Encoded::nil()),
            Self::Json if body.is_empty() => Ok(Encoded::nil()),
            Self::Json => read_json(&body, integers),
            Self::Bytes => encoded(&Value::Bytes(body)),
            Self::Text => text(&body),
            Self::Stream(_) => Err(bad_value("the worker answered with a stream: the call must ask for one")),
        }
    }
}

/// Reports whether a text with this parameter of a content type is UTF-8. Other charsets are passed on as bytes.
fn is_unicode(parameter: &str) -> bool {
    match parameter.strip_prefix("charset=") {
        Some(charset) => matches!(charset.trim_matches('"'), "utf-8" | "utf8" | "us-ascii"),
        None => true,
    }
}

/// Decodes an item of a stream. Returns `None` for the mark at the end.
pub(crate) fn item(piece: StreamPiece, integers: Integers) -> Result<Option<Encoded>, RemoteError> {
    let item = match piece {
        StreamPiece::End => return Ok(None),
        StreamPiece::Error(said) => return Err(event_error(&said)),
        StreamPiece::Json(json) => read_json(&json, integers),
        StreamPiece::Data(data) if serde_json::from_slice::<IgnoredAny>(&data).is_ok() => {
            read_json(&data, integers)
        }
        StreamPiece::Data(data) => encoded(&lossy(&data)),
        StreamPiece::Text(data) => text(&data),
        StreamPiece::Bytes(bytes) => encoded(&Value::Bytes(bytes)),
        StreamPiece::Event(ServerEvent { kind, id, data }) => {
            let kind = if kind.is_empty() { "message".into() } else { lossy(&kind) };
            let id = id.map_or(Value::Nil, |id| lossy(&id));
            let data = lossy(&data.unwrap_or_default());
            encoded(&Map::from([("event", kind), ("id", id), ("data", data)]))
        }
    };
    item.map(Some)
}

/// Decodes the text of an event, which is UTF-8. As the standard demands, invalid bytes are replaced.
fn lossy(text: &[u8]) -> Value {
    Value::Str(String::from_utf8_lossy(text).into_owned())
}

fn text(body: &[u8]) -> Result<Encoded, RemoteError> {
    match std::str::from_utf8(body) {
        Ok(text) => encoded(text),
        Err(error) => Err(bad_value(format!("the worker's answer is not UTF-8: {error}"))),
    }
}

fn encoded<T: Serialize + ?Sized>(value: &T) -> Result<Encoded, RemoteError> {
    Encoded::encode(value).map_err(|error| bad_value(error.to_string()))
}

/// Decodes a JSON value.
fn read_json(text: &[u8], integers: Integers) -> Result<Encoded, RemoteError> {
    json::read(text, integers)
        .map_err(|error| bad_value(format!("the worker's answer cannot be read: {error}")))
}

pub(crate) fn bad_value(message: impl Into<String>) -> RemoteError {
    RemoteError::new(RemoteErrorKind::BadValue, message)
}

/// A piece of this length is taken over without a copy, if it is the whole body. A shorter one would keep alive the
/// much larger memory that it was read into.
const SHARED_PIECE: usize = 64 * 1024;
/// The most memory that is reserved because a worker has announced so much.
const MOST_RESERVED: usize = 4 << 20;

/// Reads a complete body up to a limit.
pub(crate) async fn collect(body: &mut Payload, limit: usize) -> Result<Bytes, BodyError> {
    let announced = body.announced();
    if announced > limit {
        return Err(BodyError::TooLong);
    }
    let mut all = Vec::new();
    while let Some(data) = body.next().await? {
        if all.len() + data.len() > limit {
            return Err(BodyError::TooLong);
        }
        if data.len() >= SHARED_PIECE && data.len() == announced {
            return Ok(data);
        }
        if all.is_empty() {
            all.reserve_exact(announced.clamp(data.len(), MOST_RESERVED.max(data.len())));
        }
        all.extend_from_slice(&data);
    }
    Ok(all.into())
}

/// Reads the beginning of a body up to a limit. The boolean is true if it is the complete body.
pub(crate) async fn beginning(body: &mut Payload, limit: usize) -> Result<(Vec<u8>, bool), BodyError> {
    let mut all = Vec::new();
    while let Some(data) = body.next().await? {
        let room = limit - all.len();
        all.extend_from_slice(&data[..data.len().min(room)]);
        if data.len() > room {
            return Ok((all, false));
        }
    }
    Ok((all, true))
}

/// Reads an error from a body in our own form, that of `FastAPI`, or any other. `nothing` returns the message of an
/// empty body.
fn said(body: &[u8], nothing: impl FnOnce() -> String) -> RemoteError {
    let said: Json =
        serde_json::from_slice(body).unwrap_or_else(|_| String::from_utf8_lossy(body).trim().into());
    let mut error = match said {
        Json::Object(mut map) if map.contains_key("error") => {
            json::read_error(map.remove("error").unwrap_or_default())
        }
        Json::Object(mut map) if map.contains_key("detail") => {
            detail(map.remove("detail").unwrap_or_default())
        }
        other => json::read_error(other),
    };
    if error.message.is_empty() || error.message == "{}" {
        error.message = nothing();
    }
    error
}

/// Returns the error of an `error` event, which ends a stream whose status was a success.
fn event_error(data: &[u8]) -> RemoteError {
    said(data, || "the worker ended its stream with an error without a message".into())
}

/// Returns the error of a response with an error status.
pub(crate) fn error(status: StatusCode, body: &[u8]) -> RemoteError {
    let mut error = said(body, || format!("the worker answered with {status}"));
    let is_plain = error.type_name.is_none() && error.kind == RemoteErrorKind::Exception;
    if is_plain {
        error.kind = match status {
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => RemoteErrorKind::UnknownCommand,
            StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => RemoteErrorKind::BadArgument,
            StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => RemoteErrorKind::Deadline,
            _ => RemoteErrorKind::Exception,
        };
    }
    error.type_name.get_or_insert_with(|| format!("HTTP {}", status.as_u16()));
    error
}

/// Reads an error of `FastAPI`: a text, an object of the application, or a list of invalid arguments.
fn detail(detail: Json) -> RemoteError {
    let Json::Array(faults) = &detail else { return json::read_error(detail) };
    let mut error = RemoteError::new(RemoteErrorKind::Exception, String::new());
    for fault in faults {
        let step = |step: &Json| step.as_str().map_or_else(|| step.to_string(), str::to_owned);
        let place: Vec<String> = fault["loc"].as_array().into_iter().flatten().map(step).collect();
        let said = fault["msg"].as_str().map_or_else(|| fault.to_string(), str::to_owned);
        if !error.message.is_empty() {
            error.message.push_str("; ");
        }
        if !place.is_empty() {
            error.message.push_str(&place.join("."));
            error.message.push_str(": ");
        }
        error.message.push_str(&said);
        // The first step is the part of the request that holds the argument, such as `body`.
        if let (None, Some(name)) = (&error.parameter, place.get(1)) {
            error.parameter = Some(name.clone());
        }
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(status: u16, body: &str) -> (String, String) {
        let error = error(StatusCode::from_u16(status).expect("a status"), body.as_bytes());
        (error.kind.as_str().to_owned(), error.to_string())
    }

    #[test]
    fn errors_are_read_in_the_forms_that_servers_have() {
        for (status, body, kind, text) in [
            (500, r#"{"error":{"type":"ValueError","message":"no"}}"#, "exception", "ValueError: no"),
            (404, r#"{"type":"KeyError","message":"gone"}"#, "exception", "KeyError: gone"),
            (404, r#"{"detail":"Not Found"}"#, "unknown_command", "HTTP 404: Not Found"),
            (404, "", "unknown_command", "HTTP 404: the worker answered with 404 Not Found"),
            (503, "<h1>busy</h1>", "exception", "HTTP 503: <h1>busy</h1>"),
            (504, "{}", "deadline", "HTTP 504: the worker answered with 504 Gateway Timeout"),
            (
                422,
                r#"{"detail":[{"loc":["body","a"],"msg":"Field required","type":"missing"},{"loc":["body","b",0],"msg":"no number"}]}"#,
                "bad_argument",
                "HTTP 422: body.a: Field required; body.b.0: no number",
            ),
        ] {
            assert_eq!(told(status, body), (kind.into(), text.into()), "{body}");
        }
    }
}
