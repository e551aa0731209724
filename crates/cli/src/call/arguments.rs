//! Parses arguments as people type them: `key=text`, `key:=json`, `key:bytes=@file`, `key:time=…`, `@file`.

use std::io::Read as _;

use snakepit::Value;
use snakepit::value::{BigInt, DateTime, Map, NaiveDateTime};

use crate::shared::failure::CliFailure;

const SYNTAX: &str = "write key=text, key:=json (numbers, true, null, lists, objects), key:bytes=@file, \
                      key:time=2026-01-31T12:00:00Z, or @file for a JSON object of arguments";
const OBJECT: &str = "@file holds arguments by name, such as {\"a\": 1, \"b\": 2}";

/// The place where an argument was found.
#[derive(Clone, Copy)]
enum ArgumentSource<'a> {
    CommandLine(&'a str),
    File(&'a str),
}

/// Whether an argument has already read standard input.
#[derive(PartialEq)]
enum StdinUse {
    Unread,
    Read,
}

/// Parses all arguments. No worker starts unless all of them are valid.
pub(super) fn parse(words: &[String]) -> Result<Map, CliFailure> {
    let mut arguments = Map::new();
    let mut typed: Vec<&str> = Vec::new();
    let mut stdin = StdinUse::Unread;
    for word in words {
        if let Some(file) = word.strip_prefix('@') {
            for (key, value) in object(file, &mut stdin)?.iter() {
                arguments.insert(key.clone(), value.clone());
            }
            continue;
        }
        let (key, value) = named(word, &mut stdin)?;
        if typed.contains(&key) {
            return Err(
                CliFailure::usage(format!("the argument {key} is given twice")).hint("omit one of them")
            );
        }
        typed.push(key);
        arguments.insert(key, value);
    }
    Ok(arguments)
}

fn named<'a>(word: &'a str, stdin: &mut StdinUse) -> Result<(&'a str, Value), CliFailure> {
    let nameless =
        |what: &str| CliFailure::usage(format!("the argument {word:?} has no name{what}")).hint(SYNTAX);
    let (name, value) = word.split_once('=').ok_or_else(|| nameless(""))?;
    let (key, kind) = match name.rsplit_once(':') {
        Some((key, kind @ ("" | "bytes" | "time"))) => (key, Some(kind)),
        _ => (name, None),
    };
    if key.is_empty() {
        return Err(nameless(" before the ="));
    }
    let source = value.strip_prefix('@').map_or(ArgumentSource::CommandLine(value), ArgumentSource::File);
    let value = match kind {
        None => source.text(stdin)?.into(),
        Some("bytes") => source.bytes(stdin)?.into(),
        Some("time") => time(key, &source.text(stdin)?, source.place())?,
        Some(_) => json(key, &source.text(stdin)?, source.place())?,
    };
    Ok((key, value))
}

impl<'a> ArgumentSource<'a> {
    fn place(self) -> &'a str {
        match self {
            Self::CommandLine(_) => "here",
            Self::File("-") => "standard input",
            Self::File(file) => file,
        }
    }

    fn text(self, stdin: &mut StdinUse) -> Result<String, CliFailure> {
        String::from_utf8(self.bytes(stdin)?).map_err(|_| {
            CliFailure::usage(format!("{} is not text in UTF-8", self.place()))
                .hint("for bytes, write key:bytes=@file")
        })
    }

    fn bytes(self, stdin: &mut StdinUse) -> Result<Vec<u8>, CliFailure> {
        match self {
            Self::CommandLine(text) => Ok(text.as_bytes().to_owned()),
            Self::File("-") => {
                if std::mem::replace(stdin, StdinUse::Read) == StdinUse::Read {
                    return Err(CliFailure::usage("standard input (@-) is named twice")
                        .hint("it can be read only once"));
                }
                let mut bytes = Vec::new();
                let read = std::io::stdin().lock().read_to_end(&mut bytes);
                read.map(|_| bytes)
                    .map_err(|error| CliFailure::usage(format!("cannot read standard input: {error}")))
            }
            Self::File(file) => std::fs::read(file).map_err(|error| {
                CliFailure::usage(format!("cannot read {file:?}: {error}"))
                    .hint("@ is followed by a file; write text that begins with @ as key:='\"@…\"'")
            }),
        }
    }
}

fn time(key: &str, text: &str, place: &str) -> Result<Value, CliFailure> {
    let text = text.trim();
    if let Ok(time) = text.parse::<DateTime>() {
        return Ok(time.into());
    }
    text.parse::<NaiveDateTime>().map(Into::into).map_err(|_| {
        CliFailure::usage(format!("the argument {key} is not a date-time ({place}): {text:?}"))
            .hint("write 2026-01-31T12:00:00Z, or an offset such as +02:00 instead of Z, or neither")
    })
}

fn json(key: &str, text: &str, place: &str) -> Result<Value, CliFailure> {
    // serde_json would turn a large integer into a float and change its value.
    if let Ok(integer) = text.trim().parse::<BigInt>()
        && text.trim().starts_with(|c: char| c.is_ascii_digit() || c == '-')
    {
        return Ok(integer.into());
    }
    serde_json::from_str(text).map_err(|error| {
        CliFailure::usage(format!("the argument {key} is not JSON ({place}): {error}"))
            .hint(format!("text needs no JSON: {key}=text"))
    })
}

fn object(file: &str, stdin: &mut StdinUse) -> Result<Map, CliFailure> {
    let source = ArgumentSource::File(file);
    let what = match serde_json::from_str(&source.text(stdin)?) {
        Ok(Value::Map(map)) => return Ok(map),
        Ok(_) => "is JSON, but not an object".to_owned(),
        Err(error) => format!("is not JSON: {error}"),
    };
    Err(CliFailure::usage(format!("{} {what}", source.place())).hint(OBJECT))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<String, String> {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        parse(&words).map(|map| map.to_string()).map_err(|failure| failure.text().to_owned())
    }

    #[test]
    fn bytes_and_times_have_their_own_argument_syntax() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("x.png");
        std::fs::write(&file, b"\x89PNG\xff").expect("a file");
        let file = file.display();
        assert_eq!(parsed(&[&format!("image:bytes=@{file}")]), Ok(r#"{"image":b"\x89PNG\xff"}"#.into()));
        assert_eq!(parsed(&["raw:bytes=abc"]), Ok(r#"{"raw":b"abc"}"#.into()));
        let said = parsed(&[&format!("image=@{file}")]).expect_err("no text");
        assert!(said.ends_with("is not text in UTF-8"), "{said}");
        for time in ["2026-01-31T12:00:00Z", "2026-01-31T12:00:00+02:00", "2026-01-31T12:00:00"] {
            let shown = parsed(&[&format!("at:time={time}")]).expect("a time");
            assert!(shown.contains("2026-01-31T12:00:00"), "{shown}");
        }
        assert!(parsed(&["at:time=soon"]).expect_err("no time").contains("not a date-time"));
        assert_eq!(parsed(&["a:b=c"]), Ok(r#"{"a:b":"c"}"#.into()), "other colons are part of the name");
    }

    #[test]
    fn a_colon_before_the_equals_sign_marks_a_json_argument() {
        assert_eq!(parsed(&["a=1", "b:=1"]), Ok(r#"{"a":"1","b":1}"#.into()));
        assert_eq!(
            parsed(&["a=", "b=x=y", "c==", "d=:=1"]),
            Ok(r#"{"a":"","b":"x=y","c":"=","d":":=1"}"#.into())
        );
        assert_eq!(
            parsed(&["list:=[1, 2.5, null]", r#"map:={"k": true}"#]),
            Ok(r#"{"list":[1,2.5,null],"map":{"k":true}}"#.into())
        );
    }

    #[test]
    fn integers_of_any_size_stay_integers() {
        assert_eq!(
            parsed(&["n:=-123456789012345678901234567890123456789012"]),
            Ok(r#"{"n":-123456789012345678901234567890123456789012}"#.into())
        );
        assert_eq!(parsed(&["n:=1.0"]), Ok(r#"{"n":1.0}"#.into()));
    }

    #[test]
    fn an_invalid_argument_is_named() {
        for (words, said) in [
            (&["World"][..], r#"the argument "World" has no name"#),
            (&["=1"], r#"the argument "=1" has no name before the ="#),
            (&[":=1"], r#"the argument ":=1" has no name before the ="#),
            (&["a=1", "a:=2"], "the argument a is given twice"),
        ] {
            assert_eq!(parsed(words), Err(said.into()));
        }
        assert!(
            parsed(&["a:=World"]).is_err_and(|said| said.starts_with("the argument a is not JSON (here): "))
        );
        assert!(parsed(&["@/no/such/file"]).is_err_and(|said| said.contains("/no/such/file")));
    }
}
