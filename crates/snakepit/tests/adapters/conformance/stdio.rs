//! Workers that speak lines of JSON on their standard streams: in Python without the SDK, and, for the first checks, in
//! Bash and JavaScript.
//!
//! About `crates/adapters/src/stdio/mod.rs` and `crates/testing/src/adapters/mod.rs`.

use snakepit::PoolOptions;
use snakepit::conformance::{Capability, Feature, Subject, Way};

struct Stdio;

impl Subject for Stdio {
    fn pool(&self, way: Way) -> PoolOptions {
        snakepit::stdio(super::plain("stdio_worker.py", way))
    }

    fn capability(&self, feature: Feature) -> Capability {
        super::of_json(feature)
    }
}

snakepit::conformance_tests!(Stdio);

mod bash {
    //! Supports only `echo`, `add` and `fail`.

    use std::path::Path;

    use snakepit::PoolOptions;
    use snakepit::adapter::Program;
    use snakepit::conformance::{Subject, Way};

    struct Bash;

    impl Subject for Bash {
        fn pool(&self, way: Way) -> PoolOptions {
            let file =
                Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/adapters/conformance/stdio_worker.sh");
            snakepit::stdio(
                Program::new(["bash".into(), file.into_os_string()]).env("CONFORMANCE_WAY", way.word()),
            )
        }
    }

    snakepit::first_conformance_tests!(Bash);
}

mod javascript {
    //! All numbers are floats: integers end at 2^53, and 1.0 is 1.

    use std::path::Path;

    use snakepit::PoolOptions;
    use snakepit::adapter::Program;
    use snakepit::conformance::{Capability, CheckVerdict, Feature, Subject, Way};

    struct JavaScript;

    impl Subject for JavaScript {
        fn pool(&self, way: Way) -> PoolOptions {
            let file =
                Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/adapters/conformance/stdio_worker.mjs");
            snakepit::stdio(
                Program::new(["node".into(), file.into_os_string()]).env("CONFORMANCE_WAY", way.word()),
            )
        }

        fn capability(&self, feature: Feature) -> Capability {
            match feature {
                Feature::WideIntegers => Capability::Absent("the integers of JavaScript end at 2^53"),
                Feature::DistinctFloats => Capability::Absent("1.0 is 1 in JavaScript"),
                other => super::super::of_json(other),
            }
        }
    }

    snakepit::first_conformance_tests!(JavaScript);

    #[test]
    fn number_checks_are_skipped_with_the_reason_for_javascript() {
        for (check, said) in [
            (
                "integers_keep_their_size",
                "WideIntegers: the integers of JavaScript end at 2^53, and it is refused",
            ),
            ("floats_stay_floats", "DistinctFloats: 1.0 is 1 in JavaScript, and they are the same numbers"),
        ] {
            assert_eq!(snakepit::conformance::run(check, &JavaScript), CheckVerdict::Skipped(said.into()));
        }
    }
}
