//! What a worker says, line by line. It is believed in nothing that costs the host.
//!
//! A line is for itself: one that cannot be read fails the call that it names and no other.

use serde::Deserialize;
use serde_json::Value as Json;

use super::dialogue::Dialogue;
use crate::adapter::json;
use crate::adapter::lines::{Line, LineReader};
use crate::call::RemoteError;
use crate::value::Encoded;

/// What an error may take once it is decoded.
const LONGEST_ERROR: usize = 1 << 20;

/// A line of a worker.
#[derive(Deserialize)]
struct Message {
    id: u64,
    #[serde(default, deserialize_with = "json::present")]
    result: Option<Encoded>,
    #[serde(default, deserialize_with = "json::present")]
    error: Option<Encoded>,
    #[serde(default, deserialize_with = "json::present")]
    item: Option<Encoded>,
    #[serde(default)]
    end: bool,
    progress: Option<Progress>,
}

#[derive(Deserialize)]
struct Progress {
    fraction: Option<f64>,
    text: Option<String>,
}

/// What comes of a line.
#[derive(PartialEq, Eq, Debug)]
enum Heard {
    Message,
    /// An item of a call that may have no more before somebody reads.
    Item(u64),
    Log,
}

/// Reads until the end, and says why it is the end.
pub(super) async fn read(dialogue: &Dialogue, lines: &mut LineReader) -> String {
    loop {
        let line = match lines.next().await {
            Ok(Line::Object(line)) => line,
            Ok(Line::TooLong) => return "it sent a line that is longer than max_frame".into(),
            Ok(Line::End) => return "it closed its standard output".into(),
            Err(error) => return format!("its standard output broke: {error}"),
        };
        match hear(dialogue, &line) {
            Ok(Heard::Message) => {}
            Ok(Heard::Item(call)) => dialogue.room(call).await,
            Ok(Heard::Log) => lines.log_line(&line),
            Err(fault) => return fault,
        }
    }
}

fn hear(dialogue: &Dialogue, line: &[u8]) -> Result<Heard, String> {
    let wrong = match (dialogue.integers().first_unreadable(line), serde_json::from_slice::<Message>(line)) {
        (None, Ok(message)) => return obey(dialogue, message),
        (Some(number), _) => json::too_long(number),
        (None, Err(error)) => error.to_string(),
    };
    // Whoever begins a line so means a call; without this its caller would wait in vain.
    let Some(id) = named_id(line) else { return Ok(Heard::Log) };
    let Some(held) = dialogue.take(id)? else { return Ok(Heard::Log) };
    let message = format!("the worker's answer cannot be read: {wrong}");
    held.call.finish(Err(RemoteError::new("bad_value", message)));
    Ok(Heard::Log)
}

fn obey(dialogue: &Dialogue, message: Message) -> Result<Heard, String> {
    let Message { id, result, error, item, end, progress } = message;
    if result.is_none() && error.is_none() && item.is_none() && !end && progress.is_none() {
        return Ok(Heard::Log);
    }
    if let Some(progress) = progress
        && let Some(held) = dialogue.state().calls.get(&id)
    {
        held.call.progress(progress.fraction, progress.text);
    }
    let has_item = item.is_some_and(|item| take_item(dialogue, id, item));
    let outcome = match (error, result) {
        (Some(error), _) => Err(read_error(&error)),
        (None, Some(value)) => Ok(value),
        (None, None) if end => Ok(Encoded::nil()),
        (None, None) => return Ok(if has_item { Heard::Item(id) } else { Heard::Message }),
    };
    // An answer to a call that it does not hold (any more) is dropped: it was answered, or never asked.
    if let Some(held) = dialogue.take(id)? {
        if held.streams_unasked {
            let error = RemoteError::streaming(held.call.command());
            held.call.finish(Err(error));
            return Ok(Heard::Message);
        }
        if let (Some(_), Ok(value), false) = (held.call.stream_credit(), &outcome, end) {
            // A command that does not stream has one value.
            held.call.send_item(value.clone());
        }
        held.call.finish_after(held.sent.elapsed(), outcome);
    }
    Ok(Heard::Message)
}

/// Hands on an item of a stream; whether it was one that somebody asked for.
fn take_item(dialogue: &Dialogue, id: u64, item: Encoded) -> bool {
    let mut state = dialogue.state();
    let Some(held) = state.calls.get_mut(&id) else { return false };
    if held.call.stream_credit().is_some() {
        held.ahead.add_item(item.payload_len());
        held.call.send_item(item);
        return true;
    }
    // The caller's mistake costs this call alone.
    if !std::mem::replace(&mut held.streams_unasked, true) {
        let call = held.call.id();
        drop(state);
        dialogue.cancel(call);
    }
    false
}

/// An error, which has little to say.
fn read_error(error: &Encoded) -> RemoteError {
    match error.decode_within::<Json>(LONGEST_ERROR) {
        Ok(error) if error.to_string().len() <= LONGEST_ERROR => json::read_error(error),
        _ => RemoteError::new(
            "exception",
            format!("an error of {} bytes, which is too long", error.payload_len()),
        ),
    }
}

/// The number at the beginning of `{"id": 7, …`.
fn named_id(line: &[u8]) -> Option<u64> {
    let mut rest = line.trim_ascii_start();
    for part in [&b"{"[..], b"\"id\"", b":"] {
        rest = rest.strip_prefix(part)?.trim_ascii_start();
    }
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()
}

#[cfg(any(fuzzing, test))]
pub(in crate::adapter) mod fuzzing {
    use super::*;
    use crate::adapter::json::Integers;

    /// Reads what a worker prints, in pieces of this size.
    pub(crate) fn lines(bytes: &[u8], size: usize, limit: usize) {
        crate::adapter::lines::cut_in_pieces(bytes, size, limit, |line| {
            let _ = (Integers::Of64Bits.first_unreadable(line), named_id(line));
            if let Ok(Message { error: Some(error), .. }) = serde_json::from_slice(line) {
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
