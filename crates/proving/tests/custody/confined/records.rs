//! `snakepit ledger` and `snakepit cleanup`, with and without a live run.

use std::process::Stdio;

use serde_json::Value;
use snakepit_proving::{Deadline, ObservedProcess};

use super::{ConfinedHome, each_profile, finish, finish_child};

each_profile!(
    an_empty_state_directory_is_nothing_to_complain_about,
    a_live_run_is_listed_as_alive_and_let_be
);

fn an_empty_state_directory_is_nothing_to_complain_about(home: &ConfinedHome) {
    for verb in ["ledger", "cleanup"] {
        let output = finish(&mut home.snakepit(&[verb]));
        assert_eq!((output.status, output.stderr.as_str()), (Some(0), ""), "{verb}: {output:?}");
    }
}

fn a_live_run_is_listed_as_alive_and_let_be(home: &ConfinedHome) {
    for tier in home.tiers() {
        let mut exec =
            home.snakepit(&["exec", "--tier", tier, "--", "sh", "-c", "echo ready; read line; exit 7"]);
        let mut host = exec
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("snakepit");
        // The record is written before the program prints its first word.
        let mut word = [0; 6];
        std::io::Read::read_exact(host.stdout.as_mut().expect("stdout"), &mut word).expect("a word");
        let process = ObservedProcess::of(host.id().cast_signed());

        let output = finish(&mut home.snakepit(&["ledger", "--json"]));
        let report: Value =
            serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
        let run = &report["runs"][0];
        assert_eq!(
            (&run["life"], &run["processes"][0]["alive"]),
            (&"live".into(), &true.into()),
            "{report:#}"
        );
        let output = finish(&mut home.snakepit(&["cleanup"]));
        assert!(output.status == Some(0) && output.stdout.starts_with("Nothing to clean"), "{output:?}");

        assert!(process.is_alive());
        drop(host.stdin.take());
        assert_eq!(finish_child(host, Deadline::patient()).status, Some(7), "{tier}");
        home.nothing_is_recorded();
    }
}
