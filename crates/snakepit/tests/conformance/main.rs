//! One contract for all adapters: `snakepit::conformance` over each of them.

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

/// A worker that is a file beside this one, and gets its way by its environment.
#[cfg(any(feature = "http", feature = "stdio"))]
fn plain(file: &str, way: snakepit::conformance::Way) -> snakepit::adapter::Program {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance").join(file);
    snakepit::adapter::Program::new(["python3".into(), file.into_os_string()])
        .env("CONFORMANCE_WAY", way.word())
}
