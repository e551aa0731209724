//! Each message against the frames of the specification.

use std::iter;
use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::Outbox;
use crate::frame::{FrameKind, HEADER, Header};
use crate::value::tests::vectors::{hex, vectors};
use crate::value::{BODY_THRESHOLD, Blob, Encoded, PayloadLayout, Value};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Returns the bytes of a frame of the specification.
fn vector(name: &str) -> Vec<u8> {
    let all = vectors("frames.json");
    let vector = all.iter().find(|vector| vector["name"] == name).unwrap_or_else(|| panic!("no {name}"));
    hex(&vector["hex"])
}

fn written(write: impl FnOnce(&mut Outbox)) -> Vec<u8> {
    let mut outbox = Outbox::default();
    write(&mut outbox);
    outbox.write_with(|pieces| pieces.iter().flat_map(|piece| piece.to_vec()).collect())
}

fn decoded(frame: &[u8]) -> Option<WorkerMessage> {
    let header = Header::peek(frame, 1 << 20).expect("a header").expect("a whole header");
    let payload = Encoded::from_payload(Bytes::copy_from_slice(&frame[HEADER..]), header.has_bodies.into());
    WorkerMessage::decode(header.kind, payload.expect("a payload")).expect("a message")
}

/// Decodes a frame of the specification.
fn message(name: &str) -> WorkerMessage {
    decoded(&vector(name)).unwrap_or_else(|| panic!("{name} is a message of the host"))
}

/// Decodes a payload that is no frame of the specification.
fn message_of(kind: FrameKind, payload: &impl serde::Serialize) -> Option<WorkerMessage> {
    let payload = Encoded::encode(payload).expect("a payload");
    decoded(&written(|outbox| outbox.value_frame(kind, 1, &payload)))
}

fn args<T: serde::Serialize>(args: T) -> Encoded {
    Encoded::encode(&args).expect("args")
}

fn map<'a>(entries: impl IntoIterator<Item = (&'a str, i32)>) -> Encoded {
    args(Value::from(entries.into_iter().collect::<crate::value::Map>()))
}

type NoPairs = iter::Empty<(&'static str, &'static str)>;
type NoTraces = iter::Empty<Option<TraceTexts<'static>>>;
/// Two args with bodies, as they are sent.
type SentCalls = (String, ((u32, Blob), (Blob,)), Option<u64>);

const NO_OPTIONS: CallMessageOptions<'_, NoPairs, NoTraces> = CallMessageOptions {
    stream: None,
    session: None,
    metadata: iter::empty(),
    nested: None,
    trace: None,
    traces: iter::empty(),
};

fn plain(args: &Input) -> CallMessage<'_, NoPairs, NoTraces> {
    CallMessage { command: "add", args, remaining: None, options: None }
}

fn one_and_two() -> Input {
    Input::One(args([1, 2]))
}

fn two_calls() -> Input {
    Input::Many(vec![args([1, 2]), args([3, 4])])
}

fn sent<'a, M, T>(message: CallMessage<'a, M, T>, call: u64) -> Vec<u8>
where
    M: Iterator<Item = (&'a str, &'a str)> + Clone,
    T: ExactSizeIterator<Item = Option<TraceTexts<'a>>>,
{
    written(|outbox| message.write(outbox, call).expect("a call"))
}

#[test]
fn a_hello_is_its_vector() {
    let hello = Hello {
        protocol: 1,
        engine: "snakepit 0.1.0",
        pool: "math",
        worker: "math-1",
        concurrency: 1,
        max_frame: 64 << 20,
        features: &[],
    };
    assert_eq!(written(|outbox| hello.write(outbox).expect("a hello")), vector("HELLO"));
}

#[test]
fn a_ready_is_read_from_its_vector() {
    let WorkerMessage::Ready(ready) = message("READY") else { panic!("a READY") };
    assert_eq!((ready.protocol, ready.pid), (1, 1234));
    assert_eq!((ready.sdk.as_str(), ready.language.as_str()), ("0.1.0", "python 3.11.2"));
    assert_eq!(
        (ready.commands.as_slice(), ready.features.as_slice()),
        (["add", "count"].map(String::from).as_slice(), ["slate"].map(String::from).as_slice())
    );
    assert_eq!(ready.signals, Signals { stack: Some(44), cancel: Some(45), tasks: None });
    assert!(ready.batches.is_empty());
}

#[test]
fn a_ready_may_name_batches_and_keys_that_are_unknown() {
    let ready = serde_json::json!({"protocol": 1, "color": {"a": [1]}, "batches": {"embed": {"size": 8, "window_us": 500}, "sum": {"size": 2}}});
    let Some(WorkerMessage::Ready(ready)) = message_of(FrameKind::Ready, &ready) else { panic!("a READY") };
    assert_eq!(ready.batches["embed"], Batching { size: 8, window_us: 500 });
    assert_eq!(ready.batches["sum"], Batching { size: 2, window_us: 0 });
}

#[test]
fn calls_without_options_are_their_vectors() {
    let by_name = Input::One(map([("a", 1), ("b", 2)]));
    let call = CallMessage { remaining: Some(Duration::from_secs(1)), ..plain(&by_name) };
    assert_eq!(sent(call, 7), vector("CALL by name"));
    assert_eq!(sent(plain(&one_and_two()), 1 << 63), vector("CALL by position, no deadline"));
    assert_eq!(sent(plain(&two_calls()), 10), vector("CALLS"));
}

#[test]
fn calls_with_options_are_their_vectors() {
    let options = CallMessageOptions {
        stream: Some((256, 1 << 20)),
        session: Some("s-1"),
        metadata: iter::once(("user", "ann")),
        nested: Some(6),
        trace: None,
        traces: NoTraces::default(),
    };
    let count = Input::One(map([("n", 5)]));
    let call = CallMessage { command: "count", args: &count, remaining: None, options: Some(options) };
    assert_eq!(sent(call, 8), vector("CALL with several options"));

    let trace = Some(TraceTexts { parent: PARENT, state: Some("vendor=1") });
    let options = Some(CallMessageOptions { trace, ..NO_OPTIONS });
    assert_eq!(sent(CallMessage { options, ..plain(&one_and_two()) }, 8), vector("CALL with a trace"));
}

#[test]
fn calls_with_traces_are_their_vector() {
    let options = CallMessageOptions {
        stream: None,
        session: None,
        metadata: NoPairs::default(),
        nested: None,
        trace: None,
        traces: [Some(TraceTexts { parent: PARENT, state: None }), None].into_iter(),
    };
    let args = two_calls();
    let calls = CallMessage { command: "add", args: &args, remaining: None, options: Some(options) };
    assert_eq!(sent(calls, 9), vector("CALLS with traces of their own"));
}

#[test]
fn calls_with_bodies_are_read_as_they_were_written() {
    let payload = |frame: &[u8]| {
        let payload = Bytes::copy_from_slice(&frame[HEADER..]);
        Encoded::from_payload(payload, PayloadLayout::WithBodies).expect("a payload")
    };
    let frame = vector("CALL with bodies");
    let (command, input, _): (String, Encoded, Option<u64>) = payload(&frame).decode().expect("a call");
    let input = Input::One(input);
    assert_eq!(sent(CallMessage { command: &command, ..plain(&input) }, 9), frame);

    let long = Blob::from(vec![7; BODY_THRESHOLD]);
    let many = Input::Many(vec![args((1, &long)), args((&long,))]);
    let frame = sent(plain(&many), 1);
    let (_, ((one, first), (second,)), _): SentCalls = payload(&frame).decode().expect("calls");
    assert_eq!((one, &first, &second), (1, &long, &long));
}

#[test]
fn the_short_messages_of_a_host_are_their_vectors() {
    for (name, call, message) in [
        ("CREDIT", 8, HostMessage::Credit(16, 65536)),
        ("CANCEL stage 1", 8, HostMessage::Cancel(1)),
        ("CANCEL stage 2", 8, HostMessage::Cancel(2)),
        ("DRAIN", 0, HostMessage::Drain),
        ("FAULT", 0, HostMessage::Fault("a frame of unknown kind 99")),
    ] {
        assert_eq!(written(|outbox| message.write(outbox, call)), vector(name), "{name}");
    }
}

#[test]
fn the_answers_of_tools_are_their_vectors() {
    let error = RemoteError::new(RemoteErrorKind::Exception, "no such key");
    for (name, id, answer) in [
        ("HOST_RESULT", 1, ToolReply::Value(args(true))),
        ("HOST_ERROR", 1, ToolReply::Error(error)),
        ("HOST_ITEM", 2, ToolReply::Item(args("x"))),
        ("HOST_END", 2, ToolReply::End),
    ] {
        let (kind, payload) = answer.encode(id).expect("an answer");
        assert_eq!(written(|outbox| outbox.value_frame(kind, 7, &payload)), vector(name), "{name}");
    }
}

#[test]
fn a_host_call_is_read_from_its_vectors() {
    let read = |name: &str| match message(name) {
        WorkerMessage::HostCall(call) => call,
        other => panic!("{other:?}"),
    };
    let plain = read("HOST_CALL");
    assert_eq!((plain.id, plain.tool.as_str()), (1, "lookup"));
    assert_eq!(plain.args.to_value().expect("args").to_string(), "{\"key\":\"k\"}");
    assert_eq!((plain.options.stream, plain.options.trace()), (None, None));
    assert_eq!(read("HOST_CALL for a stream").options.stream, Some((32, 1 << 20)));
    let traced = read("HOST_CALL in a span");
    assert_eq!(traced.options.trace(), Some(TraceTexts { parent: PARENT, state: None }));
}

#[test]
fn the_short_messages_of_a_worker_are_read_from_their_vectors() {
    let shown = |name: &str| format!("{:?}", message(name));
    assert_eq!(shown("END"), "End");
    assert_eq!(shown("PONG"), "Pong");
    assert_eq!(shown("BYE"), "Bye");
    assert_eq!(shown("BYE with a text"), "Bye");
    assert_eq!(shown("HOST_CREDIT"), "HostCredit((2, 16, 65536))");
    assert_eq!(shown("HOST_CANCEL"), "HostCancel((2,))");
    assert_eq!(shown("LOG"), "Log((\"info\", \"began\", Encoded({\"rows\":10})))");
    assert_eq!(shown("PROGRESS"), "Progress(Some(0.5), Some(\"half\"))");
    assert_eq!(shown("PROGRESS without a text"), "Progress(Some(0.25), None)");
    assert_eq!(shown("FAULT"), "Fault(\"a frame of unknown kind 99\")");
    assert_eq!(shown("RESULT"), "Result(Encoded(3))");
    assert_eq!(
        shown("ERROR of a start"),
        "Error(Encoded({\"kind\":\"start\",\"type\":\"ModuleNotFoundError\",\"message\":\"No module named 'nope'\"}))"
    );
}

#[test]
fn an_error_is_its_vector() {
    for name in ["ERROR", "ERROR of an unknown command", "ERROR of a start"] {
        let WorkerMessage::Error(payload) = message(name) else { panic!("{name}") };
        let error = RemoteError::read(&payload);
        let again = Encoded::encode(&error).expect("an error");
        assert_eq!(again.head(), payload.head(), "{name}");
    }
    let WorkerMessage::Error(payload) = message("ERROR") else { panic!("an error") };
    let cause = RemoteError::new("exception", "'k'").type_name("KeyError");
    let mut error = RemoteError::new(RemoteErrorKind::Exception, "no").type_name("ValueError").cause(cause);
    error = error.traceback("File \"w.py\", line 3, in f");
    error.notes = vec!["a note".into()];
    assert_eq!(RemoteError::read(&payload), error);
}

#[test]
fn items_and_results_are_read_from_their_vectors() {
    for (name, expected) in [("ITEM", vec!["0"]), ("ITEMS", vec!["0", "\"x\"", "null"])] {
        let WorkerMessage::Items(mut items) = message(name) else { panic!("{name}") };
        let read = iter::from_fn(|| items.decode_next::<Value>());
        let read: Vec<String> = read.map(|(_, item)| item.expect("an item").to_string()).collect();
        assert_eq!(read, expected);
    }
    let WorkerMessage::Results(results) = message("RESULTS") else { panic!("RESULTS") };
    let entries = results.flagged(|well, value| Ok((well, value.to_value()?))).expect("entries");
    assert_eq!(entries[0], (true, Value::from(3)));
    assert!(!entries[1].0 && entries[1].1.to_string().contains("ValueError"));
}

#[test]
fn a_span_is_read_from_its_vector_and_other_telemetry_is_none() {
    let WorkerMessage::Telemetry(Some(span)) = message("TELEMETRY of a span") else { panic!("a span") };
    assert_eq!((span.name.as_str(), span.took_us, &span.parent_id), ("load", 1500, &None));
    assert_eq!((span.trace_id.as_str(), span.span_id.as_str()), (&PARENT[3..35], &PARENT[36..52]));
    assert!(matches!(message("TELEMETRY"), WorkerMessage::Telemetry(None)));
}

#[test]
fn an_invalid_span_is_none() {
    let is_one = |change: fn(&mut serde_json::Value)| {
        let mut record = serde_json::json!({"name": "snakepit.span", "value": {
            "name": "load", "trace_id": &PARENT[3..35], "span_id": &PARENT[36..52], "parent_id": null, "took_us": 1}});
        change(&mut record);
        matches!(message_of(FrameKind::Telemetry, &record), Some(WorkerMessage::Telemetry(Some(_))))
    };
    assert!(is_one(|_| {}));
    assert!(!is_one(|it| it["name"] = "other".into()));
    assert!(!is_one(|it| it["value"]["trace_id"] = "0AF7651916CD43DD8448EB211C80319C".into()));
    assert!(!is_one(|it| it["value"]["parent_id"] = "short".into()));
    assert!(!is_one(|it| it["value"]["took_us"] = "long".into()));
    assert!(!is_one(|it| it["value"]["attributes"] = "x".repeat(64 * 1024).into()));
}

#[test]
fn a_long_progress_text_is_cut_at_a_character() {
    let text = format!("x{}", "ä".repeat(PROGRESS_TEXT));
    let Some(WorkerMessage::Progress(None, Some(cut))) = message_of(FrameKind::Progress, &((), &text)) else {
        panic!("a PROGRESS")
    };
    assert!(text.starts_with(&cut) && cut.len() == PROGRESS_TEXT - 1, "{}", cut.len());
}

/// Both directions together are all kinds. A FAULT goes both ways.
#[test]
fn every_vector_is_a_message_of_one_side() {
    let of_hosts = "HELLO CALL CREDIT CANCEL HOST_RESULT HOST_ERROR HOST_ITEM HOST_END PING DRAIN CALLS";
    let mut kinds = std::collections::BTreeSet::new();
    for vector in vectors("frames.json") {
        let name = vector["name"].as_str().expect("a name");
        let kind = name.split([' ', ',']).next().expect("a kind");
        let is_of_host = of_hosts.split(' ').any(|it| it == kind);
        assert_eq!(decoded(&hex(&vector["hex"])).is_none(), is_of_host, "{name}");
        kinds.insert(vector["kind"].as_u64());
    }
    assert_eq!(kinds.len(), 27);
}

#[test]
fn a_message_of_another_form_is_an_error() {
    for (kind, bytes) in [
        (FrameKind::Ready, b"\x90".as_slice()),
        (FrameKind::HostCall, b"\x92\x01\xa1x"),
        (FrameKind::HostCredit, b"\x92\x01\x02"),
        (FrameKind::HostCancel, b"\x01"),
        (FrameKind::Log, b"\x92\xa1x\xa1y"),
        (FrameKind::Progress, b"\x91\xc0"),
        (FrameKind::Items, b"\x90"),
        (FrameKind::Fault, b"\x01"),
    ] {
        let payload = Encoded::from_payload(Bytes::from_static(bytes), false.into()).expect("a payload");
        assert!(WorkerMessage::decode(kind, payload).is_err(), "{kind:?}");
    }
}
