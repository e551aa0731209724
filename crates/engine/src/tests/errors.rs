//! The texts of all errors of engines and scripts.

use std::io;

use snakepit_error_texts::{ErrorTexts, every_variant};

use crate::custody::{NotesError, OpenError, StateError};
use crate::lifecycle::{ArgumentError, CoordinatorError};
use crate::{CallError, EngineError, ScriptError, StartError};

#[test]
fn every_error_says_the_thing_the_place_and_the_way_out() {
    let mut texts = ErrorTexts::new();
    errors_of_engines_and_scripts(&mut texts);
    insta::assert_snapshot!(texts);
}

fn errors_of_engines_and_scripts(texts: &mut ErrorTexts) {
    let no_thread = || io::Error::from_raw_os_error(11);
    let not_ready = || CallError::NoSuchPool { name: "nubmers".into(), known: "numbers".into() };
    let argument = || "later".parse::<crate::lifecycle::ExitMode>().expect_err("no exit mode");
    every_variant!(texts, EngineError {
        NoPools => [EngineError::NoPools],
        SameName => [EngineError::SameName("numbers".into())],
        BadName => [EngineError::BadName {
            name: "my pool".into(),
            reason: "use at most 57 characters from A-Z a-z 0-9 . _ : / -".into(),
        }],
        GlobalRuns => [EngineError::GlobalRuns],
        Runtime => [EngineError::Runtime(no_thread())],
        Custody => [EngineError::Custody(OpenError::State(StateError::NoPlace))],
        Start => [EngineError::Start {
            pool: "numbers".into(),
            source: StartError::NoSuchFile { path: "worker.py".into() },
        }],
    });
    every_variant!(texts, CoordinatorError {
        Notes => [CoordinatorError::Notes(NotesError::Taken)],
        Thread => [CoordinatorError::Thread(no_thread())],
    });
    let error: ArgumentError = argument();
    texts.add("ArgumentError", &error);
    every_variant!(texts, ScriptError<io::Error> {
        Argument => [ScriptError::Argument(argument())],
        Start => [ScriptError::Start(EngineError::NoPools)],
        NotReady => [ScriptError::NotReady(not_ready())],
        Function => [ScriptError::Function(io::Error::from_raw_os_error(2))],
    });
}
