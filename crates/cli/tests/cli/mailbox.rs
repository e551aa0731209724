//! `snakepit mailbox`: a mailbox in a file, used from a shell.
#![expect(clippy::disallowed_methods, reason = "the tests start real processes, as a user would")]

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A mailbox file, and the program that uses it.
struct MailboxFile {
    dir: tempfile::TempDir,
}

impl MailboxFile {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a directory") }
    }

    fn url(&self) -> String {
        format!("sqlite:{}", self.dir.path().join("mail.db").display())
    }

    /// Returns `snakepit mailbox VERB URL REST`.
    fn command(&self, verb: &str, rest: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_snakepit"));
        command.arg("mailbox").args(verb.split(' ')).arg(self.url()).args(rest).stdin(Stdio::null());
        command
    }

    fn run(&self, verb: &str, rest: &[&str]) -> Output {
        self.command(verb, rest).output().expect("it starts")
    }

    /// Runs a command that must succeed, and returns its output.
    #[track_caller]
    fn ok(&self, verb: &str, rest: &[&str]) -> String {
        let output = self.run(verb, rest);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{verb} {rest:?}: {} {said}", output.status);
        String::from_utf8(output.stdout).expect("text")
    }

    #[track_caller]
    fn lines(&self, verb: &str, rest: &[&str]) -> Vec<Value> {
        let text = self.ok(verb, rest);
        text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }

    /// Runs a command that must fail, and returns its status and stderr.
    fn refused(&self, verb: &str, rest: &[&str]) -> (i32, String) {
        let output = self.run(verb, rest);
        assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
        (output.status.code().expect("a status"), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    fn count(&self) -> [u64; 4] {
        let count: Value = serde_json::from_str(&self.ok("count", &[])).expect("JSON");
        ["visible", "in_flight", "delayed", "dead"].map(|name| count[name].as_u64().expect("a number"))
    }
}

#[test]
fn a_message_is_received_with_all_its_attributes() {
    let mail = MailboxFile::new();
    let options = ["--reply-to", "answers", "--priority", "-3", "--attribute", "a=b=c"];
    let id = mail.ok("send", &[&["hello"], &options[..]].concat());
    let peeked = mail.lines("peek", &[]);
    assert!(peeked[0].get("receipt").is_none(), "{peeked:?}");
    assert_eq!(mail.count(), [1, 0, 0, 0]);
    let [message] = &mail.lines("receive", &[])[..] else { panic!("one message") };
    assert_eq!(message["id"], id.trim());
    assert_eq!((&message["body"], &message["delivery_count"]), (&"hello".into(), &1.into()));
    assert_eq!((&message["reply_to"], &message["priority"]), (&"answers".into(), &(-3).into()));
    assert_eq!(message["attributes"]["a"], "b=c");
    assert!(message["enqueued_at"].as_str().is_some_and(|time| time.ends_with('Z')), "{message}");
    assert_eq!(mail.count(), [0, 1, 0, 0]);
    mail.ok("ack", &[message["receipt"].as_str().expect("a receipt")]);
    assert_eq!(mail.count(), [0; 4]);
}

#[test]
fn the_body_comes_from_standard_input_byte_for_byte() {
    let mail = MailboxFile::new();
    for rest in [&["-"][..], &[]] {
        let mut send = mail.command("send", rest);
        let mut child = send.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it starts");
        child.stdin.take().expect("a pipe").write_all(b"two\nlines\n").expect("it reads");
        assert!(child.wait().expect("it ends").success());
        assert_eq!(mail.lines("receive", &["--ack"])[0]["body"], "two\nlines\n");
    }
    let mut send = mail.command("send", &["-"]);
    let mut child = send.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it starts");
    child.stdin.take().expect("a pipe").write_all(&[0xff, 0x00, 0x7f]).expect("it reads");
    assert!(child.wait().expect("it ends").success());
    assert_eq!(mail.lines("receive", &["--ack"])[0]["body_hex"], "ff007f");
}

#[test]
fn a_release_does_not_count_as_a_delivery_and_a_nack_does() {
    let mail = MailboxFile::new();
    mail.ok("send", &["x"]);
    for (verb, deliveries) in [("release", 1), ("release", 1), ("nack", 1), ("release", 2), ("nack", 2)] {
        let message = &mail.lines("receive", &[])[0];
        assert_eq!(message["delivery_count"], deliveries, "before {verb}");
        mail.ok(verb, &[message["receipt"].as_str().expect("a receipt")]);
    }
    assert_eq!(mail.count(), [1, 0, 0, 0]);
}

#[test]
fn a_refused_receipt_is_status_1_and_says_receipt_expired() {
    let mail = MailboxFile::new();
    mail.ok("send", &["x"]);
    let receipt = mail.lines("receive", &[])[0]["receipt"].as_str().expect("a receipt").to_owned();
    mail.ok("nack", &[&receipt]);
    for (verb, rest) in [
        ("ack", vec![&*receipt]),
        ("nack", vec![&*receipt]),
        ("release", vec![&*receipt]),
        ("extend", vec![&*receipt, "5s"]),
        ("ack", vec!["nonsense"]),
        ("ack", vec!["1.999"]),
    ] {
        let (status, said) = mail.refused(verb, &rest);
        assert!(status == 1 && said.starts_with("snakepit: receipt expired: "), "{verb}: {said}");
    }
    assert_eq!(mail.count(), [1, 0, 0, 0]);
}

#[test]
fn a_lease_is_extended_and_shortened_only_when_that_is_asked_for() {
    let mail = MailboxFile::new();
    mail.ok("send", &["x"]);
    let receipt =
        mail.lines("receive", &["--visibility", "1h"])[0]["receipt"].as_str().expect("one").to_owned();
    mail.ok("extend", &[&receipt, "0s"]);
    assert_eq!(mail.count(), [0, 1, 0, 0], "it is not made shorter");
    mail.ok("extend", &[&receipt, "0s", "--exactly"]);
    assert_eq!(mail.count(), [1, 0, 0, 0]);
    assert_eq!(mail.lines("receive", &["--ack"])[0]["delivery_count"], 2);
}

#[test]
fn a_delayed_message_waits_and_a_key_is_taken_once() {
    let mail = MailboxFile::new();
    mail.ok("send", &["later", "--delay", "1h"]);
    assert_eq!(mail.count(), [0, 0, 1, 0]);
    let first = mail.ok("send", &["a", "--dedup", "k"]);
    assert_eq!(mail.ok("send", &["b", "--dedup", "k"]), first);
    assert_eq!(mail.count(), [1, 0, 1, 0]);
    assert_eq!(mail.ok("purge", &[]), "{\"purged\":2}\n");
}

#[test]
fn a_message_that_is_never_acknowledged_becomes_a_dead_letter_and_can_be_put_back() {
    let mail = MailboxFile::new();
    let id = mail.ok("send", &["poison"]).trim().to_owned();
    for delivery in 1..=5 {
        assert_eq!(mail.lines("receive", &["--visibility", "0s"])[0]["delivery_count"], delivery);
    }
    assert!(mail.lines("receive", &[]).is_empty());
    assert_eq!(mail.count(), [0, 0, 0, 1]);
    let [letter] = &mail.lines("dlq list", &[])[..] else { panic!("one dead letter") };
    assert_eq!((&letter["id"], &letter["reason"]["kind"]), (&id.as_str().into(), &"deliveries".into()));
    assert_eq!(mail.ok("dlq redrive", &["01a1dfb7-f692-7000-8000-77c91c006495"]), "{\"redriven\":0}\n");
    assert_eq!(mail.ok("dlq redrive", &[&id]), "{\"redriven\":1}\n");
    assert_eq!(mail.lines("receive", &["--visibility", "0s"])[0]["delivery_count"], 1);
    for _ in 2..=6 {
        mail.ok("receive", &["--visibility", "0s"]);
    }
    assert_eq!(mail.ok("dlq purge", &[]), "{\"purged\":1}\n");
    assert_eq!(mail.count(), [0; 4]);
}

#[test]
fn out_of_range_is_a_wrong_command_line_and_names_the_range() {
    let mail = MailboxFile::new();
    for (rest, said) in [
        (["--max", "0"], "max_messages is 0, and must be 1 to 10"),
        (["--max", "11"], "max_messages is 11, and must be 1 to 10"),
        (["--wait", "21s"], "wait is 21s, and must be 0s to 20s"),
        (["--visibility", "43201s"], "visibility_timeout is 43201s, and must be 0s to 12 h"),
    ] {
        let (status, text) = mail.refused("receive", &rest);
        assert_eq!((status, text.contains(said)), (2, true), "{text}");
    }
}

#[test]
fn a_url_that_cannot_be_opened_is_named() {
    for url in ["sqlite:", "redis:x", "nothing", "sqlite:/no/such/directory/mail.db"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_snakepit"));
        let output = command.args(["mailbox", "count", url]).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{url}: {said}");
        assert!(said.contains(url), "{url}: {said}");
    }
}

#[test]
fn a_receiver_that_waits_is_woken_by_another_process() {
    let mail = MailboxFile::new();
    // Creates the mailbox.
    mail.ok("receive", &[]);
    let mut receive = mail.command("receive", &["--wait", "20s", "--ack"]);
    let mut receiver = receive.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut lines = BufReader::new(receiver.stdout.take().expect("a pipe"));
    let began = Instant::now();
    mail.ok("send", &["wake up"]);
    let mut line = String::new();
    lines.read_line(&mut line).expect("a line");
    assert!(line.contains("wake up"), "{line}");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    assert!(receiver.wait().expect("it ends").success());
    assert_eq!(mail.count(), [0; 4]);
}

#[test]
fn a_message_that_cannot_be_printed_is_not_acknowledged() {
    let mail = MailboxFile::new();
    mail.ok("send", &["precious"]);
    let mut receive = mail.command("receive", &["--ack"]);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = receive.stdout(writer).stderr(Stdio::piped()).spawn().expect("it starts");
    let output = output.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(125));
    assert_eq!(mail.count(), [1, 0, 0, 0], "it went back");
    let full = std::fs::File::options().write(true).open("/dev/full").expect("/dev/full");
    let status = mail.command("receive", &["--ack"]).stdout(full).stderr(Stdio::null()).status();
    assert_eq!(status.expect("it starts").code(), Some(125));
    assert_eq!(mail.count(), [1, 0, 0, 0]);
}

#[test]
fn several_mailboxes_live_in_one_file() {
    let mail = MailboxFile::new();
    let other = format!("{}#other", mail.url());
    let run = |verb: &str, rest: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_snakepit"));
        let output = command.args(["mailbox", verb, &other]).args(rest).output().expect("it starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut text = String::new();
        (&output.stdout[..]).read_to_string(&mut text).expect("text");
        text
    };
    run("send", &["elsewhere"]);
    assert_eq!(mail.refused("count", &[]).0, 3, "there is no other one");
    mail.ok("send", &["here", "--delay", "1h"]);
    assert_eq!(mail.count(), [0, 0, 1, 0]);
    assert!(run("receive", &["--ack"]).contains("elsewhere"));
}

#[test]
fn a_copy_of_the_file_has_what_the_last_command_has_sent() {
    let mailbox = MailboxFile::new();
    mailbox.ok("send", &["a"]);
    let copy = MailboxFile::new();
    std::fs::copy(mailbox.dir.path().join("mail.db"), copy.dir.path().join("mail.db")).expect("a copy");
    assert_eq!(copy.count(), [1, 0, 0, 0]);
}

#[test]
fn a_backup_is_a_mailbox_that_only_its_owner_can_read_and_replaces_nothing() {
    use std::os::unix::fs::PermissionsExt;
    let mailbox = MailboxFile::new();
    mailbox.ok("send", &["a"]);
    let copy = MailboxFile::new();
    let to = copy.dir.path().join("mail.db");
    let to = to.to_str().expect("a text");
    mailbox.ok("backup", &[to]);
    assert_eq!(std::fs::metadata(to).expect("the copy").permissions().mode() & 0o777, 0o600);
    assert_eq!(copy.count(), [1, 0, 0, 0]);
    let (status, said) = mailbox.refused("backup", &[to]);
    assert!(status == 125 && said.contains("must not exist yet"), "{status} {said}");
    let files: Vec<_> =
        std::fs::read_dir(copy.dir.path()).expect("files").flatten().map(|it| it.file_name()).collect();
    assert!(files.iter().all(|name| !name.to_string_lossy().contains("partial")), "{files:?}");
}

#[test]
fn a_backup_is_made_beside_a_live_receiver() {
    let mailbox = MailboxFile::new();
    mailbox.ok("send", &["a"]);
    let mut receiver = mailbox
        .command("receive", &["--max", "2", "--wait", "20s"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    receiver.wait().expect("it has received");
    let mut waiting = mailbox
        .command("receive", &["--wait", "20s", "--ack"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let copy = MailboxFile::new();
    let to = copy.dir.path().join("mail.db");
    mailbox.ok("backup", &[to.to_str().expect("a text")]);
    assert_eq!(copy.count(), [0, 1, 0, 0], "the lease is in the copy, too");
    mailbox.ok("send", &["b"]);
    assert!(waiting.wait().expect("it has received").success());
}

#[test]
fn a_paused_mailbox_gives_nothing_out_until_it_is_resumed() {
    let mailbox = MailboxFile::new();
    mailbox.ok("send", &["a"]);
    let settings: Value = serde_json::from_str(&mailbox.ok("pause", &[])).expect("JSON");
    assert_eq!(settings["paused"], true);
    assert_eq!(mailbox.ok("receive", &[]), "");
    mailbox.ok("resume", &[]);
    assert_eq!(mailbox.lines("receive", &[])[0]["body"], "a");
}

#[test]
fn groups_and_rates_are_set_from_a_shell() {
    let mailbox = MailboxFile::new();
    for body in ["1", "2"] {
        mailbox.ok("send", &[body, "--group", "customer-7"]);
    }
    mailbox.ok("send", &["3"]);
    let settings: Value = serde_json::from_str(&mailbox.ok("settings", &["--rate", "1/1h"])).expect("JSON");
    assert_eq!(settings["rate_limit"]["per"], 3600.0);
    let received = mailbox.lines("receive", &["--max", "10"]);
    assert_eq!((received.len(), &received[0]["group"]), (1, &Value::from("customer-7")));
    mailbox.ok("settings", &["--rate", "none"]);
    assert_eq!(mailbox.lines("receive", &["--max", "10"])[0]["body"], "3", "the group waits");
    let (status, said) = mailbox.refused("settings", &["--rate", "many"]);
    assert!(status == 2 && said.contains("100/1m"), "{status} {said}");
}

#[test]
fn a_rate_key_is_limited_without_an_order() {
    let mailbox = MailboxFile::new();
    for body in ["1", "2", "3"] {
        mailbox.ok("send", &[body, "--rate-key", "customer-7"]);
    }
    mailbox.ok("settings", &["--group-rate", "2/1h"]);
    let received = mailbox.lines("receive", &["--max", "10"]);
    assert_eq!((received.len(), &received[0]["rate_key"]), (2, &Value::from("customer-7")));
    assert_eq!(mailbox.ok("receive", &[]), "");
    mailbox.ok("settings", &["--group-rate", "none"]);
    assert_eq!(mailbox.lines("receive", &[])[0]["body"], "3");
}

#[test]
fn the_size_of_the_file_is_said_and_compacting_makes_it_small() {
    let mailbox = MailboxFile::new();
    let body = "x".repeat(100_000);
    for _ in 0..20 {
        mailbox.ok("send", &[&body]);
    }
    let size = |text: String| {
        let value: Value = serde_json::from_str(&text).expect("JSON");
        value.get("file").unwrap_or(&value)["bytes"].as_u64().expect("a number")
    };
    let full = size(mailbox.ok("count", &["--json"]));
    assert!(full > 2_000_000, "{full}");
    mailbox.ok("purge", &[]);
    let compacted = size(mailbox.ok("compact", &[]));
    assert!(compacted < 200_000, "{compacted}");
}

#[test]
fn a_mailbox_that_is_missing_is_said_to_be_and_is_not_made() {
    let id = "01890a5d-ac96-774b-bcce-b302099a8057";
    let reading: [(&str, &[&str]); 19] = [
        ("count", &[]),
        ("peek", &[]),
        ("show", &[id]),
        ("result", &[id]),
        ("settings", &[]),
        ("settings", &["--max-deliveries", "3"]),
        ("dlq list", &[]),
        ("dlq redrive", &[]),
        ("dlq purge", &[]),
        ("purge", &[]),
        ("ack", &["1.1"]),
        ("nack", &["1.1"]),
        ("release", &["1.1"]),
        ("extend", &["1.1", "1m"]),
        ("pause", &[]),
        ("resume", &[]),
        ("backup", &["copy.db"]),
        ("compact", &[]),
        ("recover", &[]),
    ];
    let mail = MailboxFile::new();
    let path = mail.dir.path().join("mail.db");
    for (verb, rest) in reading {
        let expected = format!(
            "snakepit: there is no mailbox {}: check its name; the first send to a mailbox creates it\n",
            path.display()
        );
        assert_eq!(mail.refused(verb, rest), (3, expected), "{verb}");
    }
    assert_eq!(std::fs::read_dir(mail.dir.path()).expect("a directory").count(), 0, "nothing was made");
    mail.ok("send", &["x"]);
    for (verb, rest) in reading {
        let mut command = Command::new(env!("CARGO_BIN_EXE_snakepit"));
        command.arg("mailbox").args(verb.split(' ')).arg(format!("{}#typo", mail.url())).args(rest);
        let output = command.output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        let expected = format!("snakepit: there is no mailbox typo in {}: check its name", path.display());
        assert!(output.status.code() == Some(3) && said.starts_with(&expected), "{verb}: {said}");
    }
    assert_eq!(mail.count(), [1, 0, 0, 0]);
}

#[test]
fn a_limit_that_was_set_holds_for_the_program_and_looking_buries_nothing() {
    let mail = MailboxFile::new();
    mail.ok("send", &["x"]);
    assert_eq!(mail.lines("settings", &[])[0]["max_deliveries"], 5);
    assert_eq!(mail.lines("settings", &["--max-deliveries", "8"])[0]["max_deliveries"], 8);
    for delivery in 1..=8 {
        assert_eq!(mail.count(), [1, 0, 0, 0]);
        assert_eq!(mail.lines("peek", &[])[0]["delivery_count"], delivery - 1);
        assert_eq!(mail.ok("dlq list", &[]), "");
        let message = &mail.lines("receive", &["--visibility", "1h"])[0];
        let receipt = message["receipt"].as_str().expect("a receipt");
        match delivery % 2 {
            0 => mail.ok("nack", &[receipt, "--error", &format!("KeyError: {delivery}")]),
            // As if the receiver had died.
            _ => mail.ok("extend", &[receipt, "0s", "--exactly"]),
        };
    }
    assert_eq!(mail.count(), [0, 0, 0, 1]);
    let letter = &mail.lines("dlq list", &[])[0];
    assert_eq!(
        (&letter["reason"]["kind"], &letter["last_error"]),
        (&"deliveries".into(), &"KeyError: 8".into())
    );
    let id = letter["id"].as_str().expect("an id");
    let shown = &mail.lines("show", &[id])[0];
    assert_eq!((&shown["place"], &shown["attempts"]), (&"dead".into(), &letter["attempts"]));
    let attempts = shown["attempts"].as_array().expect("attempts");
    assert_eq!(attempts.len(), 8);
    for (attempt, delivery) in attempts.iter().zip(1..) {
        let (end, error) = if delivery % 2 == 0 {
            ("nack", Value::from(format!("KeyError: {delivery}")))
        } else {
            ("lapse", Value::Null)
        };
        assert_eq!(
            (&attempt["delivery"], &attempt["end"], &attempt["error"]),
            (&delivery.into(), &end.into(), &error)
        );
        assert!(attempt["holder"].as_str().is_some_and(|holder| holder.contains('/')), "{attempt}");
        assert!(attempt["began_at"].as_str().is_some_and(|time| time.ends_with('Z')), "{attempt}");
        assert!(attempt["took_s"].is_f64(), "{attempt}");
    }
    let (status, said) = mail.refused("show", &["01890a5d-ac96-774b-bcce-b302099a8057"]);
    assert!(status == 3 && said.contains("there is no message 01890a5d"), "{status} {said}");
}

#[test]
fn a_result_is_waited_for_and_read_by_its_id() {
    let mail = MailboxFile::new();
    let id = mail.ok("send", &["6", "--keep-result", "24h"]).trim().to_owned();
    let (status, said) = mail.refused("result", &[&id]);
    assert!(status == 3 && said.contains("there is no reply to the message"), "{status} {said}");
    let mut waiting = mail.command("result", &[&id, "--wait", "60s"]);
    let waiting = waiting.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let file = mail.dir.path().join("mail.db");
    tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
        let mailbox = snakepit::mailbox::SqliteMailbox::open(&file).expect("a mailbox");
        let message = snakepit::mailbox::Mailbox::receive(&mailbox, snakepit::mailbox::ReceiveOptions::new());
        message.await.expect("received").remove(0).reply(&36).await.expect("a reply");
    });
    let output = waiting.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let reply: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&reply["in_reply_to"], &reply["body"]), (&id.as_str().into(), &"36".into()));
    assert_eq!(mail.lines("result", &[&id])[0], reply);
}
