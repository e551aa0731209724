//! Workers that serve HTTP, in Python and without the SDK.

use snakepit::Pool;
use snakepit::conformance::{Capability, Feature, Subject, Way};

struct Http;

impl Subject for Http {
    fn pool(&self, way: Way) -> Pool {
        Pool::http(super::plain("http_worker.py", way))
    }

    fn capability(&self, feature: Feature) -> Capability {
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
}

snakepit::conformance_tests!(Http);
