//! Values keep their types between Rust and Python; a value that cannot travel is an error that names its place.
//!
//! About `crates/protocol/src/value/mod.rs` and `crates/protocol/src/frame.rs`.

use snakepit::call::RemoteErrorKind;
use snakepit::value::{BigInt, Blob, DateTime, Map, NaiveDateTime};
use snakepit::{CallError, Value, args};

use crate::support::{Pit, chain, python, python_with_msgspec, soon, worker};

async fn echo(pit: &Pit, value: Value) -> Value {
    soon("an echo", pit.call("echo", args! { value: value })).await.expect("a value")
}

fn big(text: &str) -> Value {
    Value::from(text.parse::<BigInt>().expect("an integer"))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_value_round_trips() {
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    let two_to_200 = "1606938044258990275541962092341162602522202993782792835301376";
    let values = [
        Value::Nil,
        true.into(),
        0.into(),
        i64::MAX.into(),
        i64::MIN.into(),
        u64::MAX.into(),
        Value::Int(1 << 63),
        Value::Int(i128::MAX),
        Value::Int(i128::MIN),
        big(two_to_200),
        big(&format!("-{two_to_200}")),
        1.0.into(),
        (-0.0).into(),
        f64::INFINITY.into(),
        f64::NEG_INFINITY.into(),
        f64::MIN_POSITIVE.into(),
        "".into(),
        "ü\0\u{10ffff}\u{202e}".into(),
        Value::Bytes(vec![0, 255, 128].into()),
        Value::Bytes(vec![7; 100_000].into()),
        Value::DateTime(DateTime::new(1_700_000_000_123_456, 3600).expect("a time")),
        Value::DateTime(DateTime::new(-1, -5 * 3600 - 1800).expect("a time")),
        Value::NaiveDateTime(NaiveDateTime::new(1_700_000_000_123_456)),
        Value::List(vec![]),
        Value::Map(Map::new()),
    ];
    for value in &values {
        assert_eq!(&echo(&pit, value.clone()).await, value);
    }
    let all = Value::List(values.to_vec());
    assert_eq!(echo(&pit, all.clone()).await, all);
    assert!(echo(&pit, f64::NAN.into()).await.as_f64().is_some_and(f64::is_nan));
    assert_eq!(echo(&pit, (-0.0).into()).await.as_f64().map(f64::is_sign_negative), Some(true));
    pit.end().await;
}

/// Guards against tests that use another codec than intended.
#[tokio::test(flavor = "multi_thread")]
async fn the_workers_of_the_tests_use_the_codec_that_was_asked_for() {
    let asked = if python_with_msgspec().is_some() { "msgspec" } else { "python" };
    for file in ["hostile.py", "basic.py"] {
        let pit = Pit::start(worker(file).workers(1)).await;
        let (used, _): (String, bool) = soon("the codec", pit.call("codec", args! {})).await.expect("a name");
        assert_eq!(used, asked, "{file}");
        pit.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_goes_over_to_msgspec_serves_the_same_values() {
    for file in ["hostile.py", "basic.py"] {
        // The last value of a variable counts.
        let pit = Pit::start(snakepit::python(python(file).env("SNAKEPIT_CODEC", "auto")).workers(1)).await;
        let values = [
            Value::Nil,
            big("-340282366920938463463374607431768211456"),
            (-0.0).into(),
            "ü\0".into(),
            Value::Bytes(vec![7; 5000].into()),
            Value::DateTime(DateTime::new(1_700_000_000_123_456, 3600).expect("a time")),
            vec![Value::from(1), Value::Map(Map::new())].into(),
        ];
        for value in values.iter().cycle().take(600) {
            assert_eq!(&echo(&pit, value.clone()).await, value);
        }
        let (used, has_it): (String, bool) =
            soon("the codec", pit.call("codec", args! {})).await.expect("a name");
        assert_eq!(used, if has_it { "msgspec" } else { "python" }, "{file}");
        assert!(has_it || python_with_msgspec().is_none(), "SNAKEPIT_TEST_PYTHON has no msgspec");
        pit.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_need_not_be_text() {
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    let mut map = Map::new();
    map.insert(1, "one");
    map.insert(-7, "minus seven");
    map.insert(Value::Nil, "nil");
    map.insert(2.5, "two and a half");
    map.insert(Value::Bytes(vec![1, 2].into()), "bytes");
    map.insert("text", "text");
    map.insert("", "empty");
    assert_eq!(echo(&pit, Value::Map(map.clone())).await, Value::Map(map));
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_deep_nesting_is_rejected_on_both_sides_with_the_limit() {
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    let nested = |levels: usize| (0..levels).fold(Value::from(1), |inner, _| vec![inner].into());
    // The arguments are a level themselves.
    let deep = nested(127);
    assert_eq!(echo(&pit, deep.clone()).await, deep);
    let error = soon("the call", pit.call::<Value>("echo", args! { value: nested(200) }))
        .await
        .expect_err("too deep");
    assert!(matches!(error, CallError::Arguments { .. }), "{error}");
    assert!(chain(&error).contains("128"), "{}", chain(&error));
    let error = soon("the call", pit.call::<Value>("nested", args! { levels: 200 })).await;
    let error = error.expect_err("no such command");
    assert_eq!(error.remote().map(|error| error.kind.as_str()), Some("unknown_command"));
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_python_cannot_send_is_named_with_its_place() {
    let pit = Pit::start(worker("unsendable.py").workers(1)).await;
    let cases = [
        ("surrogate", "result.text", "surrogate"),
        ("decimal", "result[1]", "Decimal"),
        ("deep", "result", "128"),
        ("cycle", "result", "128"),
        ("a_class", "result.rows[2].thing", "Thing"),
        ("a_key", "result", "key"),
        ("a_date", "result", "date"),
    ];
    for (command, place, said) in cases {
        let error = soon(command, pit.call::<Value>(command, args! {})).await.expect_err("not sent");
        let remote = error.remote().unwrap_or_else(|| panic!("{command}: {error}"));
        assert_eq!(remote.kind, RemoteErrorKind::BadValue, "{command}: {error}");
        assert!(
            remote.path.as_deref().is_some_and(|path| path.starts_with(place)),
            "{command}: {:?}",
            remote.path
        );
        assert!(remote.message.contains(said), "{command}: {}", remote.message);
    }
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_mebibytes_travel_both_ways() {
    let pit = Pit::start(worker("hostile.py").workers(1)).await;
    let bytes = Blob::from(vec![42u8; 64 << 20]);
    let began = std::time::Instant::now();
    let call = pit.call::<Blob>("echo", args! { value: bytes.clone() });
    let echoed = soon("64 MiB", call).await.expect("bytes");
    println!("64 MiB there and back: {:?}", began.elapsed());
    assert!(echoed == bytes);
    let text = "y".repeat(64 << 20);
    let call = pit.call::<String>("echo", args! { value: text.as_str() });
    assert!(soon("64 MiB of text", call).await.expect("text") == text);
    pit.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_than_a_frame_may_hold_is_refused_and_costs_no_worker() {
    let pit = Pit::start(worker("hostile.py").workers(1).max_frame(1 << 20)).await;
    for length in [1 << 20, (1 << 20) + 1, 8 << 20] {
        let call = pit.call::<Value>("echo", args! { value: Blob::from(vec![1u8; length]) });
        let error = soon("the call", call).await.expect_err("too much");
        assert!(matches!(error, CallError::Arguments { .. }), "{error}");
        assert!(chain(&error).contains("max_frame"), "{}", chain(&error));
    }
    let call = pit.call::<Value>("echo", args! { value: Blob::from(vec![1u8; (1 << 20) - 1000]) });
    assert!(soon("the call", call).await.is_ok());
    assert_eq!(pit.pools()[0].workers()[0].id, "hostile-1", "it is the first one still");
    pit.end().await;
}
