//! The reference file and its page, generated from the definitions of the settings.
//!
//! `SNAKEPIT_BLESS=1 cargo nextest run -p snakepit --all-features --lib reference` regenerates both.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use crate::config::Config;
use crate::config::environment::InstallKeys;
use crate::config::foreign::Foreign;
use crate::config::loops::LoopTable;
use crate::config::service::ServiceConfig;
use crate::config::tables::WorkerKeys;
use crate::custody;
use crate::policy::{Breaker, Quarantine, Recycling, Restarts, Retry, Sizing, Stuck, Taint};
use crate::pool::CancelGrace;
use crate::telemetry::Logging;
use snakepit_core::pool::PoolSettings;
use snakepit_settings::{ReadSettings, SettingKey, SettingsTable, WriteSettings};

const WIDTH: usize = 120;

const INTRO: &str = "\
# Every key of a snakepit.toml, with its default. Paths are relative to the directory of this file. Durations have a
# unit (\"500ms\", \"5s\", \"2m\", \"1h 30m\"). Sizes are in bytes or have one (\"64KiB\", \"256MiB\"). An unknown key is an error.
# A line with # in front of a key shows a key that is unset by default, or whose default depends on the machine.
#
# This file is generated from the library's settings, and so is docs/configuration.md.
";

const PAGE_INTRO: &str = "\
# Configuration

Every key of a `snakepit.toml`, with its default. Paths are relative to the directory of the file. Durations have a unit
(`\"500ms\"`, `\"5s\"`, `\"2m\"`, `\"1h 30m\"`). Sizes are in bytes or have one (`\"64KiB\"`, `\"256MiB\"`). An unknown key is an error that
names the nearest known key. A Rust host calls methods of the same names, such as `PoolOptions::queue_limit`.

[default.toml](../crates/snakepit/default.toml) shows the same keys as a file to copy from. Both are generated from the library's settings.
";

/// A key as the reference shows it.
struct KeyRow {
    name: &'static str,
    text: String,
    /// The default in TOML, or `None` if the key is unset.
    default: Option<String>,
    example: Option<String>,
    /// The keys of the table, if the value is a table.
    nested: Vec<KeyRow>,
}

impl KeyRow {
    fn new(key: &SettingKey, default: &Value, nested: Vec<KeyRow>) -> Self {
        let doc: String = key.doc.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
        let (text, example) = match doc.split_once(" Example: `") {
            None => (doc, None),
            Some((text, example)) => {
                let example = example.strip_suffix("`.").unwrap_or_else(|| panic!("{doc}"));
                let value = example.strip_prefix(&format!("{} = ", key.name));
                (text.to_owned(), Some(value.unwrap_or_else(|| panic!("{doc}")).to_owned()))
            }
        };
        let inline = || inline_table(&nested);
        let (default, example) = match default {
            Value::Null if nested.is_empty() => (None, example),
            Value::Null => (None, example.or_else(inline)),
            Value::Object(_) if !nested.is_empty() => (inline(), example),
            default => (Some(toml(default)), example),
        };
        Self { name: key.name, text, default, example, nested }
    }
}

/// Returns the default values of the keys as an inline table.
fn inline_table(rows: &[KeyRow]) -> Option<String> {
    let entry = |row: &KeyRow| row.default.as_ref().map(|value| format!("{} = {value}", row.name));
    let entries: Vec<String> = rows.iter().filter_map(entry).collect();
    (!entries.is_empty()).then(|| format!("{{ {} }}", entries.join(", ")))
}

fn toml(value: &Value) -> String {
    match value {
        Value::Array(values) => format!("[{}]", values.iter().map(toml).collect::<Vec<_>>().join(", ")),
        Value::Object(entries) => {
            let entries: Vec<String> =
                entries.iter().map(|(key, value)| format!("{key} = {}", toml(value))).collect();
            format!("{{ {} }}", entries.join(", "))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

fn rows_of<S: ReadSettings>(defaults: &Value, mut nested: BTreeMap<&str, Vec<KeyRow>>) -> Vec<KeyRow> {
    let row = |key: &SettingKey| {
        let default = defaults.get(key.name).unwrap_or(&Value::Null);
        KeyRow::new(key, default, nested.remove(key.name).unwrap_or_default())
    };
    S::keys().iter().map(row).collect()
}

fn rows<S: WriteSettings + Default>(nested: BTreeMap<&str, Vec<KeyRow>>) -> Vec<KeyRow>
where
    SettingsTable<S>: Serialize,
{
    rows_of::<S>(&serde_json::to_value(SettingsTable(S::default())).expect("the defaults"), nested)
}

fn plain<S: WriteSettings + Default>() -> Vec<KeyRow> {
    rows::<S>(BTreeMap::new())
}

/// Returns the keys of a pool. The keys of nested tables are computed first.
fn pool_rows() -> Vec<KeyRow> {
    let install = rows_of::<InstallKeys>(&Value::Null, BTreeMap::new());
    let policies = BTreeMap::from([
        ("cancel_grace", plain::<CancelGrace>()),
        ("restarts", plain::<Restarts>()),
        ("retry", plain::<Retry>()),
        ("quarantine", plain::<Quarantine>()),
        ("breaker", plain::<Breaker>()),
        ("taint", plain::<Taint>()),
        ("stuck", plain::<Stuck>()),
    ]);
    let mut all = rows_of::<WorkerKeys>(&Value::Null, BTreeMap::from([("install", install)]));
    all.extend(rows::<PoolSettings>(policies));
    all.extend(plain::<Sizing>());
    all.extend(plain::<Recycling>());
    all
}

/// A table of the file.
struct Section {
    header: &'static str,
    about: &'static str,
    rows: Vec<KeyRow>,
    form: SectionForm,
}

#[derive(PartialEq)]
enum SectionForm {
    /// Active, with the defaults.
    Live,
    /// Commented out, for copying.
    Sample,
}

fn sections() -> Vec<Section> {
    let section = |header, about, rows, form| Section { header, about, rows, form };
    vec![
        section(
            "[pool.example]",
            "One table for each pool. Calls choose a pool by its name; calls that name none go to the first one in the file.",
            pool_rows(),
            SectionForm::Live,
        ),
        section(
            "[custody]",
            "How processes are kept in custody, for all pools.",
            plain::<Foreign<custody::CustodyOptions>>(),
            SectionForm::Live,
        ),
        section(
            "[log]",
            "How much is logged, through `tracing`, to the subscriber of the host.",
            plain::<Logging>(),
            SectionForm::Live,
        ),
        section(
            "[loop.example]",
            "One table for each loop from a mailbox to a command. `snakepit loop run` runs them; a host opens each with \
             `LoopConfig::open` (features `loops`, `sqlite`).",
            plain::<LoopTable>(),
            SectionForm::Sample,
        ),
        section(
            "[service]",
            "How the loops of this file run together.",
            plain::<ServiceConfig>(),
            SectionForm::Sample,
        ),
    ]
}

/// Writes a comment and breaks it into lines, but not inside backticks. Further lines begin with `next`.
fn comment(out: &mut String, first: &str, next: &str, text: &str) {
    let mut line = first.to_owned();
    let mut words = text.split(' ');
    while let Some(word) = words.next() {
        let mut word = word.to_owned();
        while word.matches('`').count() % 2 == 1 {
            let rest = words.next().expect("a closing backtick");
            let _ = write!(word, " {rest}");
        }
        if line.len() + 1 + word.len() > WIDTH {
            let _ = writeln!(out, "{line}");
            next.clone_into(&mut line);
        }
        let _ = write!(line, " {word}");
    }
    let _ = writeln!(out, "{line}");
}

fn file(sections: &[Section]) -> String {
    let mut out = INTRO.to_owned();
    for section in sections {
        out.push('\n');
        comment(&mut out, "#", "#", section.about);
        match section.form {
            SectionForm::Live => {
                let _ = writeln!(out, "{}", section.header);
                for row in &section.rows {
                    out.push('\n');
                    describe(&mut out, "#", row);
                    let _ = match (&row.default, &row.example) {
                        // A pool must state what its workers are.
                        (None, Some(example)) if row.name == "worker" => {
                            writeln!(out, "{} = {example}", row.name)
                        }
                        (_, Some(example)) => writeln!(out, "#{} = {example}", row.name),
                        (Some(default), None) => writeln!(out, "{} = {default}", row.name),
                        (None, None) => panic!("{} is unset and has no example", row.name),
                    };
                }
            }
            SectionForm::Sample => {
                let _ = writeln!(out, "#\n# {}", section.header);
                for row in &section.rows {
                    describe(&mut out, "#   #", row);
                    let value = row.example.as_ref().or(row.default.as_ref());
                    let value = value.unwrap_or_else(|| panic!("{} is unset and has no example", row.name));
                    let _ = writeln!(out, "#   {} = {value}", row.name);
                }
            }
        }
    }
    out
}

fn describe(out: &mut String, prefix: &str, row: &KeyRow) {
    comment(out, prefix, prefix, &row.text);
    let (first, next) = (format!("{prefix}  "), format!("{prefix}    "));
    for nested in &row.nested {
        comment(out, &first, &next, &format!("{}: {}", nested.name, nested.text));
    }
}

fn page(sections: &[Section]) -> String {
    let mut out = PAGE_INTRO.to_owned();
    for section in sections {
        let header = section.header.replace("example", "NAME");
        let _ = write!(out, "\n## `{header}`\n\n{}\n\n", section.about);
        page_table(&mut out, &section.rows);
        for row in section.rows.iter().filter(|row| !row.nested.is_empty()) {
            let _ = write!(out, "\n### `{}`\n\n{}\n\n", row.name, row.text);
            page_table(&mut out, &row.nested);
        }
    }
    out
}

fn page_table(out: &mut String, rows: &[KeyRow]) {
    out.push_str("| key | default | meaning |\n|---|---|---|\n");
    for row in rows {
        let default = match (&row.default, &row.example) {
            // Shown key by key in a table below.
            _ if !row.nested.is_empty() => format!("[see below](#{})", row.name),
            (Some(default), Some(example)) if default != example => "–".to_owned(),
            (Some(default), _) => format!("`{default}`"),
            (None, None) => "unset".to_owned(),
            (None, Some(example)) => format!("unset; such as `{example}`"),
        };
        let _ = writeln!(out, "| `{}` | {default} | {} |", row.name, row.text.replace('|', "\\|"));
    }
}

fn compare(path: &Path, text: &str) {
    if std::env::var_os("SNAKEPIT_BLESS").is_some() {
        std::fs::write(path, text).expect("the generated file");
    }
    let found = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let differs = found.lines().zip(text.lines()).position(|(found, made)| found != made);
    assert!(
        found == text,
        "{}:{}: differs from the settings; run this test with SNAKEPIT_BLESS=1 to regenerate the file",
        path.display(),
        differs.map_or_else(|| found.lines().count(), |line| line + 1),
    );
}

#[test]
fn the_reference_file_and_its_page_are_what_the_settings_say() {
    let sections = sections();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    compare(&root.join("default.toml"), &file(&sections));
    // A packaged crate comes without docs.
    let docs = root.join("../../docs");
    if docs.is_dir() {
        compare(&docs.join("configuration.md"), &page(&sections));
    }
}

#[test]
fn every_example_and_every_default_of_the_reference_is_read() {
    for section in sections() {
        let alone = |row: &KeyRow| row.example.clone().or_else(|| row.default.clone()).expect("a value");
        for row in &section.rows {
            let needs = match (section.header, row.name) {
                ("[pool.example]", "worker" | "command") | ("[loop.example]", "mailbox" | "command") => {
                    continue;
                }
                ("[pool.example]", "http") => "worker = \"w.py\"\nadapter = \"http\"\n",
                ("[pool.example]", "grpc") => "worker = \"w.py\"\nadapter = \"grpc\"\n",
                ("[pool.example]", "min_workers" | "grow_after" | "grow_factor") => {
                    "worker = \"w.py\"\nmax_workers = 8\n"
                }
                ("[pool.example]", _) => "worker = \"w.py\"\n",
                ("[loop.example]", _) => "mailbox = \"sqlite:a.db\"\ncommand = \"c\"\n",
                _ => "",
            };
            let pool =
                if section.header.starts_with("[pool") { "" } else { "[pool.example]\nworker = \"w.py\"\n" };
            let text = format!("{pool}{}\n{needs}{} = {}\n", section.header, row.name, alone(row));
            if let Err(error) = Config::parse(&text, "/conf/snakepit.toml") {
                let is_left_out = error.to_string().contains("is not in this build");
                assert!(is_left_out, "{error}:\n{text}");
            }
        }
    }
}
