//! The documentation of each type that a newcomer meets has an example.

use super::{SourceFile, assert_none, rust_sources};

/// The types and functions that a first program, a first mailbox, a first loop or a first evaluation uses.
const FIRST_NAMES: [(&str, &[&str]); 7] = [
    (
        "engines",
        &[
            "Blocking",
            "Builder",
            "Config",
            "ConfigError",
            "EngineError",
            "Script",
            "ScriptError",
            "ShutdownReport",
            "Snakepit",
            "StartError",
            "script",
        ],
    ),
    (
        "calls and values",
        &[
            "Args",
            "Autopsy",
            "Blob",
            "CallBuilder",
            "CallError",
            "CallStream",
            "Encoded",
            "MapBuilder",
            "RemoteError",
            "StreamBuilder",
            "ToolContext",
            "Value",
            "ValueError",
        ],
    ),
    (
        "pools",
        &[
            "HealthAnswer",
            "Mock",
            "Outcomes",
            "Pool",
            "PoolHealth",
            "PoolOptions",
            "PoolStatus",
            "Program",
            "PythonWorker",
            "Quarantine",
            "Recycling",
            "ReloadError",
            "Restarts",
            "Retry",
            "Sizing",
            "WorkerInfo",
            "WorkerStatus",
        ],
    ),
    (
        "environments and hardware",
        &["Cache", "Environment", "EnvironmentError", "Gpus", "Hardware", "Installer", "Python", "Threads"],
    ),
    (
        "mailboxes",
        &[
            "Backoff",
            "DeadLetter",
            "DeadLetterPolicy",
            "Mailbox",
            "MailboxError",
            "MemoryMailbox",
            "Message",
            "NackOptions",
            "QueueSettings",
            "Receipt",
            "ReceiveOptions",
            "Reply",
            "RequestOptions",
            "SendOptions",
            "SettingsChange",
            "SqliteMailbox",
            "SqliteOptions",
            "TypedMailbox",
            "TypedMessage",
        ],
    ),
    (
        "loops",
        &[
            "CrashPolicy",
            "GroupError",
            "HandlerFailure",
            "HealthServer",
            "LoopError",
            "LoopGroup",
            "LoopScope",
            "MainLoop",
            "PoolLoop",
            "PoolLoopOptions",
            "RunOptions",
            "Watchdog",
        ],
    ),
    (
        "evaluations",
        &[
            "Dataset",
            "EvalError",
            "EvalJournal",
            "EvalLoop",
            "EvalPlan",
            "EvalReport",
            "Evaluation",
            "Evaluator",
            "Experiment",
            "Judgement",
            "RemoteEvaluation",
            "Responder",
            "Sample",
        ],
    ),
];

/// Returns the documentation above the definition of a public type or function, or `None` if the text does not define
/// it.
fn documentation(text: &str, name: &str) -> Option<String> {
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let defines = |line: &&str| {
        let kinds = ["pub struct ", "pub enum ", "pub trait ", "pub fn "];
        let rest = kinds.iter().find_map(|kind| line.strip_prefix(kind)).and_then(|it| it.strip_prefix(name));
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    };
    let end = lines.iter().position(defines)?;
    // Attributes may stand in between.
    let above =
        lines[..end].iter().rev().take_while(|line| line.starts_with("///") || line.starts_with("#["));
    Some(above.copied().collect::<Vec<_>>().join("\n"))
}

#[test]
fn what_a_newcomer_meets_has_an_example() {
    let sources: Vec<SourceFile> = rust_sources().into_iter().filter(SourceFile::is_published).collect();
    let mut found = Vec::new();
    for name in FIRST_NAMES.iter().flat_map(|(_, names)| *names) {
        let mut places = sources
            .iter()
            .filter_map(|source| Some((&source.path, documentation(source.without_tests(), name)?)))
            .peekable();
        if places.peek().is_none() {
            found.push(format!("{name}: no such type or function"));
        }
        for (path, documentation) in places {
            if !documentation.contains("```") {
                found.push(format!("{path}: {name}"));
            }
        }
    }
    assert_none(&found, "write the example that a user of these would copy, or correct the list");
}

#[test]
fn the_documentation_of_a_type_ends_at_its_definition() {
    let text =
        "/// ```\n/// ```\n#[derive(Debug)]\npub struct Pool;\n\n/// Nothing.\npub enum PoolHealth {}\n";
    assert!(documentation(text, "Pool").is_some_and(|it| it.contains("```")));
    assert!(documentation(text, "PoolHealth").is_some_and(|it| !it.contains("```")));
    assert_eq!(documentation(text, "Worker"), None);
}
