//! Every error at the command line and the help of every command, as snapshots. The tables below run the program with
//! bad input and record its exit status and stderr.
//!
//! After a deliberate change, `INSTA_UPDATE=always cargo nextest run -p snakepit-cli --test cli errors` rewrites the
//! snapshots.
//!
//! About `crates/cli/src/main.rs` and `crates/cli/src/shared/failure.rs`.

mod home;

use std::fmt::Write as _;
use std::fs;

use home::Home;

#[test]
fn wrong_command_lines() {
    let transcript = Home::new().transcript(
        "",
        &[
            &["nothing"],
            &["calll"],
            &["call"],
            &["call", "--no-such-option", "add"],
            &["call", "-w", "worker.py", "-c", "snakepit.toml", "add"],
            &["call", "--adapter", "smoke", "-w", "worker.py", "add"],
            &["call", "--adapter", "stdio", "add"],
            &["call", "--timeout", "0", "-w", "worker.py", "add"],
            &["call", "--timeout", "soon", "-w", "worker.py", "add"],
            &["exec"],
            &["exec", "--tier", "steel", "--", "true"],
            &["exec", "--grace", "soon", "--", "true"],
            &["exec", "--copies", "0", "--", "true"],
            &["eval", "data.jsonl"],
            &["eval", "data.jsonl", "--command", "add", "--retry-errors"],
            &["loop"],
            &["mailbox"],
            &["mailbox", "show", "sqlite:mail.db", "seven"],
            &["mailbox", "settings", "sqlite:mail.db", "--rate", "many"],
            &["mailbox", "settings", "sqlite:mail.db", "--rate", "x/1m"],
            &["mailbox", "send", "sqlite:mail.db", "x", "--attribute", "a"],
            &["mailbox", "send", "sqlite:mail.db", "x", "--priority", "1000"],
            &["env", "build", "--pool", "a", "numpy"],
        ],
    );
    insta::assert_snapshot!(transcript);
}

#[test]
fn exec() {
    let transcript = Home::new().transcript(
        "",
        &[
            &["exec", "--", "no-such-command"],
            &["exec", "--", "./no-such-command"],
            &["exec", "--", "./plain"],
            &["exec", "--", "./noise"],
            &["exec", "--", "./empty"],
            &["exec", "--json", "--", "no-such-command"],
            &["exec", "--state-dir", "/dev/null", "--", "true"],
            &["exec", "--state-dir", "/proc/state", "--", "true"],
            &["exec", "--state-dir", "open", "--", "true"],
            &["exec", "--state-dir", "link", "--", "true"],
            &["exec", "--state-dir", "plain", "--", "true"],
        ],
    );
    insta::assert_snapshot!(transcript);
}

#[test]
fn call_without_a_worker() {
    let transcript = Home::new().transcript(
        "empty",
        &[
            &["call", "add"],
            &["call", "-w", "absent.py", "add"],
            &["call", "-w", "..", "add"],
            &["call", "-w", "absent", "--adapter", "stdio", "add"],
            &["call", "-c", "nowhere.toml", "add"],
            &["call", "-c", "../not.toml", "add"],
            &["call", "-c", "../key.toml", "add"],
            &["call", "-c", "../type.toml", "add"],
            &["call", "-c", "../range.toml", "add"],
            &["call", "-c", "../table.toml", "add"],
            &["call", "-c", "../none.toml", "add"],
            &["call", "-c", "../absent.toml", "add"],
            &["call", "-c", "../python.toml", "add"],
            &["call", "-c", "../project/snakepit.toml", "--pool", "wroker", "add"],
            &["call", "-w", "../project/worker.py", "--state-dir", "/dev/null", "add"],
            &["call", "--json", "add"],
        ],
    );
    insta::assert_snapshot!(transcript);
}

#[test]
fn call_with_wrong_arguments() {
    let transcript = Home::new().transcript(
        "",
        &[
            &["call", "add", "World"],
            &["call", "add", "=1"],
            &["call", "add", "a=1", "a:=2"],
            &["call", "add", "a:=World"],
            &["call", "add", "a:time=soon"],
            &["call", "add", "@absent.json"],
            &["call", "add", "@list.json"],
            &["call", "add", "@not.json"],
            &["call", "add", "a=@noise"],
            &["call", "add", "a=@-", "b=@-"],
        ],
    );
    insta::assert_snapshot!(transcript);
}

#[test]
fn call_that_the_worker_refuses() {
    let transcript = Home::new().transcript(
        "project",
        &[
            &["call", "sub", "a:=1"],
            &["call", "count", "to:=3"],
            &["call", "add", "a:=1"],
            &["call", "add", "a:=1", "c:=2"],
            &["call", "--json", "sub"],
        ],
    );
    insta::assert_snapshot!(transcript);
}

#[test]
fn call_whose_worker_ends_badly() {
    let transcript = Home::new().transcript(
        "",
        &[
            &["call", "-w", "exits.py", "add"],
            &["call", "-w", "silent.py", "--timeout", "100ms", "add"],
            &["PATH=/nowhere", "call", "-w", "hard.py", "leave"],
            &["call", "-w", "plain", "--adapter", "stdio", "add"],
            &["call", "-w", "hard.py", "leave"],
            &["call", "-w", "hard.py", "--timeout", "4s", "wait"],
            &["call", "-w", "hard.py", "--json", "unprintable"],
        ],
    );
    insta::assert_snapshot!(transcript);
}

#[test]
fn eval() {
    let home = Home::new();
    let worker = ["-w", "project/worker.py", "--command", "add"];
    let cases: Vec<Vec<&str>> = [
        &["absent.jsonl"][..],
        &["empty.jsonl"],
        &["line.jsonl"],
        &["input.jsonl"],
        &["data.jsonl", "--evaluator", "regex:("],
        &["data.jsonl", "--evaluator", "guess"],
        &["data.jsonl", "--evaluator", "python:absent.py:judge"],
        &["data.jsonl", "--experiment", "a={\"comand\": 1}"],
        &["data.jsonl", "--experiment", "a", "--experiment", "a"],
        &["data.jsonl", "--html", "absent/report.html", "--checkpoint", "html.jsonl"],
        &["data.jsonl", "--checkpoint", "other.eval.jsonl"],
        &["data.jsonl", "--checkpoint", "other.eval.jsonl", "--resume"],
        &["data.jsonl", "--checkpoint", "absent/results.jsonl"],
        &["data.jsonl", "--checkpoint", "sub.jsonl", "--experiment", "sub=sub"],
        &["data.jsonl", "--checkpoint", "judge.jsonl", "--evaluator", "judge:fair"],
        &["data.jsonl", "--checkpoint", "pool.jsonl", "--experiment", "a={\"pool\": \"wroker\"}"],
    ]
    .iter()
    .map(|words| [&["eval"][..], words, &worker].concat())
    .collect();
    let cases: Vec<&[&str]> = cases.iter().map(Vec::as_slice).collect();
    let without_worker: &[&str] = &["eval", "data.jsonl", "--command", "add"];
    let broken_worker: &[&str] = &[
        "eval",
        "data.jsonl",
        "-w",
        "exits.py",
        "--command",
        "add",
        "--checkpoint",
        "exits.jsonl",
        "--workers",
        "1",
    ];
    let transcript = home.transcript("", &[&cases[..], &[without_worker, broken_worker]].concat());
    insta::assert_snapshot!(transcript);
}

#[test]
fn loops() {
    let transcript = Home::new().transcript(
        "",
        &[
            &["loop", "run"],
            &["loop", "run", "-c", "nowhere.toml"],
            &["loop", "run", "-c", "project/snakepit.toml"],
            &["loop", "run", "-c", "loops.toml", "sms"],
            &["loop", "run", "-c", "loops.toml"],
            &["loop", "run", "-c", "loops.toml", "--health", "here"],
            &["loop", "run", "-c", "pool.toml"],
            &["loop", "run", "-c", "command.toml"],
        ],
    );
    insta::assert_snapshot!(transcript);
}

#[test]
fn mailbox() {
    const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";
    let transcript = Home::new().transcript(
        "",
        &[
            &["mailbox", "count", "redis://here"],
            &["mailbox", "count", "sqlite:"],
            &["mailbox", "count", "sqlite:absent.db"],
            &["mailbox", "count", "sqlite:mail.db#numbres"],
            &["mailbox", "count", "sqlite:noise"],
            &["mailbox", "send", "sqlite:absent/mail.db", "x"],
            &["mailbox", "send", "sqlite:mail.db#numbers", "x", "--delay", "9000h"],
            &["mailbox", "receive", "sqlite:mail.db#numbers", "--max", "11"],
            &["mailbox", "receive", "sqlite:mail.db#numbers", "--wait", "1m"],
            &["mailbox", "ack", "sqlite:mail.db#numbers", "a-receipt"],
            &["mailbox", "release", "sqlite:mail.db#numbers", "a-receipt"],
            &["mailbox", "nack", "sqlite:mail.db#numbers", "a-receipt"],
            &["mailbox", "extend", "sqlite:mail.db#numbers", "a-receipt", "1m"],
            &["mailbox", "extend", "sqlite:mail.db#numbers", "a-receipt", "13h"],
            &["mailbox", "pause", "sqlite:absent.db"],
            &["mailbox", "recover", "sqlite:absent.db"],
            &["mailbox", "dlq", "list", "sqlite:absent.db"],
            &["mailbox", "settings", "sqlite:mail.db#numbers", "--max-deliveries", "0"],
            &["mailbox", "settings", "sqlite:mail.db#numbers", "--rate", "0/1m"],
            &["mailbox", "show", "sqlite:mail.db#numbers", ID],
            &["mailbox", "result", "sqlite:mail.db#numbers", ID],
            &["mailbox", "backup", "sqlite:mail.db#numbers", "backup.db"],
        ],
    );
    insta::assert_snapshot!(transcript);
}

#[test]
fn environments() {
    let transcript = Home::new().transcript(
        "",
        &[
            &["env", "build"],
            &["env", "build", "--python", "3.12"],
            &["env", "build", "-c", "project/snakepit.toml", "--pool", "wroker"],
            &["env", "build", "-r", "absent.txt"],
            &["env", "build", "--project", "absent/pyproject.toml"],
            &["env", "build", "--python", "absent/python", "numpy"],
            &["env", "list", "--cache-dir", "/dev/null"],
            &["env", "prune", "--cache-dir", "/dev/null"],
        ],
    );
    insta::assert_snapshot!(transcript);
}

#[test]
fn files_that_cannot_be_written() {
    let transcript = Home::new().transcript(
        "",
        &[
            &["init", "taken"],
            &["init", "/dev/null/project"],
            &["new-adapter", "My Lines"],
            &["new-adapter", "match"],
            &["new-adapter", "tokio"],
            &["new-adapter", "my-lines", "--into", "taken"],
            &["new-adapter", "my-lines", "--into", "/dev/null/x"],
            &["new-adapter", "my-lines", "--snakepit", "empty"],
            &["sdk", "install"],
            &["sdk", "install", "--into", "empty"],
            &["sdk", "install", "--into", "venv"],
            &["sdk", "install", "--into", "packaged"],
            &["sdk", "path", "--state-dir", "/dev/null"],
            &["ledger", "--state-dir", "/dev/null"],
            &["cleanup", "--state-dir", "/dev/null"],
            &["bench", "--state-dir", "/dev/null"],
        ],
    );
    insta::assert_snapshot!(transcript);
}

#[test]
fn streams_directories_and_addresses_that_cannot_be_used() {
    let home = Home::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address").to_string();
    let mut transcript = String::new();
    for line in [
        "snakepit exec -- true <&-",
        "mkdir gone && cd gone && rmdir ../gone && snakepit exec -- true",
        "snakepit mailbox send sqlite:mail.db#numbers - < .",
        "snakepit mailbox send sqlite:mail.db#numbers 1 > /dev/null && snakepit mailbox receive sqlite:mail.db#numbers > /dev/full",
        "snakepit loop run -c free.toml --health ADDRESS",
        "VIRTUAL_ENV=unwritable snakepit sdk install",
    ] {
        let done = home.shell(&line.replace("ADDRESS", &address));
        transcript.push_str(&home.shown(line, done).replace(&address, "ADDRESS"));
    }
    insta::assert_snapshot!(transcript);
}

#[test]
fn checkpoints_that_cannot_be_continued() {
    let home = Home::new();
    let words = [
        "eval",
        "two.jsonl",
        "-w",
        "project/worker.py",
        "--command",
        "add",
        "--checkpoint",
        "two.eval.jsonl",
    ];
    let done = home.run(&words, &home.path(""));
    assert!(done.status.success(), "{done:?}");
    let text = fs::read_to_string(home.path("two.eval.jsonl")).expect("the checkpoint");
    let lines: Vec<&str> = text.lines().collect();
    let write =
        |lines: &[&str]| fs::write(home.path("two.eval.jsonl"), lines.join("\n") + "\n").expect("a file");
    write(&lines[..2]);
    let mut transcript = home.transcript("", &[&words]);
    write(&[lines[0], "x", lines[2]]);
    transcript.push_str(&home.transcript("", &[&[&words[..], &["--resume"]].concat()]));
    insta::assert_snapshot!(transcript);
}

#[test]
fn help_of_every_command() {
    let home = Home::new();
    let help = |words: &[&str]| {
        let done = home.run(&[words, &["--help"]].concat(), &home.path(""));
        assert!(done.status.success(), "{words:?}");
        String::from_utf8(done.stdout).expect("text")
    };
    // Walks the commands that the help lists, depth first.
    let mut left = vec![Vec::<String>::new()];
    let mut text = String::new();
    while let Some(command) = left.pop() {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let shown = help(&words);
        let listed = shown.split_once("\nCommands:\n").map(|(_, rest)| rest).unwrap_or_default();
        let names = listed
            .lines()
            .take_while(|line| !line.is_empty())
            .filter_map(|line| line.split_whitespace().next());
        let below = names
            .filter(|name| *name != "help")
            .map(|name| command.iter().cloned().chain([name.to_owned()]).collect::<Vec<String>>());
        left.extend(below.collect::<Vec<_>>().into_iter().rev());
        let _ = write!(text, "==> snakepit {}\n\n{shown}\n", [&words[..], &["--help"]].concat().join(" "));
    }
    let transcript = text.replace(&home.0.path().display().to_string(), "~");
    insta::assert_snapshot!(transcript);
}
