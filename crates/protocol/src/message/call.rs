//! CALL and CALLS: one call, or many calls of one command.

use std::time::Duration;

use super::TraceTexts;
use crate::Outbox;
use crate::frame::FrameKind;
use crate::value::{Encoded, ValueBuilder, ValueError, write};

/// A CALL or a CALLS. It borrows everything, and is written straight into the outbox.
#[derive(Clone, Copy, Debug)]
pub struct CallMessage<'a, M, T> {
    /// The name of the command.
    pub command: &'a str,
    /// The arguments, which say whether this is a CALL or a CALLS.
    pub args: &'a Input,
    /// What is left of the caller's time.
    pub remaining: Option<Duration>,
    /// What few calls have.
    pub options: Option<CallMessageOptions<'a, M, T>>,
}

/// The arguments of a call.
#[derive(Debug)]
pub enum Input {
    /// The arguments of one call.
    One(Encoded),
    /// The arguments of several calls of one command. The calls travel together, and each has its own outcome.
    Many(Vec<Encoded>),
}

/// The options of a CALL or a CALLS.
#[derive(Clone, Copy, Debug)]
pub struct CallMessageOptions<'a, M, T> {
    /// The first credit of a stream: items and bytes.
    pub stream: Option<(u32, u64)>,
    /// The id of the session.
    pub session: Option<&'a str>,
    /// The metadata: pairs of texts.
    pub metadata: M,
    /// The call that this one is a part of.
    pub nested: Option<u64>,
    /// The trace that it belongs to.
    pub trace: Option<TraceTexts<'a>>,
    /// Of CALLS only: one trace or none for each of its calls. May be empty.
    pub traces: T,
}

impl<'a, M, T> CallMessage<'a, M, T>
where
    M: Iterator<Item = (&'a str, &'a str)> + Clone,
    T: ExactSizeIterator<Item = Option<TraceTexts<'a>>>,
{
    /// Adds the frame. If that fails because the bodies of all args together are too long, the outbox is unchanged.
    #[inline]
    pub fn write(self, outbox: &mut Outbox, call: u64) -> Result<(), ValueError> {
        let (kind, args) = match self.args {
            Input::One(args) => (FrameKind::Call, std::slice::from_ref(args)),
            Input::Many(args) => (FrameKind::Calls, args.as_slice()),
        };
        if args.iter().all(|args| !args.has_bodies()) {
            outbox.frame(kind, call, |out| {
                self.write_head(out);
                for args in args {
                    out.extend_from_slice(args.head());
                }
                self.write_tail(out);
            });
            return Ok(());
        }
        let mut builder = ValueBuilder::default();
        self.write_head(&mut builder.head);
        args.iter().try_for_each(|args| builder.encoded(args))?;
        self.write_tail(&mut builder.head);
        outbox.value_frame(kind, call, &builder.finish());
        Ok(())
    }

    /// Writes what stands before the args.
    fn write_head(&self, out: &mut Vec<u8>) {
        write::array_header(out, if self.options.is_some() { 4 } else { 3 });
        write::str(out, self.command);
        if let Input::Many(args) = self.args {
            write::array_header(out, args.len() as u32);
        }
    }

    /// Writes what stands behind the args.
    fn write_tail(self, out: &mut Vec<u8>) {
        match self.remaining {
            None => write::nil(out),
            Some(remaining) => write::uint(out, u64::try_from(remaining.as_millis()).unwrap_or(u64::MAX)),
        }
        let Some(options) = self.options else { return };
        let CallMessageOptions { stream, session, metadata, nested, trace, traces } = options;
        let pairs = metadata.clone().count();
        let entries = [
            stream.is_some(),
            session.is_some(),
            pairs > 0,
            nested.is_some(),
            trace.is_some(),
            traces.len() > 0,
        ];
        write::map_header(out, entries.into_iter().map(u32::from).sum());
        write_entry(out, "stream", stream, |out, (items, bytes)| write_credit(out, items, bytes));
        write_entry(out, "session", session, write::str);
        if pairs > 0 {
            write::str(out, "metadata");
            write::map_header(out, pairs as u32);
            for (key, value) in metadata {
                write::str(out, key);
                write::str(out, value);
            }
        }
        write_entry(out, "nested", nested, write::uint);
        write_entry(out, "trace", trace, TraceTexts::write);
        if traces.len() > 0 {
            write::str(out, "traces");
            write::array_header(out, traces.len() as u32);
            for trace in traces {
                match trace {
                    Some(trace) => TraceTexts::write(out, trace),
                    None => write::nil(out),
                }
            }
        }
    }
}

fn write_entry<T>(out: &mut Vec<u8>, key: &str, value: Option<T>, write: impl FnOnce(&mut Vec<u8>, T)) {
    if let Some(value) = value {
        write::str(out, key);
        write(out, value);
    }
}

/// Writes credit as `[items, bytes]`.
pub(super) fn write_credit(out: &mut Vec<u8>, items: u32, bytes: u64) {
    write::array_header(out, 2);
    write::uint(out, items.into());
    write::uint(out, bytes);
}
