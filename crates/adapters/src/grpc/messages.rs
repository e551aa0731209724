//! The messages of `spec/snakepit.proto`, and their conversions from and to calls, values and errors.

use bytes::Bytes;
use tonic::{Code, Status};

use crate::call::{Call, CallId, Input, RemoteError, RemoteErrorKind};
use crate::json::{self, Integers};
use crate::telemetry::TraceContext;
use crate::transport::read_trace;
use crate::value::{Encoded, PayloadLayout, ValueError};
use snakepit_protocol::message::TraceTexts;

mod compiled {
    #![expect(
        clippy::large_enum_variant,
        clippy::pedantic,
        unreachable_pub,
        reason = "the compiler of the messages writes it"
    )]
    include!(concat!(env!("OUT_DIR"), "/snakepit.v1.rs"));
}

pub(super) use compiled::{
    CallReply, CallRequest, Cancel, Encoding, End, Error, FromHost, FromWorker, HelloReply, HelloRequest,
    ToolAnswer, ToolCall, Value, call_reply, from_host, from_worker, tool_answer,
};

/// The version of the protocol.
pub(super) const PROTOCOL: u32 = 1;

/// The maximum number of causes of an error. A worker could nest them without end.
const MAX_CAUSES: usize = 32;

/// How values are sent to a worker.
#[derive(Clone, Copy, Debug)]
pub(super) struct ValueFormat {
    pub(super) encoding: Encoding,
    /// The range of integers in JSON.
    pub(super) integers: Integers,
}

impl Value {
    /// Encodes a value in the worker's format.
    pub(super) fn new(value: &Encoded, format: ValueFormat) -> Result<Self, ValueError> {
        let data = match format.encoding {
            Encoding::Msgpack => value.inlined()?,
            Encoding::Json => {
                let mut text = Vec::new();
                json::write(&mut text, &value.to_value()?, format.integers)?;
                text.into()
            }
        };
        Ok(Self { data, encoding: format.encoding.into() })
    }

    /// Decodes a value in the encoding that it names.
    pub(super) fn read(self, integers: Integers) -> Result<Encoded, ValueError> {
        match Encoding::try_from(self.encoding) {
            Ok(Encoding::Msgpack) => Encoded::from_payload(self.data, PayloadLayout::Plain),
            Ok(Encoding::Json) => json::read(&self.data, integers).map_err(ValueError::malformed),
            Err(_) => Err(ValueError::malformed(format!("its encoding {} is unknown", self.encoding))),
        }
    }
}

/// Returns the request of a call.
pub(super) fn request(call: &Call, format: ValueFormat) -> Result<CallRequest, ValueError> {
    let args = match call.input() {
        Input::One(args) => Value::new(args, format)?,
        Input::Many(_) => {
            return Err(ValueError::unsendable("many calls at a time cannot be sent over gRPC"));
        }
    };
    let trace = call.trace();
    Ok(CallRequest {
        call: call.id().get(),
        command: call.command().to_owned(),
        args: Some(args),
        session: call.session().map(Into::into),
        metadata: call.metadata().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        nested: call.chain().and_then(|chain| chain.parent()).map(CallId::get),
        traceparent: trace.map(|trace| trace.traceparent().to_owned()),
        tracestate: trace.and_then(TraceContext::tracestate).map(Into::into),
    })
}

impl ToolCall {
    /// Returns the trace that the tool call belongs to.
    pub(super) fn trace(&self) -> Option<TraceContext> {
        read_trace(TraceTexts { parent: self.traceparent.as_deref()?, state: self.tracestate.as_deref() })
    }
}

impl From<Error> for RemoteError {
    fn from(error: Error) -> Self {
        let mut errors = Vec::new();
        let mut next = Some(error);
        while let Some(mut error) = next.filter(|_| errors.len() <= MAX_CAUSES) {
            next = error.cause.take().map(|cause| *cause);
            errors.push(error);
        }
        let mut cause = None;
        for error in errors.into_iter().rev() {
            let mut read = Self::new(error.kind, error.message);
            read.type_name = error.r#type;
            read.traceback = error.traceback;
            read.cause = cause;
            read.notes = error.notes;
            read.nearest = error.nearest;
            read.parameter = error.parameter;
            read.path = error.path;
            cause = Some(Box::new(read));
        }
        cause.map_or_else(Self::default, |error| error.bounded())
    }
}

impl From<&RemoteError> for Error {
    fn from(error: &RemoteError) -> Self {
        Self {
            kind: error.kind.as_str().to_owned(),
            r#type: error.type_name.clone(),
            message: error.message.clone(),
            traceback: error.traceback.clone(),
            cause: error.cause.as_ref().map(|cause| Box::new((&**cause).into())),
            notes: error.notes.clone(),
            nearest: error.nearest.clone(),
            parameter: error.parameter.clone(),
            path: error.path.clone(),
        }
    }
}

/// Returns the error of an RPC that the worker failed with a gRPC status.
pub(super) fn refusal(status: &Status) -> RemoteError {
    let kind = match status.code() {
        Code::InvalidArgument => RemoteErrorKind::BadArgument,
        Code::NotFound => RemoteErrorKind::UnknownCommand,
        Code::Cancelled => RemoteErrorKind::Cancelled,
        Code::DeadlineExceeded => RemoteErrorKind::Deadline,
        Code::Unimplemented | Code::Unauthenticated | Code::PermissionDenied | Code::ResourceExhausted => {
            RemoteErrorKind::Refused
        }
        _ => RemoteErrorKind::Exception,
    };
    let code = format!("{:?}", status.code());
    RemoteError::new(kind, status.message()).type_name(format!("grpc.{code}")).bounded()
}

/// Returns the error for a reply that cannot be decoded.
pub(super) fn unreadable(error: &ValueError) -> RemoteError {
    RemoteError::new(RemoteErrorKind::BadPayload, format!("the worker's answer cannot be read: {error}"))
}

/// The messages of gRPC's health service.
pub(super) mod health {
    /// A request for the health of a service. The empty name stands for the server.
    #[derive(Clone, PartialEq, Eq, prost::Message)]
    pub(crate) struct Request {
        #[prost(string, tag = "1")]
        pub(crate) service: String,
    }

    /// The health of the service.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
    pub(crate) struct Response {
        #[prost(int32, tag = "1")]
        pub(crate) status: i32,
    }

    /// The status `SERVING`.
    pub(crate) const SERVING: i32 = 1;
}

/// Returns the length of a value in bytes.
pub(super) fn len(value: Option<&Value>) -> usize {
    value.map_or(0, |value| Bytes::len(&value.data))
}
