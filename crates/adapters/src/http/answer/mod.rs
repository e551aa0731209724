//! What a worker answers: a value, an error, or a stream.
pub(crate) mod payload;
pub(crate) mod pieces;

use hyper::{HeaderMap, StatusCode, header};
use serde::de::IgnoredAny;
use serde_json::Value as Json;

use super::request::AnswerReading;
use crate::call::{RemoteError, RemoteErrorKind};
use crate::json::{self, Integers};
use crate::value::{Encoded, Map, Value};
use payload::{BodyError, Payload};
use pieces::{ServerEvent, StreamForm, StreamPiece};

/// How a body is to be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AnswerBody {
    /// There is none.
    Nothing,
    Json,
    Text,
    Bytes,
    Stream(StreamForm),
}

impl AnswerBody {
    /// By its status and its content type; without a type, it is JSON.
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

    /// How it comes to a caller who asked for a stream; none if it has one value.
    pub(crate) fn as_stream(self) -> Option<StreamForm> {
        match self {
            Self::Nothing | Self::Json => None,
            Self::Text => Some(StreamForm::Text),
            Self::Bytes => Some(StreamForm::Bytes),
            Self::Stream(form) => Some(form),
        }
    }

    /// A value, from the whole of it.
    pub(crate) fn value(self, body: Vec<u8>, integers: Integers) -> Result<Encoded, RemoteError> {
        match self {
            Self::Nothing => Ok(Encoded::nil()),
            Self::Json if body.is_empty() => Ok(Encoded::nil()),
            Self::Json => read_json(&body, integers),
            Self::Bytes => encoded(&Value::Bytes(body.into())),
            Self::Text => text(body),
            Self::Stream(_) => Err(bad_value("the worker answered with a stream: the call must ask for one")),
        }
    }
}

/// Whether a parameter of a content type leaves a text what it should be. Another charset's bytes are nobody's business here.
fn is_unicode(parameter: &str) -> bool {
    match parameter.strip_prefix("charset=") {
        Some(charset) => matches!(charset.trim_matches('"'), "utf-8" | "utf8" | "us-ascii"),
        None => true,
    }
}

/// What a part of a stream is to the caller; none for the mark at its end.
pub(crate) fn item(piece: StreamPiece, integers: Integers) -> Result<Option<Encoded>, RemoteError> {
    let item = match piece {
        StreamPiece::End => return Ok(None),
        StreamPiece::Error(said) => return Err(event_error(&said)),
        StreamPiece::Json(json) => read_json(&json, integers),
        StreamPiece::Data(data) if serde_json::from_slice::<IgnoredAny>(&data).is_ok() => {
            read_json(&data, integers)
        }
        StreamPiece::Data(data) => encoded(&lossy(&data)),
        StreamPiece::Text(data) => text(data.into()),
        StreamPiece::Bytes(bytes) => encoded(&Value::Bytes(bytes)),
        StreamPiece::Event(ServerEvent { kind, id, data }) => {
            let kind = if kind.is_empty() { "message".into() } else { lossy(&kind) };
            let id = id.map_or(Value::Nil, |id| lossy(&id));
            let data = lossy(&data.unwrap_or_default());
            encoded(&Map::from([("event", kind), ("id", id), ("data", data)]).into())
        }
    };
    item.map(Some)
}

/// Events are UTF-8; the standard replaces anything else.
fn lossy(text: &[u8]) -> Value {
    Value::Str(String::from_utf8_lossy(text).into_owned())
}

fn text(body: Vec<u8>) -> Result<Encoded, RemoteError> {
    match String::from_utf8(body) {
        Ok(text) => encoded(&Value::Str(text)),
        Err(error) => Err(bad_value(format!("the worker's answer is not UTF-8: {error}"))),
    }
}

fn encoded(value: &Value) -> Result<Encoded, RemoteError> {
    Encoded::encode(value).map_err(|error| bad_value(error.to_string()))
}

/// A value in JSON.
fn read_json(text: &[u8], integers: Integers) -> Result<Encoded, RemoteError> {
    json::read(text, integers)
        .map_err(|error| bad_value(format!("the worker's answer cannot be read: {error}")))
}

pub(crate) fn bad_value(message: impl Into<String>) -> RemoteError {
    RemoteError::new(RemoteErrorKind::BadValue, message)
}

/// All of a body, up to a limit.
pub(crate) async fn collect(mut body: Payload, limit: usize) -> Result<Vec<u8>, BodyError> {
    let mut all = Vec::new();
    while let Some(data) = body.next().await? {
        if all.len() + data.len() > limit {
            return Err(BodyError::TooLong);
        }
        all.extend_from_slice(&data);
    }
    Ok(all)
}

/// The beginning of a body, up to a limit; whether it is the whole of it.
pub(crate) async fn beginning(mut body: Payload, limit: usize) -> Result<(Vec<u8>, bool), BodyError> {
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

/// What an error says: our own form, that of `FastAPI`, or whatever it is; if it says nothing, the words for that.
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

/// An event of the type `error`, by which a stream ends whose status was a good one.
fn event_error(data: &[u8]) -> RemoteError {
    said(data, || "the worker ended its stream with an error, and did not say which".into())
}

/// An answer that is an error.
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

/// The errors of `FastAPI`: a text, an object of the application's, or a list of what is wrong with the arguments.
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
        // The first step is where the argument was sent: `body`.
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
