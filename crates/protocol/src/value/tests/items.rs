//! Tests of the values of a stream that came together.

use bytes::Bytes;
use serde::Deserialize;

use crate::value::{Encoded, EncodedItems, Map, PayloadLayout, Value, ValueBlock};

fn payload(bytes: &[u8]) -> Encoded {
    Encoded::from_payload(Bytes::copy_from_slice(bytes), PayloadLayout::Plain).expect("a payload")
}

#[test]
fn items_are_decoded_one_after_another_with_their_lengths() {
    let mut items = EncodedItems::list(payload(b"\x93\x05\xa2hi\x92\x01\xc0")).expect("a list");
    assert_eq!((items.len(), items.payload_len()), (3, 7), "the header of the list does not count");
    let lengths = [(1, Value::from(5)), (3, Value::from("hi"))];
    for (length, value) in lengths {
        let (taken, decoded) = items.decode_next::<Value>().expect("an item");
        assert_eq!((taken, decoded.expect("a value")), (length, value));
    }
    assert_eq!((items.len(), items.payload_len()), (1, 3));
    let (taken, pair) = items.decode_next::<(u8, Option<u8>)>().expect("an item");
    assert_eq!((taken, pair.expect("a pair")), (3, (1, None)));
    assert!(items.is_empty() && items.decode_next::<Value>().is_none());
}

#[test]
fn a_single_item_is_its_whole_payload() {
    let mut one = EncodedItems::one(payload(b"\x92\x01\x02"));
    assert_eq!((one.len(), one.payload_len()), (1, 3));
    let (taken, list) = one.decode_next::<Vec<u8>>().expect("an item");
    assert_eq!((taken, list.expect("a list")), (3, vec![1, 2]));
    assert!(one.decode_next::<Vec<u8>>().is_none());
}

#[test]
fn a_payload_that_is_not_a_list_of_items_is_rejected_and_a_bad_item_ends_the_stream() {
    for wrong in [&b"\x90"[..], b"\x05", b"", b"\x93\x01\x02"] {
        assert!(EncodedItems::list(payload(wrong)).is_err(), "{wrong:x?}");
    }
    // Cut short; another type; bytes after the last item.
    for (bad, good) in [(&b"\x92\x01\xcd\x02"[..], 1), (b"\x93\x01\xa1x\x02", 1), (b"\x92\x01\x02\x03", 1)] {
        let mut items = EncodedItems::list(payload(bad)).expect("a list");
        let mut decoded = Vec::new();
        let mut taken = 0;
        while let Some((length, item)) = items.decode_next::<u8>() {
            taken += length;
            decoded.push(item.is_ok());
        }
        assert_eq!(decoded.iter().filter(|ok| **ok).count(), good, "{bad:x?}");
        assert_eq!(decoded.last(), Some(&false), "{bad:x?}");
        assert_eq!(taken, bad.len() - 1, "all that was sent is paid back");
    }
}

#[test]
fn the_last_of_two_equal_keys_counts_in_an_item_too() {
    #[derive(Deserialize, PartialEq, Debug)]
    struct Named {
        a: u8,
    }
    let mut items = EncodedItems::list(payload(b"\x92\x82\xa1a\x01\xa1a\x02\x81\xa1a\x03")).expect("a list");
    for (length, a) in [(7, 2), (4, 3)] {
        let (taken, named) = items.decode_next::<Named>().expect("an item");
        assert_eq!((taken, named.expect("a struct")), (length, Named { a }));
    }
}

#[test]
fn values_in_a_block_are_those_that_are_encoded_alone() {
    let mut block = ValueBlock::default();
    let inputs: Vec<Value> = (0..5000)
        .map(|n| match n % 5 {
            0 => Value::from(n),
            1 => Value::Nil,
            2 => Value::from("x".repeat(n as usize)),
            3 => Value::from(Map::from([("n", Value::from(n))])),
            _ => Value::from(Bytes::from(vec![1; 20_000])),
        })
        .collect();
    let encoded: Vec<Encoded> =
        inputs.iter().map(|input| block.encode_args(input).expect("sendable")).collect();
    for (input, encoded) in inputs.iter().zip(encoded) {
        let alone = Encoded::encode_args(input).expect("sendable");
        assert_eq!(encoded.head(), alone.head());
        assert_eq!(encoded.has_bodies(), alone.has_bodies());
        assert_eq!(encoded.to_value().expect("a value"), alone.to_value().expect("a value"));
    }
}
