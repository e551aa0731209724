//! Workers that serve HTTP, in Python and without the SDK.
//!
//! About `crates/adapters/src/http/mod.rs` and `crates/testing/src/adapters/mod.rs`.

use snakepit::PoolOptions;
use snakepit::conformance::{Capability, Feature, Subject, Way};

struct Http;

impl Subject for Http {
    fn pool(&self, way: Way) -> PoolOptions {
        snakepit::http(super::plain("http_worker.py", way))
    }

    fn capability(&self, feature: Feature) -> Capability {
        super::of_json(feature)
    }
}

snakepit::conformance_tests!(Http);
