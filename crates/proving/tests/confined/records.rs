//! `snakepit ledger` and `snakepit cleanup`, beside a run that lives and where there is none.

use std::process::Stdio;

use serde_json::Value;
use snakepit_proving::{Deadline, Process};

use super::{Scene, each_profile, finish, finish_child};

each_profile!(
    an_empty_state_directory_is_nothing_to_complain_about,
    a_live_run_is_listed_as_alive_and_let_be
);

fn an_empty_state_directory_is_nothing_to_complain_about(scene: &Scene) {
    for verb in ["ledger", "cleanup"] {
        let done = finish(&mut scene.snakepit(&[verb]));
        assert_eq!((done.status, done.stderr.as_str()), (Some(0), ""), "{verb}: {done:?}");
    }
}

fn a_live_run_is_listed_as_alive_and_let_be(scene: &Scene) {
    for tier in scene.tiers() {
        let mut exec =
            scene.snakepit(&["exec", "--tier", tier, "--", "sh", "-c", "echo ready; read line; exit 7"]);
        let mut host = exec
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("snakepit");
        // The record precedes the program's first word.
        let mut word = [0; 6];
        std::io::Read::read_exact(host.stdout.as_mut().expect("stdout"), &mut word).expect("a word");
        let process = Process::of(host.id().cast_signed());

        let done = finish(&mut scene.snakepit(&["ledger", "--json"]));
        let report: Value =
            serde_json::from_str(&done.stdout).unwrap_or_else(|error| panic!("{error}: {done:?}"));
        let run = &report["runs"][0];
        assert_eq!(
            (&run["life"], &run["processes"][0]["alive"]),
            (&"live".into(), &true.into()),
            "{report:#}"
        );
        let done = finish(&mut scene.snakepit(&["cleanup"]));
        assert!(done.status == Some(0) && done.stdout.starts_with("Nothing to clean"), "{done:?}");

        assert!(process.is_alive());
        drop(host.stdin.take());
        assert_eq!(finish_child(host, Deadline::patient()).status, Some(7), "{tier}");
        scene.nothing_is_recorded();
    }
}
