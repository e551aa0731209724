//! What a worker answers: a value, an error, or a stream.

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::{HeaderMap, StatusCode, header};
use serde_json::Value as Json;

use super::pieces::Form;
use crate::adapter::json::{self, Integers};
use crate::call::RemoteError;
use crate::value::{Encoded, Value};

/// How a body is to be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Body {
    Json,
    Text,
    Bytes,
    Stream(Form),
}

impl Body {
    /// By its content type; without one, it is JSON.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, RemoteError> {
        let Some(said) = headers.get(header::CONTENT_TYPE) else { return Ok(Self::Json) };
        let said = said.to_str().unwrap_or_default();
        let kind = said.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match kind.as_str() {
            "text/event-stream" => Ok(Self::Stream(Form::Events)),
            "application/x-ndjson"
            | "application/ndjson"
            | "application/jsonl"
            | "application/x-jsonlines" => Ok(Self::Stream(Form::Lines)),
            "application/octet-stream" => Ok(Self::Bytes),
            kind if kind == "application/json" || kind.ends_with("+json") => Ok(Self::Json),
            kind if kind.starts_with("text/") => Ok(Self::Text),
            kind => {
                let ways = "application/json, text/plain, application/octet-stream, text/event-stream or application/x-ndjson";
                Err(bad_value(format!("the worker answered with {kind:?}, and not with {ways}")))
            }
        }
    }

    /// A value, from the whole of it.
    pub(super) fn value(self, body: Vec<u8>) -> Result<Encoded, RemoteError> {
        let encoded = |value: Value| Encoded::encode(&value).map_err(|error| bad_value(error.to_string()));
        match self {
            Self::Json if body.is_empty() => Ok(Encoded::nil()),
            Self::Json => item(&body),
            Self::Bytes => encoded(Value::Bytes(body.into())),
            Self::Text => match String::from_utf8(body) {
                Ok(text) => encoded(Value::Str(text)),
                Err(error) => Err(bad_value(format!("the worker's answer is not UTF-8: {error}"))),
            },
            Self::Stream(_) => Err(bad_value("the worker answered with a stream: the call must ask for one")),
        }
    }
}

/// A value in JSON.
pub(super) fn item(text: &[u8]) -> Result<Encoded, RemoteError> {
    json::read(text, Integers::Of64Bits)
        .map_err(|error| bad_value(format!("the worker's answer cannot be read: {error}")))
}

pub(super) fn bad_value(message: impl Into<String>) -> RemoteError {
    RemoteError::new("bad_value", message)
}

/// Why a body could not be read.
pub(super) enum BodyError {
    Broken(hyper::Error),
    TooLong,
}

/// All of a body, up to a limit.
pub(super) async fn collect(mut body: Incoming, limit: usize) -> Result<Vec<u8>, BodyError> {
    let mut all = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(BodyError::Broken)?;
        let Some(data) = frame.data_ref() else { continue };
        if all.len() + data.len() > limit {
            return Err(BodyError::TooLong);
        }
        all.extend_from_slice(data);
    }
    Ok(all)
}

/// The beginning of a body, up to a limit; whether it is the whole of it.
pub(super) async fn beginning(mut body: Incoming, limit: usize) -> Result<(Vec<u8>, bool), hyper::Error> {
    let mut all = Vec::new();
    while let Some(frame) = body.frame().await {
        let Some(data) = frame?.into_data().ok() else { continue };
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
pub(super) fn event_error(data: &[u8]) -> RemoteError {
    said(data, || "the worker ended its stream with an error, and did not say which".into())
}

/// An answer that is an error.
pub(super) fn error(status: StatusCode, body: &[u8]) -> RemoteError {
    let mut error = said(body, || format!("the worker answered with {status}"));
    let is_plain = error.type_name.is_none() && error.kind == "exception";
    if is_plain {
        error.kind = match status {
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => "unknown_command",
            StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => "bad_argument",
            StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => "deadline",
            _ => "exception",
        }
        .into();
    }
    error.type_name.get_or_insert_with(|| format!("HTTP {}", status.as_u16()));
    error
}

/// The errors of `FastAPI`: a text, an object of the application's, or a list of what is wrong with the arguments.
fn detail(detail: Json) -> RemoteError {
    let Json::Array(faults) = &detail else { return json::read_error(detail) };
    let mut error = RemoteError::new("exception", String::new());
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
        (error.kind.clone(), error.to_string())
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
