//! Tests of the text form of values, and of parsing it.

use std::time::{Duration, SystemTime};

use bytes::Bytes;

use crate::value::{BigInt, DateTime, Map, NaiveDateTime, ParseBigIntError, Value};

#[test]
fn a_value_is_shown_like_json() {
    let value = Map::from([
        ("nil", Value::Nil),
        ("yes", true.into()),
        ("int", (-5).into()),
        ("float", 1.0.into()),
        ("nan", f64::NAN.into()),
        ("text", "a\"b\\c\n\u{1}ü".into()),
        ("bytes", Bytes::from_static(b"a\x00\xff").into()),
        ("many", Bytes::from(vec![0; 65]).into()),
        ("list", vec![1, 2].into()),
        ("at", DateTime::new(0, 3600).expect("an offset").into()),
        ("local", NaiveDateTime::new(1).into()),
    ]);
    let expected = concat!(
        r#"{"nil":null,"yes":true,"int":-5,"float":1.0,"nan":NaN,"text":"a\"b\\c\n\u0001ü","bytes":b"a\x00\xff","#,
        r#""many":<65 bytes>,"list":[1,2],"at":1970-01-01T01:00:00+01:00,"local":1970-01-01T00:00:00.000001}"#
    );
    assert_eq!(Value::from(value).to_string(), expected);
}

#[test]
fn a_missing_index_or_key_reads_as_nil() {
    let value = Value::from(Map::from([("a", Value::from(vec![1, 2]))]));
    assert_eq!(value["a"][1].as_i64(), Some(2));
    assert!(value["a"][2].is_nil() && value["b"]["c"][0].is_nil());
    assert_eq!(value.get("b"), None);
}

#[test]
fn accessors_answer_only_for_their_kind() {
    assert_eq!(Value::from(u64::MAX).as_i64(), None);
    assert_eq!(Value::from(u64::MAX).as_u64(), Some(u64::MAX));
    assert_eq!(Value::from(-1).as_u64(), None);
    assert_eq!(Value::from(3).as_f64(), Some(3.0));
    assert_eq!(Value::from((1i64 << 53) + 1).as_f64(), None);
    assert_eq!(Value::from(i128::MAX).as_f64(), None);
    assert_eq!(Value::from("1").as_i64(), None);
    assert_eq!(Value::from(1.0).as_i64(), None);
    assert_eq!(Value::from(u128::MAX).as_i128(), None);
    assert_eq!(Value::from(BigInt::from(5)), Value::Int(5));
}

#[test]
fn maps_are_equal_in_any_order() {
    assert_eq!(Map::from([("a", 1), ("b", 2)]), Map::from([("b", 2), ("a", 1)]));
    assert_ne!(Map::from([("a", 1), ("b", 2)]), Map::from([("a", 1), ("c", 2)]));
    assert_ne!(Map::from([("a", 1)]), Map::from([("a", 1), ("b", 2)]));
}

#[test]
fn big_integers_are_read_and_shown() {
    let numbers = [
        "0",
        "-1",
        "255",
        "256",
        "-128",
        "-129",
        "18446744073709551616",
        "-170141183460469231731687303715884105729",
    ];
    for text in numbers {
        assert_eq!(text.parse::<BigInt>().expect("an integer").to_string(), text);
    }
    let digits = "1".to_owned() + &"0".repeat(9000);
    assert_eq!(digits.parse::<BigInt>().expect("an integer").to_string(), digits);
    assert_eq!("+007".parse(), Ok(BigInt::from(7)));
    assert_eq!("-0".parse(), Ok(BigInt::from(0)));
    for text in ["", "-", "1.0", "0x1", "1 ", "١"] {
        assert_eq!(text.parse::<BigInt>(), Err(ParseBigIntError::NotDecimal), "{text:?}");
    }
    assert_eq!("1".repeat(9866).parse::<BigInt>(), Err(ParseBigIntError::TooLong));
}

#[test]
fn a_huge_integer_is_shown_quickly() {
    let mut bytes = vec![0; 1 << 20];
    bytes[0] = 0xff;
    let text = BigInt::from_twos_complement(&bytes).to_string();
    assert!(text.starts_with("-0x1000"), "{}", &text[..20]);
    assert_eq!(text.len(), "-0x1".len() + ((1 << 20) - 1) * 2);
}

#[test]
fn big_integers_convert_where_they_fit() {
    assert_eq!(u128::try_from(BigInt::from(u128::MAX)), Ok(u128::MAX));
    assert!(i128::try_from(BigInt::from(u128::MAX)).is_err());
    assert_eq!(i128::try_from(BigInt::from(i128::MIN)), Ok(i128::MIN));
    assert!(u128::try_from(BigInt::from(-1)).is_err());
    assert!(u128::try_from(&format!("{}0", u128::MAX).parse::<BigInt>().expect("an integer")).is_err());
    assert_eq!(BigInt::from_twos_complement(&[]), BigInt::from(0));
    assert_eq!(BigInt::from_twos_complement(&[0xff, 0xff, 0x80]), BigInt::from(-128));
}

#[test]
fn date_times_are_read_and_shown() {
    let texts = [
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59.999999Z",
        "1969-12-31T23:59:59.999999Z",
        "2000-02-29T12:00:00+05:45",
        "1900-02-28T23:00:00-00:19:32",
    ];
    for text in texts {
        assert_eq!(text.parse::<DateTime>().expect(text).to_string(), text);
        let naive = &text[..19];
        assert_eq!(naive.parse::<NaiveDateTime>().expect(naive).to_string(), naive);
    }
    let wrong = [
        "",
        "2000-01-01",
        "2000-01-01T00:00:00",
        "2001-02-29T00:00:00Z",
        "1900-02-29T00:00:00Z",
        "2000-13-01T00:00:00Z",
        "2000-01-01T24:00:00Z",
        "2000-01-01T00:60:00Z",
        "2000-01-01T00:00:00.Z",
        "2000-01-01T00:00:00+24:00",
        "2000-01-01T00:00:00+0200",
        "2000-01-01T00:00:00Zx",
        "0000-01-01T00:00:00Z",
        "2000-00-10T00:00:00Z",
        "2000-01-01Tüü:00:00Z",
        "+200-01-01T00:00:00Z",
    ];
    for text in wrong {
        assert!(text.parse::<DateTime>().is_err(), "{text}");
    }
    let parsed: DateTime = "2000-01-01 00:00:00.1234567z".parse().expect("RFC 3339 allows it");
    assert_eq!(parsed.to_string(), "2000-01-01T00:00:00.123456Z");
}

#[test]
fn every_day_of_four_centuries_has_its_date() {
    let mut last = String::new();
    for day in -150_000..0 {
        let text = NaiveDateTime::new(day * 86_400_000_000).to_string();
        assert!(text > last, "{text} after {last}");
        assert_eq!(text.parse(), Ok(NaiveDateTime::new(day * 86_400_000_000)));
        last = text;
    }
}

#[test]
fn times_far_away_are_shown_and_do_not_panic() {
    assert_eq!(NaiveDateTime::new(i64::MAX).to_string(), "+294247-01-10T04:00:54.775807");
    assert!(DateTime::new(i64::MIN, -86_399).expect("an offset").to_string().starts_with('-'));
    assert!(DateTime::new(0, 86_400).is_err());
}

#[test]
fn date_times_convert_to_and_from_the_clock() {
    let before = SystemTime::UNIX_EPOCH - Duration::from_nanos(1_500);
    assert_eq!(DateTime::try_from(before).map(|it| it.unix_micros()), Ok(-2));
    let after = SystemTime::UNIX_EPOCH + Duration::from_micros(5);
    assert_eq!(DateTime::try_from(after).map(SystemTime::from), Ok(after));
    assert_eq!(
        SystemTime::from(DateTime::new(-5, 60).expect("an offset")),
        SystemTime::UNIX_EPOCH - Duration::from_micros(5)
    );
}
