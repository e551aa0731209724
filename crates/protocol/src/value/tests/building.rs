//! Tests of payloads that are built around values, and of byte strings beside them.

use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use crate::value::{BODY_THRESHOLD, Blob, Encoded, Map, PayloadLayout, Value, ValueBuilder, write};

fn long(fill: u8) -> Bytes {
    Bytes::from(vec![fill; BODY_THRESHOLD])
}

fn received(encoded: &Encoded) -> Encoded {
    let mut payload = BytesMut::new();
    encoded.write_to(&mut payload);
    assert_eq!(payload.len(), encoded.payload_len());
    Encoded::from_payload(payload.freeze(), encoded.has_bodies().into()).expect("a payload")
}

#[test]
fn a_long_byte_string_is_neither_in_the_head_nor_copied() {
    let bytes = long(7);
    let sent = Encoded::encode(&Map::from([("blob", bytes.clone())])).expect("sendable");
    assert!(sent.has_bodies());
    assert!(sent.head().len() < 20);
    assert_eq!(sent.bodies().next().map(|it| it.as_ptr()), Some(bytes.as_ptr()));
    assert_eq!(sent.to_value().expect("a value")["blob"], Value::from(bytes));
}

#[test]
fn a_list_of_flagged_values_is_split_and_any_other_value_is_rejected() {
    let blob = long(3);
    let list = (
        (true, vec![1, 2]),
        (false, "no"),
        (true, Map::from([("blob", Value::from(blob.clone()))])),
        (true, ()),
    );
    let list = received(&Encoded::encode(&list).expect("sendable"));
    let entries = list.flagged(|flag, value| Ok((flag, value.to_value()?))).expect("such a list");
    let blob = Value::from(Map::from([("blob", Value::from(blob))]));
    let two: Value = Encoded::encode(&[1, 2]).and_then(|list| list.to_value()).expect("a list");
    assert_eq!(entries, [(true, two), (false, "no".into()), (true, blob), (true, Value::Nil)]);

    // Not a list; an entry that is not a pair; a flag that is not a boolean; a pair of three; too short; too long.
    for wrong in [
        &b"\xc0"[..],
        b"\x91\xc3",
        b"\x91\x92\x01\x01",
        b"\x91\x93\xc3\x01\x01",
        b"\x92\x92\xc3\x01",
        b"\x91\x92\xc3\x01\x01",
    ] {
        let list =
            Encoded::from_payload(Bytes::copy_from_slice(wrong), PayloadLayout::Plain).expect("a payload");
        assert!(list.flagged(|_, _| Ok(())).is_err(), "{wrong:x?}");
    }
}

#[test]
fn a_byte_string_below_the_threshold_stays_in_the_head() {
    let short = Bytes::from(vec![1; BODY_THRESHOLD - 1]);
    let sent = Encoded::encode(&Value::from(short.clone())).expect("sendable");
    assert!(!sent.has_bodies());
    assert_eq!(sent.to_value().expect("a value"), short.into());
}

#[test]
fn a_long_byte_string_is_read_without_a_copy() {
    #[derive(Serialize, Deserialize)]
    struct Photo {
        name: String,
        pixels: Blob,
    }
    let sent = Encoded::encode(&Photo { name: "a".into(), pixels: long(1).into() }).expect("sendable");
    let mut payload = BytesMut::new();
    sent.write_to(&mut payload);
    let payload = payload.freeze();
    let memory = payload.as_ptr_range();
    let received = Encoded::from_payload(payload, PayloadLayout::WithBodies).expect("a payload");
    let image: Photo = received.decode().expect("an image");
    assert_eq!((image.name.as_str(), &image.pixels.0), ("a", &long(1)));
    assert!(memory.contains(&image.pixels.as_ptr()));
    let value = received.to_value().expect("a value");
    assert!(memory.contains(&value["pixels"].as_bytes().expect("bytes").as_ptr()));
}

#[test]
fn bytes_of_other_crates_become_bodies_too() {
    struct Raw(Vec<u8>);
    impl Serialize for Raw {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_bytes(&self.0)
        }
    }
    let sent = Encoded::encode(&(Raw(vec![5; 20_000]), Raw(vec![6; 10]))).expect("sendable");
    assert!(sent.has_bodies());
    let (a, b): (Vec<u8>, Vec<u8>) = received(&sent).decode().expect("two");
    assert_eq!((a, b), (vec![5; 20_000], vec![6; 10]));
}

type Calls = (String, Vec<(u8, Blob, Blob)>, Option<u64>);

/// The offsets in each value count from that value's own first body until the values are joined.
#[test]
fn values_with_bodies_are_joined_into_one_payload() {
    let args: Vec<Encoded> = (0..3u8)
        .map(|index| Encoded::encode(&(index, Blob(long(index)), Blob(long(index + 10)))).expect("sendable"))
        .collect();
    let mut builder = ValueBuilder::default();
    write::array_header(&mut builder.head, 3);
    write::str(&mut builder.head, "command");
    write::array_header(&mut builder.head, 3);
    for args in &args {
        builder.encoded(args).expect("readable");
    }
    write::nil(&mut builder.head);
    let payload = received(&builder.finish());
    let (command, calls, deadline): Calls = payload.decode().expect("calls");
    assert_eq!((command.as_str(), deadline), ("command", None));
    for (index, call) in calls.iter().enumerate() {
        let index = index as u8;
        assert_eq!(*call, (index, Blob(long(index)), Blob(long(index + 10))));
    }
}

#[test]
fn a_part_of_a_value_can_be_kept_unread_and_sent_on() {
    let sent = Encoded::encode(&(1, ("tool", vec![Value::from(long(3)), Value::from(5)]), Blob(long(4))))
        .expect("sendable");
    let (id, rest, _): (u64, Encoded, Encoded) = received(&sent).decode().expect("a tuple");
    assert_eq!(id, 1);
    // Only the bodies that this part needs are sent.
    let again = Encoded::encode(&rest).expect("sendable");
    assert_eq!(again.bodies().count(), 1);
    let (tool, args): (String, Vec<Value>) = received(&again).decode().expect("a tuple");
    assert_eq!((tool.as_str(), args), ("tool", vec![long(3).into(), 5.into()]));
}

#[test]
fn an_encoded_value_is_embedded_unchanged() {
    let inner = Encoded::encode(&(1, "x")).expect("sendable");
    assert_eq!(Encoded::encode(&inner).expect("sendable").head(), inner.head());
    let outer = Encoded::encode(&vec![&inner, &inner]).expect("sendable");
    assert_eq!(outer.to_value().expect("a value").to_string(), r#"[[1,"x"],[1,"x"]]"#);
    assert_eq!(serde_json::to_string(&inner).expect("JSON"), r#"[1,"x"]"#);
    let read: Encoded = serde_json::from_str(r#"[1,"x"]"#).expect("JSON");
    assert_eq!(read.head(), inner.head());
}

#[test]
fn an_encoded_value_is_read_from_json_like_any_value() {
    for json in [
        "null",
        "true",
        "-1",
        "18446744073709551615",
        "1.5",
        r#""x""#,
        r#""\u00e9\n""#,
        "[1,[]]",
        r#"{"a":{"b":null}}"#,
    ] {
        let read: Encoded = serde_json::from_str(json).expect("JSON");
        let value: Value = serde_json::from_str(json).expect("JSON");
        assert_eq!(read.head(), Encoded::encode(&value).expect("sendable").head(), "{json}");
    }
    let repeated: Encoded = serde_json::from_str(r#"{"a":1,"a":2}"#).expect("JSON");
    assert_eq!(repeated.to_value().expect("a value").to_string(), r#"{"a":2}"#);
}

#[test]
fn an_encoded_value_inside_another_keeps_the_limit_of_depth() {
    let deep = (0..127).fold(Value::List(vec![]), |inner, _| Value::List(vec![inner]));
    let deep = Encoded::encode(&deep).expect("128 levels");
    assert!(deep.to_value().is_ok());
    assert!(Encoded::encode(&vec![&deep]).is_err());
    assert!(crate::args![deep].into_encoded().is_err());
}

#[test]
fn a_serialize_impl_may_encode_another_value() {
    struct Nested;
    impl Serialize for Nested {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let inner = Encoded::encode(&[1, 2, 3]).expect("sendable");
            serializer.serialize_u64(inner.payload_len() as u64)
        }
    }
    let sent = Encoded::encode(&(Nested, Nested)).expect("sendable");
    assert_eq!(sent.decode(), Ok((4, 4)));
}

#[test]
fn an_unread_value_is_validated_before_it_is_embedded() {
    for bytes in [&b""[..], b"\x01\x02", b"\x92\x01", b"\xa1\xff"] {
        let came =
            Encoded::from_payload(Bytes::copy_from_slice(bytes), PayloadLayout::Plain).expect("a payload");
        assert!(Encoded::encode(&came).is_err(), "{bytes:?}");
        assert!(Encoded::encode(&(1, &came)).is_err(), "{bytes:?}");
        assert!(ValueBuilder::default().encoded(&came).is_err(), "{bytes:?}");
    }
}
