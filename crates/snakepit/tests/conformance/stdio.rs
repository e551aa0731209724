//! Workers that speak lines of JSON on their standard streams: in Python without the SDK, and in Bash what that can do.

use snakepit::Pool;
use snakepit::conformance::{Capability, Feature, Subject, Way};

struct Stdio;

impl Subject for Stdio {
    fn pool(&self, way: Way) -> Pool {
        Pool::stdio(super::plain("stdio_worker.py", way))
    }

    fn capability(&self, feature: Feature) -> Capability {
        super::of_json(feature)
    }
}

snakepit::conformance_tests!(Stdio);

mod bash {
    //! No more than `echo`, `add` and `fail`.

    use std::path::Path;

    use snakepit::Pool;
    use snakepit::adapter::Program;
    use snakepit::conformance::{Subject, Way};

    struct Bash;

    impl Subject for Bash {
        fn pool(&self, way: Way) -> Pool {
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/stdio_worker.sh");
            Pool::stdio(
                Program::new(["bash".into(), file.into_os_string()]).env("CONFORMANCE_WAY", way.word()),
            )
        }
    }

    snakepit::first_conformance_tests!(Bash);
}
