//! Compiles or parses every snippet of the documents, or at least checks its syntax with its shell.
//!
//! A Rust snippet is the body of an async function in which the library's names are imported, unless it has a `main`.
//! What the snippet assumes stands before it in a comment that readers do not see: `<!-- rust: let order = Order; -->`,
//! or `<!-- rust-items: … -->` if it does not belong inside the function.
//!
//! About `crates/snakepit/src/lib.rs` and `crates/snakepit/src/config/mod.rs`.
#![expect(clippy::disallowed_methods, reason = "the tests start cargo, as a user would")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::Scene;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[derive(Debug)]
struct Snippet {
    place: String,
    language: String,
    code: String,
    /// The contents of the comment before the snippet.
    given: String,
    is_for_items: bool,
}

fn snippets() -> Vec<Snippet> {
    let mut files: Vec<PathBuf> =
        ["README.md", "python/README.md"].iter().map(|name| root().join(name)).collect();
    for entry in std::fs::read_dir(root().join("docs")).expect("docs") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "md") {
            files.push(path);
        }
    }
    files.iter().flat_map(|file| snippets_of(file)).collect()
}

fn snippets_of(file: &Path) -> Vec<Snippet> {
    let text = std::fs::read_to_string(file).expect("a document");
    let name = file.strip_prefix(root()).expect("below the root").display().to_string();
    let mut found = Vec::new();
    let (mut given, mut is_for_items) = (String::new(), false);
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let comment = [("<!-- rust: ", false), ("<!-- rust-items: ", true)]
            .into_iter()
            .find_map(|(begin, items)| Some((line.strip_prefix(begin)?, items)));
        if let Some((begin, items)) = comment {
            is_for_items = items;
            given.clear();
            let mut more = begin;
            while !more.trim_end().ends_with("-->") {
                given += more;
                given += "\n";
                more = lines.next().expect("the end of a comment").1;
            }
            given += more.trim_end().trim_end_matches("-->");
        } else if let Some(language) =
            line.trim_start().strip_prefix("```").filter(|language| !language.is_empty())
        {
            let indent = line.len() - line.trim_start().len();
            let code: Vec<&str> = lines
                .by_ref()
                .map(|(_, line)| line.get(indent..).unwrap_or_default())
                .take_while(|line| !line.starts_with("```"))
                .collect();
            found.push(Snippet {
                place: format!("{name}:{}", number + 1),
                language: language.to_owned(),
                code: code.join("\n"),
                given: std::mem::take(&mut given),
                is_for_items,
            });
            is_for_items = false;
        } else if line.trim_start().starts_with("```") {
            // A block without a language is not our code.
            lines.by_ref().find(|(_, line)| line.trim_start().starts_with("```"));
        }
    }
    found
}

const NAMES: &str = "\
#[allow(unused_imports)] use std::sync::Arc;
#[allow(unused_imports)] use std::time::Duration;
#[allow(unused_imports)] use snakepit::*;
#[allow(unused_imports)] use snakepit::loops::*;
#[allow(unused_imports)] use snakepit::mailbox::*;
";

fn as_module(index: usize, snippet: &Snippet) -> String {
    let Snippet { place, code, given, is_for_items, .. } = snippet;
    let mut module = format!("// {place}\nmod snippet_{index} {{\n");
    if *is_for_items || code.contains("fn main") {
        let _ = write!(module, "{given}\n{code}\n");
    } else {
        let _ = write!(
            module,
            "{NAMES}\nasync fn snippet() -> Result<(), Box<dyn std::error::Error>> {{\n{given}\n{code}\n;Ok(()) }}\n"
        );
    }
    module + "}\n"
}

#[test]
fn rust_snippets_compile() {
    let scene = Scene::new();
    let dir = scene.state_dir();
    let mut code = String::from("#![allow(warnings)]\n");
    for (index, snippet) in snippets().iter().enumerate().filter(|(_, snippet)| snippet.language == "rust") {
        code += &as_module(index, snippet);
    }
    let library = root().join("crates/snakepit");
    let custody = root().join("crates/custody");
    let manifest = format!(
        "[package]\nname = \"documents\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n[dependencies]\n\
         snakepit = {{ path = {library:?}, features = [\"config\", \"conformance\", \"evals\", \"grpc\", \"health\", \
         \"http\", \"sqlite\", \"stdio\"] }}\nsnakepit-custody = {{ path = {custody:?} }}\nserde = {{ version = \"1\", \
         features = [\"derive\"] }}\nserde_json = \"1\"\ntracing = \"0.1\"\ntokio = {{ version = \"1\", features = \
         [\"macros\", \"rt-multi-thread\"] }}\n"
    );
    std::fs::create_dir(dir.join("src")).expect("a directory");
    std::fs::write(dir.join("src/lib.rs"), code).expect("the snippets");
    std::fs::write(dir.join("Cargo.toml"), manifest).expect("a manifest");
    // With the versions of this workspace, nothing is downloaded.
    std::fs::copy(root().join("Cargo.lock"), dir.join("Cargo.lock")).expect("the versions");
    let target = Path::new(env!("CARGO_BIN_EXE_snakepit")).ancestors().nth(2).expect("the target directory");
    let checked = Command::new(env!("CARGO"))
        .args(["check", "--offline", "--quiet", "--all-targets"])
        .current_dir(dir)
        .env("CARGO_TARGET_DIR", target)
        .stdin(Stdio::null())
        .output()
        .expect("cargo");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

#[test]
fn configuration_snippets_load() {
    let scene = Scene::new();
    let file = scene.state_dir().join("snakepit.toml");
    for snippet in snippets().iter().filter(|snippet| snippet.language == "toml") {
        // Some are parts of a Cargo.toml.
        if !["[pool", "[loop", "[log", "[custody"].iter().any(|table| snippet.code.contains(table)) {
            continue;
        }
        let pool =
            if snippet.code.contains("[pool") { "" } else { "[pool.python]\nworker = \"worker.py\"\n" };
        std::fs::write(&file, format!("{pool}{}", snippet.code)).expect("a file");
        if let Err(error) = snakepit::Config::load(&file) {
            panic!("{}: {error}\n{}", snippet.place, snippet.code);
        }
    }
}

#[test]
fn python_and_shell_snippets_parse() {
    for snippet in snippets() {
        let (program, words) = match snippet.language.as_str() {
            "python" | "py" => ("python3", vec!["-c", "import sys; compile(sys.argv[1], 'snippet', 'exec')"]),
            "sh" | "bash" => ("bash", vec!["-n", "-c"]),
            _ => continue,
        };
        let parsed = Command::new(program).args(words).arg(&snippet.code).output().expect(program);
        let said = String::from_utf8_lossy(&parsed.stderr).into_owned();
        assert!(parsed.status.success(), "{}: {said}", snippet.place);
    }
}
