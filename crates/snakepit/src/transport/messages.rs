//! What stands behind the headers: the payloads of the frames that the host sends, and of those that it reads.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::frame::Kind;
use super::outbox::Outbox;
use super::stacks::StackSignals;
use crate::adapter::Introduction;
use crate::call::{Call, Input, Portion};
use crate::telemetry::TraceContext;
use crate::value::{Builder, Encoded, ValueError, write};

/// The first thing that a worker hears.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Hello {
    pub(crate) protocol: u32,
    pub(crate) engine: &'static str,
    pub(crate) pool: String,
    pub(crate) worker: String,
    pub(crate) concurrency: usize,
    pub(crate) max_frame: usize,
}

/// The first thing that a worker says.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ReadyMessage {
    pub(crate) protocol: u32,
    pub(crate) pid: u32,
    pub(crate) signals: Signals,
    pub(crate) features: Vec<String>,
    #[serde(flatten)]
    pub(crate) introduction: Introduction,
}

/// The signals that a worker understands.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Signals {
    pub(crate) stack: Option<i32>,
    pub(crate) cancel: Option<i32>,
    pub(crate) tasks: Option<i32>,
}

impl Signals {
    /// Those at which it tells where it is.
    pub(crate) fn of_stacks(self) -> Option<StackSignals> {
        Some(StackSignals { threads: self.stack?, tasks: self.tasks })
    }
}

/// The options of a `HOST_CALL`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct HostCallOptions {
    /// The first credit: items and bytes.
    pub(crate) stream: Option<(u32, u64)>,
    /// The span that asks: `[traceparent]` or `[traceparent, tracestate]`.
    pub(crate) trace: Option<Vec<String>>,
}

impl HostCallOptions {
    /// The trace that the tool belongs to. A worker is not trusted with it: what is none is as if it was not there.
    pub(crate) fn trace(&self) -> Option<TraceContext> {
        let mut texts = self.trace.iter().flatten();
        let context = TraceContext::new(texts.next()?).ok()?;
        match texts.next() {
            Some(state) => context.clone().with_state(state).ok().or(Some(context)),
            None => Some(context),
        }
    }
}

/// A `HOST_CALL`.
pub(crate) struct HostCall {
    pub(crate) id: u64,
    pub(crate) tool: String,
    pub(crate) args: Encoded,
    pub(crate) options: HostCallOptions,
}

/// A `HOST_CALL`: with or without options.
pub(crate) fn read_host_call(payload: &Encoded, room: usize) -> Result<HostCall, ValueError> {
    type WithOptions = (u64, String, Encoded, HostCallOptions);
    if let Ok((id, tool, args, options)) = payload.decode_within::<WithOptions>(room) {
        return Ok(HostCall { id, tool, args, options });
    }
    let (id, tool, args) = payload.decode_within::<(u64, String, Encoded)>(room)?;
    Ok(HostCall { id, tool, args, options: HostCallOptions::default() })
}

/// Writes a CALL or CALLS. A call that cannot be written (its bodies together are too long) leaves no trace.
pub(crate) fn write_call(outbox: &mut Outbox, call: &Call) -> Result<(), ValueError> {
    let (kind, plain) = match &call.input {
        Input::One(args) => (Kind::Call, !args.has_bodies()),
        Input::Many(inputs) => (Kind::Calls, inputs.iter().all(|args| !args.has_bodies())),
    };
    let remaining = call.remaining();
    if plain {
        outbox.frame(kind, call.id.get(), |out| {
            write_call_head(out, call);
            match &call.input {
                Input::One(args) => out.extend_from_slice(args.head()),
                Input::Many(inputs) => {
                    write::array_header(out, inputs.len() as u32);
                    for args in inputs {
                        out.extend_from_slice(args.head());
                    }
                }
            }
            write_call_tail(out, call, remaining);
        });
        return Ok(());
    }
    let mut builder = Builder::default();
    write_call_head(&mut builder.head, call);
    match &call.input {
        Input::One(args) => builder.encoded(args)?,
        Input::Many(inputs) => {
            write::array_header(&mut builder.head, inputs.len() as u32);
            inputs.iter().try_for_each(|args| builder.encoded(args))?;
        }
    }
    write_call_tail(&mut builder.head, call, remaining);
    outbox.value_frame(kind, call.id.get(), &builder.finish());
    Ok(())
}

fn write_call_head(out: &mut Vec<u8>, call: &Call) {
    write::array_header(out, if call.extras.is_some() { 4 } else { 3 });
    write::str(out, call.command());
}

fn write_call_tail(out: &mut Vec<u8>, call: &Call, remaining: Option<Duration>) {
    match remaining {
        None => write::nil(out),
        Some(remaining) => write::uint(out, u64::try_from(remaining.as_millis()).unwrap_or(u64::MAX)),
    }
    let Some(extras) = &call.extras else { return };
    let nested = extras.chain.as_ref().and_then(|chain| chain.parent());
    let metadata = !extras.metadata.is_empty();
    let entries = [
        extras.stream.is_some(),
        extras.session.is_some(),
        metadata,
        nested.is_some(),
        extras.trace.is_some(),
        !extras.traces.is_empty(),
    ];
    write::map_header(out, entries.into_iter().map(u32::from).sum());
    if let Some(credit) = extras.stream {
        write::str(out, "stream");
        write_portion(out, credit);
    }
    if let Some(session) = &extras.session {
        write::str(out, "session");
        write::str(out, session);
    }
    if metadata {
        write::str(out, "metadata");
        write::map_header(out, extras.metadata.len() as u32);
        for (key, value) in &extras.metadata {
            write::str(out, key);
            write::str(out, value);
        }
    }
    if let Some(parent) = nested {
        write::str(out, "nested");
        write::uint(out, parent.get());
    }
    if let Some(trace) = &extras.trace {
        write::str(out, "trace");
        write_trace(out, trace);
    }
    if !extras.traces.is_empty() {
        write::str(out, "traces");
        write::array_header(out, extras.traces.len() as u32);
        for trace in &extras.traces {
            match trace {
                Some(trace) => write_trace(out, trace),
                None => write::nil(out),
            }
        }
    }
}

/// `[traceparent]` or `[traceparent, tracestate]`.
fn write_trace(out: &mut Vec<u8>, trace: &TraceContext) {
    let state = trace.tracestate();
    write::array_header(out, if state.is_some() { 2 } else { 1 });
    write::str(out, trace.traceparent());
    if let Some(state) = state {
        write::str(out, state);
    }
}

/// `[items, bytes]`, as credit is told.
pub(crate) fn write_portion(out: &mut Vec<u8>, portion: Portion) {
    write::array_header(out, 2);
    write::uint(out, portion.items.into());
    write::uint(out, portion.bytes);
}

/// `[id, value]`, as the HOST frames have it.
pub(crate) fn with_id(id: u64, value: &Encoded) -> Result<Encoded, ValueError> {
    let mut builder = Builder::default();
    write::array_header(&mut builder.head, 2);
    write::uint(&mut builder.head, id);
    builder.encoded(value)?;
    Ok(builder.finish())
}
