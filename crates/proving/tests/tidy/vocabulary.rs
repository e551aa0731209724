//! The words that name modules: those of the glossary, and plain ones that need no explanation.

use std::collections::BTreeSet;
use std::fs;

use super::{assert_none, python_modules, root, rust_sources};

/// The most words that a newcomer should have to learn.
const WORDS_OF_THE_GLOSSARY: usize = 30;

/// Words that may name a module without an entry in the glossary, in groups, each with the reason. A word that fits no
/// group is a new idea (then the glossary needs it), or a metaphor (then there is a noun that a stranger would search
/// for).
const PLAIN_WORDS: [(&str, &str); 8] = [
    (
        "Rust and Python: their keywords, traits, standard libraries and packages",
        "access args bigint blob blocking builder channel clone console crate de decode dir dynamic encode exec \
         fuzzing handle identity impls init input item jiff lib loader main map mod msgspec new options output read reader \
         runnable scalar ser serde set signature split splitter stream text thread time timeout timer typed unit write \
         writer",
    ),
    (
        "the operating system: processes, files, memory, devices",
        "abi address argument barrier buffer cgroup children clock cpu cuda descendant env exit file \
         hardware id interpreter interrupt job kill launch libc limit lock log machine memory namespace oom \
         orphan owner ownership pid pipe private proc process program reap reaper rocm scope script sdk secret \
         shutdown signal socket spawn spawner stack startup stat stdin stdio sweep sys system terminal wait \
         walk",
    ),
    (
        "protocols and formats: HTTP, gRPC, JSON, AMQP, SQLite, spec/wire.md",
        "base64 cancel cancellation client codec connection dead diff digest echo field frame grpc heartbeat \
         hello host http json letter line link listen listener outbox passthrough payload probe propagation protocol \
         python readiness ready receive reply request route schema server settle settlement slate span sqlite \
         stylesheet template trace transport wal wire",
    ),
    (
        "calls, pools and messages: terms of scheduling, queueing and fault tolerance",
        "admission availability backend breaker caller chain chunk concurrent contention delivery direct dispatch \
         draining duration estimate expiring extension external failpoint flusher gate group held holder idle \
         isolated jitter leased liveness load measure nested notifier operation order paused pending periodic \
         place placement priority progress quarantine queued rate recycling registry reload remote restart retry \
         scheduler serve service serial sharded similar sizing slot storage store stored stuck submitted subscription survivor \
         suspected tail taint task telemetry trial waiting watch watchdog window withdrawal",
    ),
    (
        "what happens, and what is said of it: states, outcomes, errors, reports",
        "answer closed crash death end ending error failed failure fault health history inspection journal \
         lifecycle listing logging open opening outcome record recording report result running stage start \
         state status step stop summary verdict",
    ),
    (
        "evaluations: statistics, and reports for people",
        "bench bootstrap comparison dataset display distribution doctor eval evaluation judgement mix page \
         plot responder significance statistics table word",
    ),
    (
        "building, configuring and testing software",
        "build cache catalog check checker cleanup command config configuration conformance context control \
         coordinator custody define fixture global helper maintenance manifest mock mode model notation plan \
         portable prepare prune recipe removal reopening requires rule runner search selection setting setup \
         shared subject target test tier",
    ),
    (
        "plain nouns and adjectives of every technical text",
        "assignment compound content conversion encoded foreign format function growth handling kept key list missing name \
         range raw",
    ),
];

/// Returns the words that the page explains.
fn glossary() -> BTreeSet<String> {
    let page = fs::read_to_string(root().join("docs/ARCHITECTURE.md")).expect("docs/ARCHITECTURE.md");
    let section = page.split("\n## ").find_map(|it| it.strip_prefix("Words\n")).expect("the glossary");
    let rows = section.lines().filter_map(|line| line.strip_prefix("| "));
    let cells = rows.filter_map(|row| row.split(" |").next()).filter(|cell| *cell != "word");
    cells.flat_map(|cell| cell.split(", ").map(str::to_owned)).collect()
}

/// Returns a word as it is written in a name, and the singulars that it may have.
fn singulars(part: &str) -> Vec<String> {
    let mut forms = vec![part.to_owned()];
    forms.extend(part.strip_suffix('s').map(str::to_owned));
    forms.extend(part.strip_suffix("es").map(str::to_owned));
    forms.extend(part.strip_suffix("ies").map(|stem| format!("{stem}y")));
    forms
}

/// Returns the parts of the names of all modules and folders of the published crates and of the Python SDK, each with a
/// file that has it.
fn parts() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut add = |names: &str, path: &str| {
        let parts = names.split(['/', '_']).filter(|part| !part.is_empty());
        found.extend(parts.map(|part| (part.to_owned(), path.to_owned())));
    };
    for source in rust_sources().into_iter().filter(super::SourceFile::is_published) {
        let (_, inside) = source.path.split_once("/src/").expect("a file below src");
        add(inside.strip_suffix(".rs").expect("Rust"), &source.path);
    }
    for module in python_modules() {
        add(module.strip_suffix(".py").expect("Python"), &format!("python/snakepit/{module}"));
    }
    found
}

#[test]
fn the_glossary_is_short() {
    let words = glossary();
    let most = WORDS_OF_THE_GLOSSARY;
    assert!(words.len() > 20 && words.len() <= most, "{} words, not at most {most}: {words:?}", words.len());
}

#[test]
fn modules_are_named_by_words_that_are_known() {
    let glossary = glossary();
    let plain: BTreeSet<&str> = PLAIN_WORDS.iter().flat_map(|(_, words)| words.split(' ')).collect();
    let is_known = |part: &str| {
        singulars(part).iter().any(|word| glossary.contains(word) || plain.contains(word.as_str()))
    };
    let found: BTreeSet<String> = parts()
        .into_iter()
        .filter(|(part, _)| !is_known(part))
        .map(|(part, path)| format!("{part}: {path}"))
        .collect();
    assert_none(
        &found.into_iter().collect::<Vec<_>>(),
        "name these by a word of the glossary in docs/ARCHITECTURE.md, or by one that a stranger would search for",
    );
}

#[test]
fn every_listed_plain_word_names_a_module() {
    let used: BTreeSet<String> = parts().iter().flat_map(|(part, _)| singulars(part)).collect();
    let glossary = glossary();
    let mut found = Vec::new();
    for (group, words) in PLAIN_WORDS {
        for word in words.split(' ') {
            if !used.contains(word) {
                found.push(format!("{word} names no module any more ({group})"));
            } else if glossary.contains(word) {
                found.push(format!("{word} is in the glossary ({group})"));
            }
        }
    }
    assert_none(&found, "remove these words");
}
