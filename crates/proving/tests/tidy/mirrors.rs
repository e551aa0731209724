//! Names that the Python SDK and the Rust side share: who knows one of them finds the other.

use super::{assert_none, python_modules, root};

/// Modules below `python/snakepit`, and those below `crates` with the same subject.
const MIRRORS: [(&str, &str); 15] = [
    ("frame", "protocol/src/frame"),
    ("grpc", "adapters/src/grpc"),
    ("grpc/calls", "adapters/src/grpc/calls"),
    ("grpc/messages", "adapters/src/grpc/messages"),
    ("message", "protocol/src/message"),
    ("transport", "adapters/src/transport"),
    ("transport/connection", "adapters/src/transport/connection"),
    ("transport/slate", "adapters/src/transport/slate"),
    ("transport/spans", "adapters/src/transport/spans"),
    ("transport/task_stacks", "adapters/src/transport/task_stacks"),
    ("transport/tools", "adapters/src/transport/tools"),
    ("value", "protocol/src/value"),
    ("value/decode", "protocol/src/value/decode"),
    ("value/encode", "protocol/src/value/encode"),
    ("value/error", "protocol/src/value/error"),
];

#[test]
fn names_in_python_mirror_those_in_rust() {
    let modules = python_modules();
    let mut found = Vec::new();
    for (python, rust) in MIRRORS {
        if ![format!("{python}.py"), format!("{python}/__init__.py")]
            .iter()
            .any(|path| modules.contains(path))
        {
            found.push(format!("python/snakepit/{python}"));
        }
        let forms = [format!("crates/{rust}.rs"), format!("crates/{rust}/mod.rs")];
        if !forms.iter().any(|path| root().join(path).is_file()) {
            found.push(format!("crates/{rust}"));
        }
        let name = |path: &str| path.rsplit('/').next().map(str::to_owned);
        assert_eq!(name(python), name(rust), "the names differ");
    }
    assert_none(&found, "rename the mirrors of these as well");
}
