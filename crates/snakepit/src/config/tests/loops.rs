//! The loops of a file, and how they run together.

use super::*;
use std::time::Duration;

use crate::loops::{GiveUpAction, PoolLoopOptions, Replies, SHUTDOWN_TIMEOUT, Watchdog};

const POOL: &str = "[pool.example]\nworker = \"w.py\"\n";

fn with(keys: &str) -> String {
    format!("{POOL}[loop.naps]\n{keys}\n")
}

#[test]
fn a_loop_is_described_by_its_table_and_the_reference_mentions_every_key() {
    let said = said_of("# [loop.example]\n");
    let table = "[loop.example]\nmailbox = \"sqlite:a.db\"\ncommand = \"c\"";
    for key in known_keys(table) {
        assert!(said.iter().any(|line| line.starts_with(&format!("{key} = "))), "{key}");
    }
    let config = parse(&with(&said.join("\n"))).expect("the reference");
    let [naps] = config.loops() else { panic!("{:?}", config.loops()) };
    assert_eq!((naps.name(), naps.queue.as_str()), ("naps", "requests"));
    assert_eq!(naps.file, Path::new("/conf/mail.db"));
    let options = PoolLoopOptions::new("answer")
        .name("naps")
        .pool("example")
        .concurrency(8)
        .max_deliveries(5)
        .call_timeout(Duration::from_secs(30))
        .backoff(Duration::from_secs(1))
        .longest_backoff(Duration::from_mins(5))
        .visibility_timeout(Duration::from_mins(5))
        .wait(Duration::from_secs(20));
    assert_eq!(naps.options, options);
}

/// Returns the lines of a table that the reference shows as a sample.
fn said_of(title: &str) -> Vec<&'static str> {
    let (_, table) = Config::REFERENCE.split_once(title).expect("its table");
    let lines = table.lines().take_while(|line| *line != "#").filter_map(|line| line.strip_prefix("#   "));
    lines.filter(|line| !line.starts_with('#')).collect()
}

#[test]
fn a_service_is_described_by_its_table_and_the_reference_mentions_every_key() {
    let said = said_of("# [service]\n");
    for key in known_keys("[service]") {
        assert!(said.iter().any(|line| line.starts_with(&format!("{key} = "))), "{key}");
    }
    let service =
        |keys: &str| parse(&format!("{POOL}[service]\n{keys}\n")).map(|config| config.service().clone());
    let described = service(&said.join("\n")).expect("the reference");
    let usual = service("").expect("nothing is needed");
    assert_eq!(usual.shutdown_timeout, SHUTDOWN_TIMEOUT);
    assert_eq!((usual.health, usual.watchdog), (None, Watchdog::new()));
    assert_eq!(described.shutdown_timeout, usual.shutdown_timeout);
    assert_eq!(described.health, Some(([127, 0, 0, 1], 8080).into()));
    assert_eq!(described.watchdog, usual.watchdog.liveness_limit(Duration::from_hours(1)));
    let open = service("health = \"0.0.0.0:80\"").expect("an address");
    assert_eq!(open.health, Some(([0, 0, 0, 0], 80).into()));
}

#[test]
fn loops_are_chosen_by_name_and_a_misspelt_one_is_told_the_nearest() {
    let loops = "[loop.first]\nmailbox = \"sqlite:a.db\"\ncommand = \"a\"\n[loop.second]\nmailbox = \"sqlite:a.db\"\ncommand = \"b\"\n";
    let config = parse(&format!("{POOL}{loops}")).expect("two loops");
    let named = |names: &[&str]| {
        let found = config.loops_named(names).map_err(|error| error.to_string())?;
        Ok::<_, String>(found.iter().map(|it| it.name().to_owned()).collect::<Vec<_>>())
    };
    assert_eq!(named(&[]).expect("all"), ["first", "second"]);
    assert_eq!(named(&["second"]).expect("one"), ["second"]);
    assert!(
        named(&["secnod"]).expect_err("none").ends_with("there is no loop `secnod`; did you mean `second`?")
    );
    assert!(named(&["x"]).expect_err("none").ends_with("there is no loop `x`; there is first, second"));
    let none = parse(POOL).expect("a pool").loops_named::<&str>(&[]).expect_err("no loop").to_string();
    assert!(none.contains("there is no loop: add a table [loop.NAME]"), "{none}");
}

#[test]
fn what_a_loop_does_not_say_keeps_its_default() {
    let config = parse(&with("mailbox = \"sqlite:/var/mail.db\"\ncommand = \"nap\"")).expect("a loop");
    let naps = &config.loops()[0];
    assert_eq!((naps.file.as_path(), naps.queue.as_str()), (Path::new("/var/mail.db"), "main"));
    assert_eq!(naps.options, PoolLoopOptions::new("nap").name("naps"));
    let said = "mailbox = \"sqlite:a.db\"\ncommand = \"nap\"\nreply = \"never\"\ngive_up = \"reply\"";
    let options = parse(&with(said)).expect("a loop").loops()[0].options.clone();
    assert_eq!((options.reply, options.give_up), (Replies::Never, GiveUpAction::Reply));
}
