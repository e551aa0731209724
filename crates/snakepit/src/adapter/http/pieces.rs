//! Streams cut into items: events of `text/event-stream`, as the HTML standard has them, or lines of `application/x-ndjson`.

use bytes::{Buf, BytesMut};

/// How a stream is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    Events,
    Lines,
}

/// A part of a stream.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Piece {
    /// An item, as JSON.
    Item(Vec<u8>),
    /// An event of the type `error`, with what it says.
    Error(Vec<u8>),
    /// The mark that some servers put at the end.
    End,
}

/// Puts items together from what comes. Bounded by whoever feeds it: see [`Pieces::waiting`].
#[derive(Debug)]
pub(super) struct Pieces {
    form: Form,
    buffer: BytesMut,
    /// How much of the buffer is known to hold no end of a line.
    searched: usize,
    /// The last line ended with CR, and the LF that may follow belongs to it.
    after_cr: bool,
    /// What the lines of the event have said so far.
    data: Option<Vec<u8>>,
    is_error: bool,
}

/// What some put before a text in UTF-8.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

impl Pieces {
    pub(super) fn new(form: Form) -> Self {
        Self { form, buffer: BytesMut::new(), searched: 0, after_cr: false, data: None, is_error: false }
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// How many bytes wait for the rest of their item.
    pub(super) fn waiting(&self) -> usize {
        self.buffer.len() + self.data.as_ref().map_or(0, Vec::len)
    }

    /// The next one that is complete.
    pub(super) fn next(&mut self) -> Option<Piece> {
        while let Some(line) = self.line() {
            let piece = match self.form {
                Form::Lines => Some(line.trim_ascii())
                    .filter(|line| !line.is_empty())
                    .map(|line| Piece::Item(line.to_vec())),
                Form::Events => self.field(&line),
            };
            if piece.is_some() {
                return piece;
            }
        }
        None
    }

    /// What is left when the stream is over: the last line may have no end. An event without its end does not count.
    pub(super) fn rest(&mut self) -> Option<Piece> {
        let rest = std::mem::take(&mut self.buffer);
        self.searched = 0;
        (self.form == Form::Lines && !rest.trim_ascii().is_empty()).then(|| Piece::Item(rest.to_vec()))
    }

    fn line(&mut self) -> Option<BytesMut> {
        if self.after_cr && !self.buffer.is_empty() {
            self.after_cr = false;
            if self.buffer[0] == b'\n' {
                self.buffer.advance(1);
            }
        }
        let ends = |&byte: &u8| byte == b'\n' || byte == b'\r' && self.form == Form::Events;
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

    /// A line of an event; an empty one ends it.
    fn field(&mut self, line: &[u8]) -> Option<Piece> {
        if line.is_empty() {
            let is_error = std::mem::take(&mut self.is_error);
            let data = self.data.take().unwrap_or_default();
            return match (is_error, data.as_slice()) {
                (true, _) => Some(Piece::Error(data)),
                // One without data is a sign of life, or of a type of its own.
                (false, b"") => None,
                (false, b"[DONE]") => Some(Piece::End),
                (false, _) => Some(Piece::Item(data)),
            };
        }
        let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        let colon = line.iter().position(|&byte| byte == b':').unwrap_or(line.len());
        let (name, value) = line.split_at(colon);
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => match &mut self.data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                none => *none = Some(value.to_vec()),
            },
            b"event" => self.is_error = value == b"error",
            // A comment, an id, or what is not known.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(form: Form, text: &str) -> Vec<String> {
        [1, 7, text.len()]
            .map(|size| cut_by(form, text, size))
            .into_iter()
            .reduce(|one, other| {
                assert_eq!(one, other);
                one
            })
            .expect("pieces")
    }

    fn cut_by(form: Form, text: &str, size: usize) -> Vec<String> {
        let mut pieces = Pieces::new(form);
        let mut found = Vec::new();
        for bytes in text.as_bytes().chunks(size) {
            pieces.feed(bytes);
            while let Some(piece) = pieces.next() {
                found.push(piece);
            }
        }
        found.extend(pieces.rest());
        let shown = |piece| match piece {
            Piece::Item(data) => String::from_utf8(data).expect("text"),
            Piece::Error(data) => format!("error {}", String::from_utf8(data).expect("text")),
            Piece::End => "end".into(),
        };
        found.into_iter().map(shown).collect()
    }

    #[test]
    fn events_are_put_together_from_their_lines() {
        let text = ": hello\r\n\r\ndata: 1\r\n\r\nid: 7\ndata: [1,\ndata:2]\n\nevent: error\ndata: no\n\nevent: x\n\ndata: [DONE]\n\ndata: cut";
        assert_eq!(cut(Form::Events, text), ["1", "[1,\n2]", "error no", "end"]);
    }

    #[test]
    fn events_end_their_lines_in_any_way_and_those_without_data_are_none() {
        assert_eq!(cut(Form::Events, "\u{feff}data: 1\r\rdata: 2\r\n\r\n\rdata: 3\n\r"), ["1", "2", "3"]);
        assert_eq!(cut(Form::Events, "data\n\ndata:\n\nevent: ping\ndata: \n\ndata: 1\n\n"), ["1"]);
        assert_eq!(cut(Form::Events, "event: error\n\ndata: 1\n\n"), ["error ", "1"]);
    }

    #[test]
    fn lines_are_items() {
        assert_eq!(cut(Form::Lines, "1\n\n{\"a\":2}\r\n3"), ["1", "{\"a\":2}", "3"]);
    }
}
