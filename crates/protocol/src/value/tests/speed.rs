//! Times the codec, for those who change it:
//! `cargo test --release -p snakepit-protocol speed -- --ignored --nocapture --test-threads=1`.

use std::hint::black_box;
use std::time::Instant;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::args;
use crate::value::{Blob, Encoded, Map, Value, ValueBuilder, write};

#[derive(Serialize, Deserialize)]
struct Coordinates {
    x: i64,
    name: String,
}

/// Prints the best of many short rounds, so that other work on the machine has no effect.
#[expect(clippy::disallowed_methods, reason = "it measures real time")]
fn measure<T>(what: &str, mut work: impl FnMut() -> T) {
    let mut round = |calls: u32| {
        let start = Instant::now();
        for _ in 0..calls {
            black_box(work());
        }
        start.elapsed().as_secs_f64() / f64::from(calls)
    };
    let first = round(100);
    let calls = (ROUND_SECONDS / first) as u32 + 1;
    let best = (0..ROUNDS).map(|_| round(calls)).fold(f64::INFINITY, f64::min);
    println!("{what:<44} {:>10.1} ns", best * 1e9);
}

const ROUND_SECONDS: f64 = 0.0005;
const ROUNDS: usize = 400;

#[test]
#[ignore = "prints times, to be read by a person"]
fn speed_of_small_and_large_values() {
    let point = Coordinates { x: 123_456, name: "name".into() };
    let sent = Encoded::encode(&point).expect("sendable");
    let value = sent.to_value().expect("a value");
    measure("encode a struct of two fields", || Encoded::encode(black_box(&point)).is_ok());
    let mut memory = Vec::with_capacity(64);
    measure("... behind what stands in a buffer", || {
        let mut builder = ValueBuilder::with_head(std::mem::take(&mut memory));
        let done = builder.value(black_box(&point)).is_ok();
        memory = builder.head;
        memory.clear();
        done
    });
    measure("args! of two", || args! { x: black_box(123_456), name: black_box("name") });
    measure("... and as the arguments of a call", || {
        crate::value::Args::new(&args! { x: black_box(123_456), name: black_box("name") })
            .into_encoded()
            .is_ok()
    });
    let args = args! { x: 123_456, name: "name" }.into_encoded().expect("sendable");
    measure("[command, args, deadline] around them", || {
        let mut builder = ValueBuilder::with_head(Vec::with_capacity(64));
        write::array_header(&mut builder.head, 3);
        write::str(&mut builder.head, "command");
        let done = builder.encoded(black_box(&args));
        write::uint(&mut builder.head, 1000);
        (done.is_ok(), builder.finish())
    });
    measure("decode a struct of two fields", || black_box(&sent).decode::<Coordinates>().is_ok());
    measure("decode (i64, i64)", {
        let pair = Encoded::encode(&(1, 1000)).expect("sendable");
        move || black_box(&pair).decode::<(i64, i64)>().is_ok()
    });
    measure("decode an i64", {
        let number = Encoded::encode(&1000).expect("sendable");
        move || black_box(&number).decode::<i64>().is_ok()
    });
    measure("encode a Value of two entries", || Encoded::encode(black_box(&value)).is_ok());
    measure("decode a Value of two entries", || black_box(&sent).to_value().is_ok());
    measure("... through serde", || black_box(&sent).decode::<Value>().is_ok());
    let rows: Vec<Coordinates> = (0..1000).map(|x| Coordinates { x, name: format!("row {x}") }).collect();
    let table = Encoded::encode(&rows).expect("sendable");
    measure("encode 1000 structs", || Encoded::encode(black_box(&rows)).is_ok());
    measure("decode 1000 structs", || black_box(&table).decode::<Vec<Coordinates>>().is_ok());
    measure("decode 1000 structs to a Value", || black_box(&table).to_value().is_ok());
    let blob = Map::from([("blob", Bytes::from(vec![0; 1 << 20]))]);
    let sent = Encoded::encode(&blob).expect("sendable");
    measure("encode a map with 1 MiB", || Encoded::encode(black_box(&blob)).is_ok());
    measure("decode a map with 1 MiB", || {
        black_box(&sent).decode::<std::collections::BTreeMap<String, Blob>>().is_ok()
    });
}
