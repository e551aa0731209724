//! The contract of all adapters: `snakepit::conformance` for each of them.
//!
//! About `crates/adapters/src/mock.rs` and `crates/testing/src/adapters/mod.rs`.

#[cfg(feature = "grpc")]
mod grpc;
#[cfg(feature = "http")]
mod http;
mod mock {
    //! Workers that are closures.
    snakepit::conformance_tests!(snakepit::conformance::MockSubject);
}
mod python;
#[cfg(feature = "stdio")]
mod stdio;

/// Returns a worker whose file is in this directory and whose behaviour is set by its environment.
#[cfg(any(feature = "http", feature = "stdio"))]
fn plain(file: &str, way: snakepit::conformance::Way) -> snakepit::adapter::Program {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/adapters/conformance").join(file);
    snakepit::adapter::Program::new(["python3".into(), file.into_os_string()])
        .env("CONFORMANCE_WAY", way.word())
}

/// Returns the capability of protocols whose values are those of JSON and in which only the host makes requests.
#[cfg(any(feature = "http", feature = "stdio"))]
fn of_json(feature: snakepit::conformance::Feature) -> snakepit::conformance::Capability {
    use snakepit::conformance::{Capability, Feature};
    match feature {
        Feature::Bytes => Capability::Absent("JSON has no byte strings"),
        Feature::DateTimes => Capability::Absent("JSON has no date-times"),
        Feature::BigIntegers => Capability::Absent("the readers of JSON make other numbers of them"),
        Feature::NonFiniteFloats => Capability::Absent("JSON has finite numbers only"),
        Feature::AnyKeys => Capability::Absent("the keys of JSON are text"),
        Feature::RefusedResults => Capability::Absent("what a worker sends is its own matter"),
        Feature::Tools => Capability::Absent("the protocol has no way to ask the host"),
        _ => Capability::Present,
    }
}
