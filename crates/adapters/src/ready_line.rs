//! Workers that announce themselves: one line of JSON on standard output reports that the worker is ready and where
//! it listens.
//!
//! ```json
//! {"status": "ready", "port": 54321, "pid": 12345}
//! ```
//!
//! | key | |
//! |---|---|
//! | `status` | `"ready"` |
//! | `port` | the TCP port of the loopback that the worker listens on, or |
//! | `socket` | the path of a Unix socket, instead of `port` |
//! | `pid` | the worker's process id as it sees it (`getpid`); optional |
//! | `commands` | the commands that the worker serves, a list of strings; optional |
//! | `features` | the features that the worker declares, a list of strings; optional |
//!
//! A worker whose numbers are all floats, as in JavaScript, declares `safe-integers`. The host then rejects integers
//! of 2^53 and more, with their place, because the worker would read them as other numbers.
//!
//! Lines before and after the ready line are logs. A line that is almost a ready line is an error that says what is
//! wrong: otherwise the worker, which believes it is ready, and the host would wait for each other. The pid must
//! belong to a process in the custody of the started worker, because a wrapper script may or may not `exec` the
//! server. The process that counts is still the one that was started.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Map, Value as Json};

use super::lines::{Line, LineReader};
use super::{Introduction, ProtocolFault, Spawner, StartError, pids};
use crate::adapter::WorkerChannel;
use crate::custody::{self, Command, Stdio};
use crate::harmless;

/// The maximum length of a ready line.
const LONGEST: usize = 256 * 1024;
/// The number of characters of a line that an error shows.
const SHOWN: usize = 200;

/// The address at which a worker can be reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// A TCP port of the loopback.
    Port(u16),
    /// A Unix socket.
    Socket(PathBuf),
}

/// What a ready line must say about where the worker listens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listens {
    /// The worker names no address: its calls reach it another way.
    Nowhere,
    /// The worker listens on a port or on a socket.
    Somewhere,
    /// The worker listens on a Unix socket, not on a port.
    OnSocket,
}

impl Listens {
    /// Returns a hint that shows the line a worker must print.
    fn way_out(self) -> String {
        let place = match self {
            Self::Nowhere => "",
            Self::Somewhere => r#", "port": 54321"#,
            Self::OnSocket => r#", "socket": "/path""#,
        };
        format!(
            "A worker says that it is ready with one line on its standard output, flushed: {{\"status\": \"ready\"{place}}}"
        )
    }
}

/// The contents of a ready line.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Announcement {
    /// Where the worker can be reached. Always present if an address was required.
    pub address: Option<Address>,
    /// The worker's process id, as the worker sees it.
    pub pid: Option<u32>,
    /// The commands that the worker serves, if it lists them.
    pub commands: Vec<String>,
    /// The features that the worker declares.
    pub features: Vec<String>,
    /// The whole line.
    pub line: Map<String, Json>,
}

/// A worker that is ready.
#[derive(Debug)]
#[non_exhaustive]
pub struct Announced {
    /// The process that was started, even if another process printed the ready line.
    pub process: custody::WorkerProcess,
    /// The contents of its ready line.
    pub announcement: Announcement,
}

/// Starts a worker and waits until it reports that it is ready. All other output is captured as usual.
pub async fn start(spawner: &Spawner, command: Command, listens: Listens) -> Result<Announced, StartError> {
    start_or(spawner, command, listens, "").await
}

/// Like [`start`], for an adapter that also supports programs without a ready line. `other_way` is added to the error
/// and describes how.
pub(super) async fn start_or(
    spawner: &Spawner,
    command: Command,
    listens: Listens,
    other_way: &str,
) -> Result<Announced, StartError> {
    let (process, stdout) = spawner.spawn_tapped(command, Stdio::Null).await?;
    let limit = LONGEST.min(spawner.max_frame());
    let mut lines = LineReader::new(stdout, spawner.output(), limit)
        .map_err(|error| spawner.system("a pipe for its output", error))?;
    let announcement = ready(spawner, &process, &mut lines, listens, other_way).await?;
    lines.leave_to_output();
    Ok(Announced { process, announcement })
}

/// Waits until a worker reports that it is ready.
pub(super) async fn ready(
    spawner: &Spawner,
    process: &custody::WorkerProcess,
    lines: &mut LineReader,
    listens: Listens,
    other_way: &str,
) -> Result<Announcement, StartError> {
    spawner.awaits("no ready line came", format!("{}{other_way}", listens.way_out()));
    let mut listening = ReadyListener { lines, is_over: false };
    let announcement = loop {
        let line = match listening.lines.next().await {
            Ok(Line::Object(line)) => line,
            Ok(Line::TooLong) => continue,
            Ok(Line::End) => {
                return Err(spawner
                    .ended_early(process, ProtocolFault::Closed(WorkerChannel::StandardOutput))
                    .await);
            }
            Err(error) => return Err(spawner.system("a pipe for its output", error)),
        };
        match Announcement::read(&line, listens) {
            StartupLine::Ready(announcement) => break announcement,
            StartupLine::Log => listening.lines.log_line(&line),
            StartupLine::Wrong(reason) => {
                let shown: String = String::from_utf8_lossy(&line).trim().chars().take(SHOWN).collect();
                let (reason, line) = (harmless(&reason).into_owned(), harmless(&shown).into_owned());
                return Err(spawner.fault(ProtocolFault::BadReadyLine { reason, line }));
            }
        }
    };
    listening.is_over = true;
    spawner.awaits_no_more();
    if let Some(number) = announcement.pid {
        let worker = process.clone();
        let looked = tokio::task::spawn_blocking(move || pids::is_in_custody(&worker, number)).await;
        if !looked.map_err(|_| StartError::ShuttingDown)? {
            return Err(stranger(spawner, process, number).await);
        }
    }
    Ok(announcement)
}

/// Waits for the ready line. If the wait times out, the guard is dropped, and its drop logs the line that has no
/// newline yet: otherwise an error would not show a ready line that only lacks its newline.
struct ReadyListener<'a> {
    lines: &'a mut LineReader,
    is_over: bool,
}

impl Drop for ReadyListener<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.lines.break_off();
        }
    }
}

/// Builds the error for an announced pid that is not in the worker's custody: the process has ended or is unrelated.
async fn stranger(spawner: &Spawner, process: &custody::WorkerProcess, number: u32) -> StartError {
    let fault = ProtocolFault::StrangePid { announced: number, started: process.pid() };
    match process.try_wait() {
        Some(_) => spawner.ended_early(process, fault).await,
        None => spawner.fault(fault),
    }
}

/// The classification of a line.
#[derive(Debug, PartialEq)]
enum StartupLine {
    Ready(Announcement),
    /// The line was meant to be the ready line, and is invalid for this reason.
    Wrong(String),
    Log,
}

impl Announcement {
    fn read(line: &[u8], listens: Listens) -> StartupLine {
        let parsed: Result<Map<String, Json>, _> = serde_json::from_slice(line);
        let line = match parsed {
            Ok(line) if is_meant(&line) => line,
            Err(error) if is_alike(line) => {
                let quotes = line.contains(&b'\'');
                let hint = if quotes { ": use double quotes, as json.dumps does" } else { "" };
                return StartupLine::Wrong(format!("it is not JSON: {error}{hint}"));
            }
            Ok(_) | Err(_) => return StartupLine::Log,
        };
        Self::check(line, listens).map_or_else(StartupLine::Wrong, StartupLine::Ready)
    }

    fn check(line: Map<String, Json>, listens: Listens) -> Result<Self, String> {
        match line.get("status") {
            Some(Json::String(status)) if status == "ready" => {}
            Some(status) => return Err(format!("its status is {status}, and must be \"ready\"")),
            None => return Err("it has no `status`, which must be \"ready\"".into()),
        }
        let address = match (listens, line.get("port"), line.get("socket")) {
            (_, Some(_), Some(_)) => return Err("it has both `port` and `socket`: keep one".into()),
            (Listens::Nowhere, _, _) => None,
            (Listens::Somewhere, None, None) => {
                return Err("it does not say where it listens: add `port` or `socket`".into());
            }
            (Listens::OnSocket, _, None) => {
                return Err(
                    "it does not say where it listens: add `socket`, the path of a Unix socket".into()
                );
            }
            (_, Some(port), None) => Some(Address::Port(read_port(port)?)),
            (_, None, Some(socket)) => Some(Address::Socket(read_socket(socket)?)),
        };
        let pid = line.get("pid").map(read_pid).transpose()?;
        let (commands, features) = (read_words(&line, "commands")?, read_words(&line, "features")?);
        Ok(Self { address, pid, commands, features, line })
    }

    /// Returns what the pool needs to know about the worker.
    pub fn introduction(&self) -> Introduction {
        let text = |key: &str| self.line.get(key).and_then(Json::as_str).unwrap_or_default().to_owned();
        let introduction = Introduction::new(self.commands.clone()).features(self.features.clone());
        introduction.language(text("language")).sdk(text("sdk"))
    }
}

/// Statuses that a worker may print before it is ready.
const ON_THE_WAY: [&str; 5] = ["starting", "loading", "initializing", "booting", "warming"];

/// Reports whether an object can only be the ready line, or an attempt at one. A log line may also have a status.
fn is_meant(line: &Map<String, Json>) -> bool {
    let is_ready = |value: &Json| value.as_str().is_some_and(|text| text.eq_ignore_ascii_case("ready"));
    let has_address = ["port", "socket", "pid"].iter().any(|key| line.contains_key(*key));
    match line.get("status") {
        Some(Json::String(status)) if ON_THE_WAY.contains(&status.to_ascii_lowercase().as_str()) => false,
        Some(status) => is_ready(status) || status.is_string() && (has_address || line.len() == 1),
        // The status has another key, such as `state` or `Status`.
        None => has_address && line.values().any(is_ready),
    }
}

/// Reports whether a line that is not JSON resembles a ready line, for example with another language's quotes.
fn is_alike(line: &[u8]) -> bool {
    let text: String = String::from_utf8_lossy(line)
        .chars()
        .filter(|c| !c.is_whitespace() && !matches!(c, '"' | '\''))
        .take(SHOWN)
        .collect();
    text.starts_with("{status:") || text.contains("status:ready")
}

fn read_words(line: &Map<String, Json>, key: &str) -> Result<Vec<String>, String> {
    let Some(value) = line.get(key) else { return Ok(Vec::new()) };
    Vec::deserialize(value).map_err(|_| format!("its `{key}` is {value}, and must be a list of strings"))
}

fn read_port(port: &Json) -> Result<u16, String> {
    match port.as_u64() {
        Some(0) => Err("its port is 0: name the port that the system has assigned".into()),
        Some(number) => u16::try_from(number)
            .map_err(|_| format!("its port is {number}, and must be a number from 1 to 65535")),
        None => Err(format!("its port is {port}, and must be a number from 1 to 65535")),
    }
}

fn read_socket(socket: &Json) -> Result<PathBuf, String> {
    match socket.as_str().map(PathBuf::from) {
        Some(path) if path.is_absolute() => Ok(path),
        _ => Err(format!("its socket is {socket}, and must be an absolute path")),
    }
}

fn read_pid(pid: &Json) -> Result<u32, String> {
    let number = pid.as_u64().and_then(|number| u32::try_from(number).ok()).filter(|&number| number > 0);
    number.ok_or_else(|| {
        format!("its pid is {pid}, and must be the number of a process: use getpid, or leave it out")
    })
}

#[cfg(any(fuzzing, test))]
pub(super) mod fuzzing {
    use super::{Announcement, Listens};

    /// Reads a line as a ready line.
    pub(crate) fn ready_line(line: &[u8]) {
        for listens in [Listens::Nowhere, Listens::Somewhere, Listens::OnSocket] {
            let _ = Announcement::read(line, listens);
        }
    }
}

#[cfg(test)]
mod tests {
    use snakepit_error_texts::ErrorTexts;

    use super::*;

    fn heard(line: &str) -> StartupLine {
        Announcement::read(line.as_bytes(), Listens::Somewhere)
    }

    fn wrong(line: &str) -> String {
        match heard(line) {
            StartupLine::Wrong(fault) => fault,
            other => panic!("{line} is {other:?}"),
        }
    }

    #[test]
    fn the_line_of_the_specification_is_read() {
        let StartupLine::Ready(said) = heard(r#"{"status": "ready", "port": 54321, "pid": 12345}"#) else {
            panic!("not ready")
        };
        assert_eq!((said.address, said.pid), (Some(Address::Port(54321)), Some(12345)));
        let line =
            r#"{"commands":["add"],"language":"Node 22","socket":"/run/x","status":"ready","more":[1]}"#;
        let StartupLine::Ready(said) = heard(line) else { panic!("not ready") };
        assert_eq!(said.address, Some(Address::Socket("/run/x".into())));
        assert_eq!(
            (said.introduction().commands, said.introduction().language),
            (vec!["add".into()], "Node 22".into())
        );
        assert_eq!(said.line["more"], serde_json::json!([1]));
    }

    #[test]
    fn a_worker_that_does_not_listen_needs_no_address() {
        let said = Announcement::read(br#"{"status":"ready"}"#, Listens::Nowhere);
        assert!(
            matches!(said, StartupLine::Ready(Announcement { address: None, pid: None, .. })),
            "{said:?}"
        );
    }

    #[test]
    fn an_almost_correct_ready_line_is_rejected_with_the_reason() {
        let mut texts = ErrorTexts::new();
        for line in [
            r#"{"status": "ready", "port": 1"#,
            "{'status': 'ready', 'port': 1}",
            "{status: 'ready', port: 1}",
            r#"{"port": 1, "status": "ready""#,
            "{'port': 1, 'status': 'ready'}",
            r#"{"port": 1, "status": "ready",}"#,
            r#"{"pid": 1, "status": ready}"#,
            r#"{"state":"ready","port":1}"#,
            r#"{"Status":"READY","pid":1}"#,
            r#"{"status":"started","port":1}"#,
            r#"{"status":"Ready","port":1}"#,
            r#"{"status":"ready"}"#,
            r#"{"status":"ready","pid":1}"#,
            r#"{"status":"ready","port":"80"}"#,
            r#"{"status":"ready","port":-1}"#,
            r#"{"status":"ready","port":1.5}"#,
            r#"{"status":"ready","port":0}"#,
            r#"{"status":"ready","port":65536}"#,
            r#"{"status":"ready","port":1,"socket":"/x"}"#,
            r#"{"status":"ready","socket":"x"}"#,
            r#"{"status":"ready","port":1,"pid":0}"#,
            r#"{"status":"ready","port":1,"pid":"me"}"#,
            r#"{"status":"ready","port":1,"commands":"add"}"#,
            r#"{"status":"ready","port":1,"commands":[1]}"#,
            r#"{"status":"ready","port":1,"features":{}}"#,
        ] {
            texts.add_text(line, &wrong(line));
        }
        let on_port = r#"{"status":"ready","port":1}"#;
        match Announcement::read(on_port.as_bytes(), Listens::OnSocket) {
            StartupLine::Wrong(fault) => texts.add_text(on_port, &fault),
            other => panic!("{on_port} is {other:?}"),
        }
        for listens in [Listens::Nowhere, Listens::Somewhere, Listens::OnSocket] {
            texts.add_text(&format!("{listens:?}"), &listens.way_out());
        }
        insta::assert_snapshot!(texts);
    }

    #[test]
    fn json_lines_without_a_ready_status_are_logs() {
        for line in [
            r#"{"level":"info","event":"loading"}"#,
            r#"{"status":200,"path":"/"}"#,
            r#"{"status":"ok","path":"/"}"#,
            r#"{"status":"starting"}"#,
            r#"{"status":"loading","pid":1}"#,
            r#"{"port":1,"pid":2}"#,
            r#"{"event":"ready","model":"small"}"#,
            "{not json at all",
        ] {
            assert_eq!(heard(line), StartupLine::Log, "{line}");
        }
    }
}
