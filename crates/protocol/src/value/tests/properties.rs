//! Properties of all values and all bytes.

use bytes::{Bytes, BytesMut};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::value::{BODY_THRESHOLD, BigInt, DateTime, Encoded, Map, NaiveDateTime, Value};

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Nil),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i8>().prop_map(Value::from),
        any::<i128>().prop_map(Value::from),
        vec(any::<u8>(), 1..40).prop_map(|bytes| BigInt::from_twos_complement(&bytes).into()),
        any::<f64>().prop_filter("equal to itself", |it| !it.is_nan()).prop_map(Value::from),
        ".{0,40}".prop_map(Value::from),
        vec(any::<u8>(), 0..300).prop_map(|bytes| Bytes::from(bytes).into()),
        (any::<i64>(), -86_399..86_400)
            .prop_map(|(micros, offset)| { DateTime::new(micros, offset).expect("an offset").into() }),
        any::<i64>().prop_map(|micros| NaiveDateTime::new(micros).into()),
        (any::<u8>(), BODY_THRESHOLD - 1..BODY_THRESHOLD + 2).prop_map(|(fill, len)| Bytes::from(vec![
            fill;
            len
        ])
        .into()),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(5, 60, 20, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..20).prop_map(Value::from),
            vec((scalar(), inner), 0..20).prop_map(|it| it.into_iter().collect::<Map>().into()),
        ]
    })
}

fn received(sent: &Encoded) -> Encoded {
    let mut payload = BytesMut::new();
    sent.write_to(&mut payload);
    Encoded::from_payload(payload.freeze(), sent.has_bodies().into()).expect("a payload")
}

proptest! {
    #[test]
    fn values_round_trip_through_the_wire(value in value()) {
        let sent = Encoded::encode(&value).expect("sendable");
        prop_assert_eq!(&received(&sent).to_value().expect("a value"), &value);
        prop_assert_eq!(&received(&sent).decode::<Value>().expect("a value"), &value);
        // The value as part of a larger value, both encoded beforehand and not.
        let outer = Encoded::encode(&(1, &sent, [&value])).expect("sendable");
        let (_, inner, [again]) = received(&outer).decode::<(u8, Encoded, [Value; 1])>().expect("a tuple");
        prop_assert_eq!(&inner.to_value().expect("a value"), &value);
        prop_assert_eq!(&again, &value);
    }

    #[test]
    fn integers_keep_their_value_through_every_type(number in any::<i128>()) {
        let sent = Encoded::encode(&number).expect("sendable");
        prop_assert_eq!(sent.decode::<i128>(), Ok(number));
        prop_assert_eq!(sent.decode::<u128>().ok(), u128::try_from(number).ok());
        prop_assert_eq!(sent.decode::<i64>().ok(), i64::try_from(number).ok());
        prop_assert_eq!(sent.decode::<u16>().ok(), u16::try_from(number).ok());
        prop_assert_eq!(sent.decode::<BigInt>(), Ok(BigInt::from(number)));
        prop_assert_eq!(BigInt::from(number).to_string(), number.to_string());
        prop_assert_eq!(number.to_string().parse(), Ok(BigInt::from(number)));
    }

    #[test]
    fn an_integer_is_encoded_the_same_in_every_width(number in any::<i16>()) {
        let sent = Encoded::encode(&number).expect("sendable");
        let wide = Encoded::encode(&i128::from(number)).expect("sendable");
        prop_assert_eq!(sent.head(), wide.head());
    }

    #[test]
    fn every_date_time_in_pythons_range_is_read_as_it_is_shown(
        micros in -62_135_510_400_000_000i64..253_402_214_400_000_000,
        offset in -86_399..86_400,
    ) {
        let time = DateTime::new(micros, offset).expect("an offset");
        prop_assert_eq!(time.to_string().parse(), Ok(time));
        let naive = NaiveDateTime::new(micros);
        prop_assert_eq!(naive.to_string().parse(), Ok(naive));
    }

    #[test]
    fn big_integers_are_read_as_they_are_shown(bytes in vec(any::<u8>(), 0..200)) {
        let number = BigInt::from_twos_complement(&bytes);
        prop_assert_eq!(number.to_string().parse(), Ok(number));
    }
}
