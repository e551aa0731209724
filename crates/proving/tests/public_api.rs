//! The public API of every published crate is the one that `docs/api` lists, so every change to it is visible.
//!
//! The facade's list names what it re-exports. The list of the crate below describes the item.
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use snakepit_proving::unproven;

/// If this variable is set, the test writes the lists instead of comparing them.
const UPDATE: &str = "SNAKEPIT_UPDATE_API";

/// Crates that are not published, or are programs.
const WITHOUT_API: [&str; 4] = ["snakepit-bench", "snakepit-cli", "snakepit-error-texts", "snakepit-proving"];

#[test]
fn the_public_api_is_the_one_that_is_listed() {
    let version = Command::new("rustc").arg("--version").output().expect("rustc").stdout;
    let version = String::from_utf8(version).expect("text");
    let minimum = concat!("rustc ", env!("CARGO_PKG_RUST_VERSION"), ".");
    if !version.starts_with(minimum) {
        return unproven(&format!("the public API: {} writes it differently", version.trim()));
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let documentation = document(&workspace);
    let mut crates: Vec<PathBuf> = fs::read_dir(&documentation)
        .expect("the documentation")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    crates.sort();
    let listed = workspace.join("docs/api");
    let changes: Vec<String> = crates.iter().filter_map(|json| compare(json, &listed)).collect();
    assert!(
        changes.is_empty(),
        "the public API has changed:\n{}\nIf it is meant to, run `{UPDATE}=1 ./test public_api` and commit docs/api.",
        changes.join("\n")
    );
}

/// Generates the documentation as JSON in a separate target directory. The format is unstable, but a variable lets the
/// stable compiler generate it.
fn document(workspace: &Path) -> PathBuf {
    let target = workspace.join("target/api");
    let documentation = target.join("doc");
    // A crate that no longer exists must not be compared.
    let _ = fs::remove_dir_all(&documentation);
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["doc", "--workspace", "--lib", "--no-deps", "--all-features", "--locked", "--quiet"]);
    for name in WITHOUT_API {
        cargo.args(["--exclude", name]);
    }
    let done = cargo
        .current_dir(workspace)
        .env("CARGO_TARGET_DIR", &target)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTDOCFLAGS", "-Z unstable-options --output-format json --cap-lints allow")
        .env("SNAKEPIT_CHECK_ONLY", "1")
        .output()
        .expect("cargo");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    documentation
}

/// Returns the lines that are missing in one crate's list or should not be in it. Writes the list instead if requested.
fn compare(json: &Path, listed: &Path) -> Option<String> {
    let name = json.file_stem()?.to_str()?.replace('_', "-");
    let api = public_api::Builder::from_rustdoc_json(json)
        .omit_auto_derived_impls(true)
        .omit_auto_trait_impls(true)
        .omit_blanket_impls(true)
        .build()
        .unwrap_or_else(|error| panic!("{}: {error}", json.display()));
    let items: Vec<String> = api.items().map(ToString::to_string).collect();
    let list = listed.join(format!("{name}.txt"));
    if std::env::var_os(UPDATE).is_some() {
        fs::create_dir_all(listed).expect("docs/api");
        fs::write(&list, items.join("\n") + "\n").expect("the list");
        return None;
    }
    let known = fs::read_to_string(&list).unwrap_or_default();
    let known: Vec<&str> = known.lines().collect();
    let gone =
        known.iter().filter(|line| !items.iter().any(|item| item == *line)).map(|line| format!("- {line}"));
    let new = items.iter().filter(|item| !known.contains(&item.as_str())).map(|item| format!("+ {item}"));
    let changes: Vec<String> = gone.chain(new).collect();
    (!changes.is_empty()).then(|| format!("{name}:\n{}", changes.join("\n")))
}
