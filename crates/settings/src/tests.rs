//! The errors of values in a file that have no unit, or are none.

use std::fmt::Debug;

use serde::Deserialize;
use serde::de::value::{Error, F64Deserializer, I64Deserializer, StrDeserializer};
use snakepit_error_texts::ErrorTexts;

use crate::{ByteSize, HumanTime};

fn add<'de, T: Deserialize<'de>>(
    texts: &mut ErrorTexts,
    value: impl serde::Deserializer<'de, Error = Error> + Debug,
) {
    let name = format!("{value:?}");
    texts.add(&name, &T::deserialize(value).map(drop).expect_err("no value"));
}

#[test]
fn every_wrong_time_and_size_is_refused_with_what_to_write() {
    let mut texts = ErrorTexts::new();
    for text in ["soon", "-5s", "5"] {
        add::<HumanTime>(&mut texts, StrDeserializer::new(text));
    }
    add::<HumanTime>(&mut texts, I64Deserializer::new(5));
    add::<HumanTime>(&mut texts, F64Deserializer::new(1.5));
    add::<ByteSize>(&mut texts, StrDeserializer::new("5 elephants"));
    add::<ByteSize>(&mut texts, I64Deserializer::new(-1));
    add::<ByteSize>(&mut texts, F64Deserializer::new(1.5));
    insta::assert_snapshot!(texts);
}
