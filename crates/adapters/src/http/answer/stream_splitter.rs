//! Cuts streams into items: events of `text/event-stream`, as the HTML standard defines them, lines of
//! `application/x-ndjson`, and text and bytes as they arrive.
//!
//! Written here instead of using a crate for server-sent events: parsers such as `eventsource-stream` keep an event until it
//! is complete, however long it grows, and know none of the other formats. Here the bytes that wait are counted
//! ([`StreamSplitter::waiting`]).

use bytes::{Buf, Bytes, BytesMut};

use super::super::request::route::EventFormat;

/// The format of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StreamForm {
    Events(EventFormat),
    Lines,
    Text,
    Bytes,
}

/// An item of a stream, before it is decoded.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum StreamPiece {
    /// A value, as JSON.
    Json(Vec<u8>),
    /// The data of an event, which may be JSON.
    Data(Vec<u8>),
    /// Text, which should be UTF-8.
    Text(Bytes),
    Bytes(Bytes),
    /// An event with all its fields.
    Event(ServerEvent),
    /// The data of an event of the type `error`.
    Error(Vec<u8>),
    /// The mark that some servers send at the end.
    End,
}

/// An event of `text/event-stream`, possibly incomplete.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct ServerEvent {
    pub(crate) kind: Vec<u8>,
    pub(crate) id: Option<Vec<u8>>,
    pub(crate) data: Option<Vec<u8>>,
}

/// Assembles items from the bytes of a stream. The caller limits its size: see [`StreamSplitter::waiting`].
#[derive(Debug)]
pub(crate) struct StreamSplitter {
    form: StreamForm,
    /// The maximum length of a piece of text or bytes.
    longest: usize,
    buffer: BytesMut,
    /// The length of the part of the buffer that is known to contain no line end.
    searched: usize,
    /// Whether the last line ended with CR. An LF that follows belongs to it.
    after_cr: bool,
    /// The fields of the event so far.
    event: ServerEvent,
}

/// The byte order mark that may precede UTF-8 text.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

impl StreamSplitter {
    pub(crate) fn new(form: StreamForm, longest: usize) -> Self {
        Self {
            form,
            longest: longest.max(4),
            buffer: BytesMut::new(),
            searched: 0,
            after_cr: false,
            event: ServerEvent::default(),
        }
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the number of bytes that wait for the rest of their item.
    pub(crate) fn waiting(&self) -> usize {
        let ServerEvent { kind, id, data } = &self.event;
        let of = |part: &Option<Vec<u8>>| part.as_ref().map_or(0, Vec::len);
        self.buffer.len() + kind.len() + of(id) + of(data)
    }

    /// Returns the next complete item.
    pub(crate) fn next(&mut self) -> Option<StreamPiece> {
        match self.form {
            StreamForm::Bytes => return self.taken(self.buffer.len()).map(StreamPiece::Bytes),
            StreamForm::Text => return self.taken(whole_characters(&self.buffer)).map(StreamPiece::Text),
            StreamForm::Lines | StreamForm::Events(_) => {}
        }
        while let Some(line) = self.line() {
            let piece = match self.form {
                StreamForm::Events(events) => self.field(&line, events),
                StreamForm::Lines | StreamForm::Text | StreamForm::Bytes => Some(line.trim_ascii())
                    .filter(|line| !line.is_empty())
                    .map(|line| StreamPiece::Json(line.to_vec())),
            };
            if piece.is_some() {
                return piece;
            }
        }
        None
    }

    /// Returns the rest at the end of the stream: the last line may lack its end. An incomplete event is dropped.
    pub(crate) fn rest(&mut self) -> Option<StreamPiece> {
        let rest = std::mem::take(&mut self.buffer).freeze();
        self.searched = 0;
        match self.form {
            StreamForm::Events(_) => None,
            StreamForm::Lines => (!rest.trim_ascii().is_empty()).then(|| StreamPiece::Json(rest.to_vec())),
            // An incomplete character.
            StreamForm::Text => (!rest.is_empty()).then_some(StreamPiece::Text(rest)),
            StreamForm::Bytes => (!rest.is_empty()).then_some(StreamPiece::Bytes(rest)),
        }
    }

    /// Takes this many bytes from the buffer, or fewer if a piece may not be that long.
    fn taken(&mut self, length: usize) -> Option<Bytes> {
        let mut length = length.min(self.longest);
        if self.form == StreamForm::Text {
            length = whole_characters(&self.buffer[..length]);
        }
        (length > 0).then(|| self.buffer.split_to(length).freeze())
    }

    fn line(&mut self) -> Option<BytesMut> {
        if self.after_cr && !self.buffer.is_empty() {
            self.after_cr = false;
            if self.buffer[0] == b'\n' {
                self.buffer.advance(1);
            }
        }
        let is_event = matches!(self.form, StreamForm::Events(_));
        let ends = |&byte: &u8| byte == b'\n' || byte == b'\r' && is_event;
        let Some(end) = self.buffer[self.searched..].iter().position(ends) else {
            self.searched = self.buffer.len();
            return None;
        };
        let line = self.buffer.split_to(self.searched + end);
        self.after_cr = self.buffer[0] == b'\r';
        self.buffer.advance(1);
        self.searched = 0;
        Some(line)
    }

    /// Handles a line of an event. An empty line ends the event.
    fn field(&mut self, line: &[u8], events: EventFormat) -> Option<StreamPiece> {
        if line.is_empty() {
            return finished(std::mem::take(&mut self.event), events);
        }
        let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        let colon = line.iter().position(|&byte| byte == b':').unwrap_or(line.len());
        let (name, value) = line.split_at(colon);
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => match &mut self.event.data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                none => *none = Some(value.to_vec()),
            },
            b"event" => self.event.kind = value.to_vec(),
            b"id" => self.event.id = Some(value.to_vec()),
            // A comment or an unknown field.
            _ => {}
        }
        None
    }
}

/// Returns the item that a complete event stands for.
fn finished(event: ServerEvent, events: EventFormat) -> Option<StreamPiece> {
    let has_data = event.data.as_ref().is_some_and(|data| !data.is_empty());
    if events == EventFormat::Full {
        return has_data.then_some(StreamPiece::Event(event));
    }
    let data = event.data.unwrap_or_default();
    match (event.kind.as_slice(), data.as_slice()) {
        (b"error", _) => Some(StreamPiece::Error(data)),
        // An event without data is a keep-alive, or only its type matters.
        (_, b"") => None,
        (_, b"[DONE]") => Some(StreamPiece::End),
        _ if events == EventFormat::Text => Some(StreamPiece::Text(data.into())),
        _ => Some(StreamPiece::Data(data)),
    }
}

/// Returns the length of these bytes without an incomplete last character.
fn whole_characters(bytes: &[u8]) -> usize {
    // A character has at most four bytes. If none of the last four bytes begins one, the text is invalid.
    let first = bytes.iter().rev().take(4).position(|byte| byte & 0b1100_0000 != 0b1000_0000);
    let Some(behind) = first else { return bytes.len() };
    let at = bytes.len() - 1 - behind;
    let length = match bytes[at] {
        0b1100_0000..=0b1101_1111 => 2,
        0b1110_0000..=0b1110_1111 => 3,
        0b1111_0000..=0b1111_0111 => 4,
        _ => 1,
    };
    if at + length > bytes.len() { at } else { bytes.len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUES: StreamForm = StreamForm::Events(EventFormat::Values);

    fn cut(form: StreamForm, text: &str) -> Vec<String> {
        [1, 7, text.len()]
            .map(|size| cut_by(form, text, size))
            .into_iter()
            .reduce(|one, other| {
                assert_eq!(one, other);
                one
            })
            .expect("pieces")
    }

    fn cut_by(form: StreamForm, text: &str, size: usize) -> Vec<String> {
        let mut pieces = StreamSplitter::new(form, 1000);
        let mut found = Vec::new();
        for bytes in text.as_bytes().chunks(size) {
            pieces.feed(bytes);
            while let Some(piece) = pieces.next() {
                found.push(piece);
            }
        }
        found.extend(pieces.rest());
        let text = |data: Vec<u8>| String::from_utf8(data).expect("text");
        let shown = |piece| match piece {
            StreamPiece::Json(data) | StreamPiece::Data(data) => text(data),
            StreamPiece::Text(data) | StreamPiece::Bytes(data) => text(data.to_vec()),
            StreamPiece::Error(data) => format!("error {}", text(data)),
            StreamPiece::Event(ServerEvent { kind, id, data }) => {
                format!("{}/{}/{}", text(kind), id.map_or("-".into(), text), text(data.unwrap_or_default()))
            }
            StreamPiece::End => "end".into(),
        };
        found.into_iter().map(shown).collect()
    }

    #[test]
    fn events_are_put_together_from_their_lines() {
        let text = ": hello\r\n\r\ndata: 1\r\n\r\nid: 7\ndata: [1,\ndata:2]\n\nevent: error\ndata: no\n\nevent: x\n\ndata: [DONE]\n\ndata: cut";
        assert_eq!(cut(VALUES, text), ["1", "[1,\n2]", "error no", "end"]);
    }

    #[test]
    fn events_end_their_lines_in_any_way_and_those_without_data_are_none() {
        assert_eq!(cut(VALUES, "\u{feff}data: 1\r\rdata: 2\r\n\r\n\rdata: 3\n\r"), ["1", "2", "3"]);
        assert_eq!(cut(VALUES, "data\n\ndata:\n\nevent: ping\ndata: \n\ndata: 1\n\n"), ["1"]);
        assert_eq!(cut(VALUES, "event: error\n\ndata: 1\n\n"), ["error ", "1"]);
    }

    #[test]
    fn lines_are_items() {
        assert_eq!(cut(StreamForm::Lines, "1\n\n{\"a\":2}\r\n3"), ["1", "{\"a\":2}", "3"]);
    }

    #[test]
    fn events_come_whole_if_that_is_asked_for() {
        let text =
            "event: tick\nid: 7\ndata: [DONE]\n\nevent: error\ndata: no\n\nid\ndata: 1\n\nevent: ping\n\n";
        assert_eq!(cut(StreamForm::Events(EventFormat::Full), text), ["tick/7/[DONE]", "error/-/no", "//1"]);
        assert_eq!(cut(StreamForm::Events(EventFormat::Text), "data: 1\n\ndata:  two\n\n"), ["1", " two"]);
    }

    #[test]
    fn texts_are_never_cut_within_a_character() {
        let text = "aä€😀".repeat(20);
        for size in 1..9 {
            let mut pieces = StreamSplitter::new(StreamForm::Text, 5);
            let mut found = Vec::new();
            for bytes in text.as_bytes().chunks(size) {
                pieces.feed(bytes);
                while let Some(StreamPiece::Text(piece)) = pieces.next() {
                    assert!(piece.len() <= 5);
                    found.push(String::from_utf8(piece.to_vec()).expect("whole characters"));
                }
            }
            assert_eq!((found.concat(), pieces.rest()), (text.clone(), None));
        }
        let mut pieces = StreamSplitter::new(StreamForm::Text, 100);
        pieces.feed(&"a€".as_bytes()[..3]);
        assert_eq!(pieces.next(), Some(StreamPiece::Text("a".into())));
        assert_eq!(pieces.next(), None);
        assert!(pieces.rest().is_some(), "what is cut off is not lost");
    }

    #[test]
    fn bytes_come_in_pieces_of_a_bounded_size() {
        let mut pieces = StreamSplitter::new(StreamForm::Bytes, 4);
        pieces.feed(&[0; 10]);
        let sizes: Vec<usize> = std::iter::from_fn(|| pieces.next())
            .map(|piece| if let StreamPiece::Bytes(bytes) = piece { bytes.len() } else { 0 })
            .collect();
        assert_eq!((sizes, pieces.rest()), (vec![4, 4, 2], None));
    }
}
