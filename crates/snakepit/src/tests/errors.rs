//! The texts of all errors of configuration files.

use std::io;

use snakepit_error_texts::{ErrorTexts, every_variant};

use crate::{Config, ConfigError};

#[test]
fn every_error_says_the_thing_the_place_and_the_way_out() {
    let mut texts = ErrorTexts::new();
    errors_of_configuration_files(&mut texts);
    insta::assert_snapshot!(texts);
}

fn errors_of_configuration_files(texts: &mut ErrorTexts) {
    let invalid = |text: &str| Config::parse(text, "snakepit.toml").expect_err("wrong");
    every_variant!(texts, ConfigError {
        Unreadable => [ConfigError::Unreadable {
            path: "snakepit.toml".into(),
            source: io::Error::from_raw_os_error(2),
        }],
        Invalid => [
            invalid("[pool.a]\nworker = \n"),
            invalid("[pool.a]\nworker = \"worker.py\"\nworkrs = 2\n"),
            invalid("[pool.a]\nworker = \"worker.py\"\nworkers = \"two\"\n"),
            invalid(""),
        ],
    });
}
