//! Signals, and workers that only KILL ends: the first signal gives them the configured time, the second does not.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::EmbedderProcess;

/// Two hosts that a signal ends: a script, and a host that serves until then.
const HOSTS: [[&str; 2]; 2] = [["script", "function=sleeps"], ["engines", "how=serves"]];

fn ready(host: [&str; 2], term: &str) -> EmbedderProcess {
    let mut embedder = EmbedderProcess::start(&[host[0], host[1], "worker=deaf", term]);
    embedder.until("ready");
    embedder
}

#[test]
fn the_first_signal_gives_workers_that_ignore_term_the_configured_time() {
    for host in HOSTS {
        for (term, millis) in [("term=300", 300), ("term=1500", 1500)] {
            let embedder = ready(host, term);
            let began = Instant::now();
            embedder.signal(Signal::TERM);
            let ended = embedder.end();
            let took = began.elapsed();
            let key = Duration::from_millis(millis);
            assert!(took >= key, "{host:?}: killed after {took:?} of {key:?}");
            // The end of the process and the search for its remains take time, too.
            assert!(took < key + Duration::from_millis(1200), "{host:?}: {took:?} in place of {key:?}");
            assert_eq!(ended.status, Some(0), "{host:?}: {:#?}", ended.lines);
            assert_eq!(ended.field("cleanup", "killed"), 1, "{host:?}: {:#?}", ended.lines);
        }
    }
}

#[test]
fn the_second_signal_kills_workers_that_ignore_term_at_once() {
    for host in HOSTS {
        for (term, event) in [("term=60000", "script.shutdown.start"), ("term=4000", "cleanup.start")] {
            let mut embedder = ready(host, term);
            embedder.signal(Signal::TERM);
            embedder.until(&format!("{{\"event\":\"snakepit.{event}\""));
            let began = Instant::now();
            embedder.signal(Signal::TERM);
            let ended = embedder.end();
            let took = began.elapsed();
            assert!(took < Duration::from_millis(1500), "{host:?}, {term}: {took:?}");
            assert_eq!(ended.status, Some(143), "{host:?}, {term}: {:#?}", ended.lines);
        }
    }
}
