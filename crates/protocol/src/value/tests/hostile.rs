//! Tests with unchecked bytes. `crates/proving/tests/values.rs` tests how much memory they can cost.

use std::collections::HashMap;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use serde::Deserialize;

use crate::value::{BigInt, Blob, DateTime, Encoded, PayloadLayout, Value, ValueBuilder};

#[derive(Deserialize)]
#[expect(dead_code, reason = "only read")]
enum Any {
    Unit,
    Newtype(Box<Any>),
    Struct { a: Option<Box<Any>>, b: Vec<u8> },
    Tuple(i64, f64, char),
}

fn read_in_every_way(payload: &[u8], has_bodies: bool) {
    let Ok(encoded) = Encoded::from_payload(Bytes::copy_from_slice(payload), has_bodies.into()) else {
        return;
    };
    let direct = encoded.to_value();
    let through_serde = encoded.decode::<Value>();
    assert_eq!(direct.is_ok(), through_serde.is_ok());
    let _ = encoded.decode::<Any>();
    let _ = encoded.decode::<(u64, String, Encoded)>();
    let _ = encoded.decode::<HashMap<String, Blob>>();
    let _ = encoded.decode::<Vec<Option<DateTime>>>();
    let _ = encoded.decode::<Vec<u8>>();
    let _ = encoded.decode::<BigInt>();
    let _ = encoded.decode::<serde::de::IgnoredAny>();
    let _ = encoded.decode::<serde_json::Value>();
    let _ = format!("{encoded:?}");
    let mut builder = ValueBuilder::with_head(vec![0x91]);
    let _ = builder.encoded(&encoded);
    // A value that can be read can also be sent.
    if let Ok(value) = direct {
        let again = Encoded::encode(&value).expect("sendable").to_value().expect("a value");
        assert_eq!(again.to_string(), value.to_string());
    }
}

/// Generates bytes that resemble MessagePack more than random bytes do.
fn likely_bytes() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        4 => any::<u8>(),
        3 => 0x80u8..0xa4,
        3 => 0xc0u8..0xe0,
        3 => 0u8..8,
        1 => Just(b'a'),
    ];
    vec(byte, 0..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn no_bytes_make_the_reader_panic(payload in likely_bytes(), has_bodies in any::<bool>()) {
        read_in_every_way(&payload, has_bodies);
    }

    #[test]
    fn no_bytes_behind_a_right_head_make_the_reader_panic(head in likely_bytes(), bodies in likely_bytes()) {
        let mut payload = (head.len() as u32).to_le_bytes().to_vec();
        payload.extend(head);
        payload.extend(bodies);
        read_in_every_way(&payload, true);
    }
}

#[test]
fn a_value_cut_short_anywhere_is_refused() {
    let value = serde_json::json!({"a": [1, 300, -5, 1.5, "text"], "b": {"c": [null, true]}});
    let whole = Encoded::encode(&value).expect("sendable");
    for len in 0..whole.head().len() {
        let cut = Encoded::from_payload(Bytes::copy_from_slice(&whole.head()[..len]), PayloadLayout::Plain)
            .expect("a payload");
        assert!(cut.to_value().is_err(), "{len} bytes");
        assert!(cut.decode::<serde_json::Value>().is_err(), "{len} bytes");
    }
}

#[test]
fn a_type_that_nests_without_end_is_refused_at_the_limit() {
    let mut bytes = Vec::new();
    for _ in 0..100_000 {
        bytes.extend(b"\x81\xa7Newtype");
    }
    bytes.extend(b"\xa4Unit");
    let encoded = Encoded::from_payload(bytes.into(), PayloadLayout::Plain).expect("a payload");
    let error = encoded.decode::<Any>().err().expect("too deep");
    assert_eq!(error.message(), "nested deeper than 128 levels");
}

/// The limit applies to bytes from a worker with short frames. The same bytes from elsewhere have a higher limit.
#[test]
fn a_value_that_would_take_too_much_memory_is_rejected() {
    let mut nils = vec![0xdd];
    nils.extend((8u32 << 20).to_be_bytes());
    nils.resize(5 + (8 << 20), 0xc0);
    let payload = Bytes::from(nils);
    let of_a_worker =
        Encoded::from_worker(payload.clone(), PayloadLayout::Plain, 9 << 20).expect("a payload");
    for error in [of_a_worker.to_value().err(), of_a_worker.decode::<Value>().err()] {
        assert!(error.is_some_and(|error| error.message().contains("four times max_frame")));
    }
    assert!(of_a_worker.decode::<Vec<[Option<u64>; 4]>>().is_err());
    assert_eq!(of_a_worker.decode::<Vec<Option<bool>>>().expect("a byte each").len(), 8 << 20);
    assert_eq!(of_a_worker.decode::<serde::de::IgnoredAny>(), Ok(serde::de::IgnoredAny));
    let of_anybody = Encoded::from_payload(payload, PayloadLayout::Plain).expect("a payload");
    assert!(of_anybody.to_value().is_ok());
}

fn with_bodies(head: &[u8], bodies: &[u8]) -> Encoded {
    let mut payload = (head.len() as u32).to_le_bytes().to_vec();
    payload.extend(head);
    payload.extend(bodies);
    Encoded::from_payload(payload.into(), PayloadLayout::WithBodies).expect("a payload")
}

#[test]
fn references_may_not_expand_beyond_the_bodies_received() {
    let reference = [[0xd7, 5, 0, 0].as_slice(), &[0, 0, 0, 0, 2, 0]].concat();
    let thrice = [&[0x93][..], &reference, &reference, &reference].concat();
    let value = with_bodies(&thrice, &vec![7; 128 << 10]);
    let errors = [
        value.to_value().err(),
        value.decode::<[Blob; 3]>().err(),
        value.decode::<[Vec<u8>; 3]>().err(),
        value.decode::<(Encoded, Encoded, Encoded)>().err(),
        value.trimmed().err(),
    ];
    for error in errors {
        let error = error.expect("named often");
        assert!(error.message().contains("name more than twice"), "{error}");
    }
    assert!(with_bodies(&thrice, &vec![7; 384 << 10]).to_value().is_ok());
    let entry = [&[0x92, 0xc3][..], &reference].concat();
    let flagged = [&[0x93][..], &entry, &entry, &entry].concat();
    assert!(with_bodies(&flagged, &vec![7; 128 << 10]).flagged(|_, _| Ok(())).is_err());
    assert!(with_bodies(&flagged, &vec![7; 384 << 10]).flagged(|_, _| Ok(())).is_ok());
}
