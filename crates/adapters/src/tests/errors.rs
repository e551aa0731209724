//! The texts of all errors of adapters that are types of their own.

use std::io;

use snakepit_error_texts::{ErrorTexts, every_variant};

use crate::custody::{DirError, KeepError};
use crate::mock::Crash;
use crate::python::sdk::InstallError;

#[test]
fn every_error_says_the_thing_the_place_and_the_way_out() {
    let mut texts = ErrorTexts::new();
    errors_of_adapters(&mut texts);
    insta::assert_snapshot!(texts);
}

fn errors_of_adapters(texts: &mut ErrorTexts) {
    let state = || "/home/ann/.local/state/snakepit";
    every_variant!(texts, InstallError {
        Dir => [InstallError::Dir(DirError::NotOurs { path: state().into(), own: 1000 })],
        File => [InstallError::File(KeepError::Write {
            path: format!("{}/python-1/snakepit/serial/loop.py", state()).into(),
            source: io::Error::from_raw_os_error(28),
        })],
    });
    texts.add("Crash", &Crash("the mock has no more answers".into()));
}
