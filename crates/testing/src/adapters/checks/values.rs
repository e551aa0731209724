//! Checks of values: each kind comes back unchanged or is rejected with its path. No value silently becomes another
//! one.

use crate::adapters::test_engine::{TestEngine, chain};
use crate::adapters::{Capability, CheckVerdict, Feature, Held, Subject};
use crate::value::{BigInt, DateTime, Map, NaiveDateTime};
use crate::{CallError, Value, args};

/// Asserts that the value comes back unchanged.
async fn assert_comes_back(engine: &TestEngine, value: Value) {
    let echoed: Value = engine.get("echo", args! { value: &value }).await;
    assert!(is_same(&echoed, &value), "{value:?} came back as {echoed:?}");
}

/// Like `==`, but NaN equals NaN, and a float never equals an integer.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Float(one), Value::Float(other)) => {
            one.is_nan() && other.is_nan() || one.to_bits() == other.to_bits()
        }
        (Value::List(one), Value::List(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        _ => one == other,
    }
}

/// Asserts that the values come back if the adapter has the feature, and are otherwise rejected with their path.
async fn assert_honest(subject: &dyn Subject, feature: Feature, values: Vec<Value>) -> CheckVerdict {
    let engine = TestEngine::open(subject).await;
    let capability = subject.capability(feature);
    for value in values {
        if capability == Capability::Present {
            assert_comes_back(&engine, value).await;
            continue;
        }
        let inside = Value::from(Map::from([("inner", Value::List(vec![Value::from(1), value.clone()]))]));
        let answer = engine.ask::<Value>("echo", args! { value: inside }).await;
        let Err(error) = answer else {
            panic!("{value:?} has no form here, and came back as {answer:?}: it must be refused")
        };
        let place = match &error {
            CallError::Arguments { source, .. } => source.path(),
            CallError::Remote(remote) => remote.path.clone().unwrap_or_default(),
            other => panic!("{value:?} is not refused: {}", chain(other)),
        };
        assert!(place.contains("inner[1]"), "{value:?} is refused at {place:?}: {}", chain(&error));
        engine.assert_serves().await;
    }
    engine.close().await;
    match capability {
        Capability::Present => Held,
        Capability::Absent(reason) => {
            CheckVerdict::Skipped(format!("{feature:?}: {reason}, and it is refused"))
        }
    }
}

pub(crate) async fn plain_values_come_back_as_they_were(subject: &dyn Subject) {
    let engine = TestEngine::open(subject).await;
    let texts = ["", "plain", "quote \" backslash \\ slash /", "line\nfeed\r\n\ttab", "nul \0 bell \u{7}"];
    let more = ["Grüße, 世界, 🐍", "\u{2028}\u{2029}\u{feff}", "null", "0"];
    let texts = texts.into_iter().chain(more).map(Value::from);
    let others = [Value::Nil, true.into(), false.into(), 0.into(), 1.into(), (-1).into(), 0.5.into()];
    for value in texts.chain(others) {
        assert_comes_back(&engine, value).await;
    }
    engine.close().await;
}

pub(crate) async fn integers_keep_their_size(subject: &dyn Subject) -> CheckVerdict {
    let engine = TestEngine::open(subject).await;
    for number in [1i64 << 31, -(1 << 31), (1 << 53) - 1, 1 - (1 << 53)] {
        assert_comes_back(&engine, number.into()).await;
    }
    engine.close().await;
    let wide = [1 << 53, (1 << 53) + 1, i64::MAX, i64::MIN, i64::MIN + 1].map(Value::from);
    let wide = wide.into_iter().chain([u64::MAX.into()]).collect();
    let wide = assert_honest(subject, Feature::WideIntegers, wide).await;
    let mut large = vec![Value::from(u128::from(u64::MAX) + 1), Value::from(i128::from(i64::MIN) - 1)];
    large.extend(
        "123456789012345678901234567890123456789012345678901234567890".parse::<BigInt>().map(Value::from),
    );
    let large = assert_honest(subject, Feature::BigIntegers, large).await;
    if wide == Held { large } else { wide }
}

pub(crate) async fn floats_stay_floats(subject: &dyn Subject) -> CheckVerdict {
    let engine = TestEngine::open(subject).await;
    for number in [0.1, 5e-324, f64::MIN_POSITIVE, std::f64::consts::PI] {
        assert_comes_back(&engine, number.into()).await;
    }
    let capability = subject.capability(Feature::DistinctFloats);
    // These floats have integral values.
    for number in [1.0, -0.0, 1e20, 1e300, f64::MAX] {
        if capability == Capability::Present {
            assert_comes_back(&engine, number.into()).await;
        } else {
            let echoed: f64 = engine.get("echo", args! { value: number }).await;
            // Compared as numbers: -0.0 is 0.
            let order = echoed.partial_cmp(&number);
            assert_eq!(order, Some(std::cmp::Ordering::Equal), "{number:?} came back as {echoed:?}");
        }
    }
    engine.close().await;
    match capability {
        Capability::Present => Held,
        Capability::Absent(reason) => {
            CheckVerdict::Skipped(format!("DistinctFloats: {reason}, and they are the same numbers"))
        }
    }
}

pub(crate) async fn numbers_that_are_none_come_back_or_are_refused(subject: &dyn Subject) -> CheckVerdict {
    let values = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(Value::from).into();
    assert_honest(subject, Feature::NonFiniteFloats, values).await
}

pub(crate) async fn byte_strings_come_back_or_are_refused(subject: &dyn Subject) -> CheckVerdict {
    let bytes = |bytes: Vec<u8>| Value::Bytes(bytes.into());
    let values = vec![bytes(Vec::new()), bytes((0..=255).collect()), bytes(vec![0xff; 100_000])];
    assert_honest(subject, Feature::Bytes, values).await
}

pub(crate) async fn date_times_come_back_or_are_refused(subject: &dyn Subject) -> CheckVerdict {
    let zoned = [("0 h", 0), ("2 h", 7200), ("-5 h 30 min", -19_800)];
    let mut values = vec![Value::NaiveDateTime(NaiveDateTime::new(1_700_000_000_123_456))];
    for (offset, seconds) in zoned {
        match DateTime::new(1_700_000_000_123_456, seconds) {
            Ok(time) => values.push(Value::DateTime(time)),
            Err(error) => panic!("an offset of {offset}: {error}"),
        }
    }
    assert_honest(subject, Feature::DateTimes, values).await
}

pub(crate) async fn keys_of_any_kind_come_back_or_are_refused(subject: &dyn Subject) -> CheckVerdict {
    // Not 1 beside true, nor 0 beside false, which are the same key in Python.
    let map = Map::from([(Value::from(7), Value::from("seven")), (Value::from(true), Value::from("yes"))]);
    assert_honest(subject, Feature::AnyKeys, vec![map.into()]).await
}

pub(crate) async fn values_inside_values_come_back(subject: &dyn Subject) {
    let engine = TestEngine::open(subject).await;
    let mut deep = Value::from("at the bottom");
    for n in 0..40 {
        deep = if n % 2 == 0 { Value::List(vec![deep]) } else { Map::from([("down", deep)]).into() };
    }
    let mixed = Map::from([
        ("list", Value::List(vec![Value::Nil, 1.into(), "two".into(), 3.5.into()])),
        ("empty list", Value::List(Vec::new())),
        ("empty map", Map::new().into()),
        ("ключ", "value".into()),
        ("", "no name".into()),
    ]);
    for value in [deep, mixed.into(), Value::List(vec![Value::List(Vec::new()); 3])] {
        assert_comes_back(&engine, value).await;
    }
    engine.close().await;
}
