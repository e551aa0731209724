//! The texts of all errors of adapters that are types of their own.

use std::io;

use snakepit_error_texts::{ErrorTexts, every_variant};

use crate::custody::{DirError, KeepError};
use crate::mock::Crash;
use crate::python::sdk::InstallError;

#[test]
fn errors_of_adapters() {
    let state = || "/home/ann/.local/state/snakepit";
    let mut texts = ErrorTexts::new();
    every_variant!(texts, InstallError {
        Dir => [InstallError::Dir(DirError::NotOurs { path: state().into(), own: 1000 })],
        File => [InstallError::File(KeepError::Write {
            path: format!("{}/python-1/snakepit/serial.py", state()).into(),
            source: io::Error::from_raw_os_error(28),
        })],
    });
    texts.add("Crash", &Crash("the mock has no more answers".into()));
    insta::assert_snapshot!(texts);
}
