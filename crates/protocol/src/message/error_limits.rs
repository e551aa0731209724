//! Reads the errors of workers, and cuts them to a size that a host can keep and show.

use super::{RemoteError, RemoteErrorKind};
use crate::value::Encoded;

/// The memory that a decoded error may take, in bytes.
const MEMORY: usize = 16 << 20;
/// The number of bytes that are kept of one text.
const TEXT: usize = 64 * 1024;
/// The number of bytes that are kept of all texts of an error and its causes.
const ALL_TEXTS: usize = 256 * 1024;
/// The number of notes, and of names, that are kept.
const ENTRIES: usize = 100;

impl RemoteError {
    /// Decodes the error that a worker sent, or returns an error that says why it cannot be read.
    pub fn read(error: &Encoded) -> Self {
        let unreadable = |why| {
            let message = format!("the worker failed, with an error that cannot be read: {why}");
            Self::new(RemoteErrorKind::BadPayload, message)
        };
        error.decode_within::<Self>(MEMORY).map_or_else(unreadable, Self::bounded)
    }

    /// Cuts the texts of the error and its causes to their limits.
    pub fn bounded(mut self) -> Self {
        let mut left = ALL_TEXTS;
        let mut next = Some(&mut self);
        while let Some(error) = next {
            error.cut_texts(&mut left);
            next = error.cause.as_deref_mut();
        }
        self
    }

    fn cut_texts(&mut self, left: &mut usize) {
        if let RemoteErrorKind::Other(kind) = &mut self.kind {
            cut(kind, left);
        }
        cut(&mut self.message, left);
        let optional = [&mut self.type_name, &mut self.parameter, &mut self.path, &mut self.traceback]
            .into_iter()
            .flatten();
        optional.for_each(|text| cut(text, left));
        for texts in [&mut self.notes, &mut self.nearest] {
            texts.truncate(ENTRIES);
            texts.shrink_to_fit();
            for text in texts.iter_mut() {
                cut(text, left);
            }
        }
    }
}

/// Keeps both ends of a text that is too long, because the last lines of a traceback say most.
fn cut(text: &mut String, left: &mut usize) {
    let room = TEXT.min(*left);
    if text.len() > room {
        let head = text.floor_char_boundary(room / 2);
        let tail = text.ceil_char_boundary(text.len() - room / 2);
        *text = format!("{}… ({} bytes left out) …{}", &text[..head], tail - head, &text[tail..]);
    }
    *left = left.saturating_sub(text.len());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::PayloadLayout;

    #[test]
    fn a_long_text_keeps_its_start_and_its_end() {
        let traceback = format!("first {} last", "ä".repeat(1 << 20));
        let error =
            RemoteError { traceback: Some(traceback), ..RemoteError::new(RemoteErrorKind::Exception, "no") };
        let read = RemoteError::read(&Encoded::encode(&error).expect("an error"));
        let traceback = read.traceback.expect("a traceback");
        assert!(traceback.starts_with("first ä") && traceback.ends_with("ä last"), "{}", traceback.len());
        assert!(traceback.len() < TEXT + 100 && traceback.contains("bytes left out"), "{}", traceback.len());
        assert_eq!((read.kind.as_str(), read.message.as_str()), ("exception", "no"));
    }

    #[test]
    fn an_error_with_causes_and_notes_without_end_is_bounded() {
        let text = "x".repeat(TEXT);
        let one = RemoteError {
            notes: vec![text.clone(); 200],
            ..RemoteError::new(RemoteErrorKind::Exception, &text)
        };
        let mut error = one.clone();
        for _ in 0..50 {
            error = RemoteError { cause: Some(Box::new(error)), ..one.clone() };
        }
        let error = error.bounded();
        let texts = error
            .chain()
            .map(|error| error.message.len() + error.notes.iter().map(String::len).sum::<usize>());
        let all: usize = texts.sum();
        assert!(all < ALL_TEXTS + 51 * 101 * 64, "{all}");
        assert_eq!(error.notes.len(), ENTRIES);
    }

    #[test]
    fn an_error_that_costs_too_much_says_so() {
        // Each byte of the list is a note, and each note becomes a `String`.
        let mut bytes = b"\x82\xa4kind\xa1x\xa5notes\xdd".to_vec();
        bytes.extend((2u32 << 20).to_be_bytes());
        bytes.resize(bytes.len() + (2 << 20), 0xa0);
        let error =
            RemoteError::read(&Encoded::from_payload(bytes.into(), PayloadLayout::Plain).expect("a payload"));
        assert_eq!(error.kind, RemoteErrorKind::BadPayload);
        assert!(error.message.contains("too much memory"), "{error}");
    }
}
