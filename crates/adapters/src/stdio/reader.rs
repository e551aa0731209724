//! Reads the lines of a worker and handles them. The host does not trust the worker: no line can cost it much.
//!
//! Each line is independent: an unreadable line fails only the call that it names.

use serde::Deserialize;
use serde_json::Value as Json;

use super::connection::StdioConnection;
use crate::adapter::{ItemDelivery, ProtocolFault, WorkerChannel};
use crate::call::{RemoteError, RemoteErrorKind};
use crate::json;
use crate::lines::{Line, LineReader};
use crate::value::Encoded;

/// The maximum size of a decoded error.
const LONGEST_ERROR: usize = 1 << 20;

/// A line of a worker.
#[derive(Deserialize)]
struct WorkerLine {
    id: u64,
    #[serde(default, deserialize_with = "json::present")]
    result: Option<Encoded>,
    #[serde(default, deserialize_with = "json::present")]
    error: Option<Encoded>,
    #[serde(default, deserialize_with = "json::present")]
    item: Option<Encoded>,
    #[serde(default)]
    end: bool,
    progress: Option<ProgressLine>,
}

#[derive(Deserialize)]
struct ProgressLine {
    fraction: Option<f64>,
    text: Option<String>,
}

/// The effect of a line.
#[derive(PartialEq, Eq, Debug)]
enum ReaderStep {
    Message,
    /// An item of a call. Its reader must make room before more is read.
    Item(u64),
    Log,
}

/// Reads until the output ends. Returns the reason for the end.
pub(super) async fn read(connection: &StdioConnection, lines: &mut LineReader) -> ProtocolFault {
    loop {
        let line = match lines.next().await {
            Ok(Line::Object(line)) => line,
            Ok(Line::TooLong) => return ProtocolFault::LineTooLong,
            Ok(Line::End) => return ProtocolFault::Closed(WorkerChannel::StandardOutput),
            Err(error) => return ProtocolFault::broke(WorkerChannel::StandardOutput, error),
        };
        match hear(connection, &line) {
            Ok(ReaderStep::Message) => {}
            Ok(ReaderStep::Item(call)) => connection.room(call).await,
            Ok(ReaderStep::Log) => lines.log_line(&line),
            Err(fault) => return fault,
        }
    }
}

fn hear(connection: &StdioConnection, line: &[u8]) -> Result<ReaderStep, ProtocolFault> {
    let wrong =
        match (connection.integers().first_unreadable(line), serde_json::from_slice::<WorkerLine>(line)) {
            (None, Ok(message)) => return obey(connection, message),
            (Some(number), _) => json::too_long(number),
            (None, Err(error)) => error.to_string(),
        };
    // A line that begins like this is about a call. If it were ignored, the caller would wait forever.
    let Some(id) = named_id(line) else { return Ok(ReaderStep::Log) };
    let Some((held, _)) = connection.take(id)? else { return Ok(ReaderStep::Log) };
    let message = format!("the worker's answer cannot be read: {wrong}");
    held.finish(Err(RemoteError::new(RemoteErrorKind::BadValue, message)));
    Ok(ReaderStep::Log)
}

fn obey(connection: &StdioConnection, message: WorkerLine) -> Result<ReaderStep, ProtocolFault> {
    let WorkerLine { id, result, error, item, end, progress } = message;
    if result.is_none() && error.is_none() && item.is_none() && !end && progress.is_none() {
        return Ok(ReaderStep::Log);
    }
    if let Some(progress) = progress
        && let Some(held) = connection.state().calls.get(id)
    {
        held.call.progress(progress.fraction, progress.text);
    }
    let has_item = item.is_some_and(|item| take_item(connection, id, item));
    let outcome = match (error, result) {
        (Some(error), _) => Err(read_error(&error)),
        (None, Some(value)) => Ok(value),
        (None, None) if end => Ok(Encoded::nil()),
        (None, None) => return Ok(if has_item { ReaderStep::Item(id) } else { ReaderStep::Message }),
    };
    // An answer to a call that the worker does not hold is dropped: the call was already answered, or never sent.
    if let Some((held, service)) = connection.take(id)? {
        if let (Some(_), Ok(value), false) = (held.call.stream_credit(), &outcome, end) {
            // The result of a command that does not stream becomes the only item.
            held.call.send_item(value.clone());
        }
        held.finish_after(service, outcome);
    }
    Ok(ReaderStep::Message)
}

/// Passes on an item of a stream. Returns whether the caller asked for a stream.
fn take_item(connection: &StdioConnection, id: u64, item: Encoded) -> bool {
    let streamed = connection.state().calls.item(id, item);
    match streamed {
        ItemDelivery::Passed | ItemDelivery::OverCredit(_) => true,
        ItemDelivery::Unasked => {
            connection.cancel(id);
            false
        }
        ItemDelivery::Dropped => false,
    }
}

/// Decodes an error of a limited size.
fn read_error(error: &Encoded) -> RemoteError {
    match error.decode_within::<Json>(LONGEST_ERROR) {
        Ok(error) if error.to_string().len() <= LONGEST_ERROR => json::read_error(error),
        _ => RemoteError::new(
            RemoteErrorKind::Exception,
            format!("an error of {} bytes, which is too long", error.payload_len()),
        ),
    }
}

/// Returns the number at the beginning of `{"id": 7, …`.
fn named_id(line: &[u8]) -> Option<u64> {
    let mut rest = line.trim_ascii_start();
    for part in [&b"{"[..], b"\"id\"", b":"] {
        rest = rest.strip_prefix(part)?.trim_ascii_start();
    }
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()
}

#[cfg(any(fuzzing, test))]
pub(crate) mod fuzzing {
    use super::*;
    use crate::json::Integers;

    /// Reads the output of a worker in pieces of this size.
    pub(crate) fn lines(bytes: &[u8], size: usize, limit: usize) {
        crate::lines::cut_in_pieces(bytes, size, limit, |line| {
            let _ = (Integers::Of64Bits.first_unreadable(line), named_id(line));
            if let Ok(WorkerLine { error: Some(error), .. }) = serde_json::from_slice(line) {
                let _ = read_error(&error);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_is_found_in_what_is_no_json() {
        assert_eq!(named_id(br#"{"id":7,"result":NaN}"#), Some(7));
        assert_eq!(named_id(b" { \"id\" : 42 , \xff"), Some(42));
        assert_eq!(named_id(br#"{"result":NaN,"id":7}"#), None);
        assert_eq!(named_id(br#"{"id":"7"}"#), None);
    }
}
