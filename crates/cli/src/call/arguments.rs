//! Arguments as people type them: `key=text`, `key:=json`, `key:bytes=@file`, `key:time=…`, `@file`.

use std::io::Read as _;

use snakepit::Value;
use snakepit::value::{BigInt, DateTime, Map, NaiveDateTime};

use crate::say::{Failure, USAGE};

const WAYS: &str = "write key=text, key:=json (numbers, true, null, lists, objects), key:bytes=@file, \
                    key:time=2026-01-31T12:00:00Z, or @file for a JSON object of arguments";

/// One word of the command line.
#[derive(Debug, PartialEq)]
enum Word<'a> {
    /// Many arguments, from a file.
    All(&'a str),
    Text(&'a str, Source<'a>),
    Json(&'a str, Source<'a>),
    Bytes(&'a str, Source<'a>),
    Time(&'a str, Source<'a>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Source<'a> {
    Here(&'a str),
    File(&'a str),
}

/// Reads them all. Nothing of them reaches a worker unless all can be understood.
pub(super) fn parse(words: &[String]) -> Result<Map, Failure> {
    let mut arguments = Map::new();
    let mut typed: Vec<&str> = Vec::new();
    let mut stdin = Stdin::Unread;
    for word in words {
        let (key, value) = match understand(word)? {
            Word::All(file) => {
                for (key, value) in object(file, &mut stdin)?.iter() {
                    arguments.insert(key.clone(), value.clone());
                }
                continue;
            }
            Word::Text(key, source) => (key, Value::from(content(source, &mut stdin)?.0)),
            Word::Json(key, source) => (key, json(key, &content(source, &mut stdin)?)?),
            Word::Bytes(key, source) => (key, Value::from(raw(source, &mut stdin)?)),
            Word::Time(key, source) => (key, time(key, &content(source, &mut stdin)?)?),
        };
        if typed.contains(&key) {
            return Err(wrong(format!("the argument {key} is given twice")).hint("leave one of them out"));
        }
        typed.push(key);
        arguments.insert(key, value);
    }
    Ok(arguments)
}

fn understand(word: &str) -> Result<Word<'_>, Failure> {
    if let Some(file) = word.strip_prefix('@') {
        return Ok(Word::All(file));
    }
    let Some((key, value)) = word.split_once('=') else {
        return Err(wrong(format!("the argument {word:?} has no name")).hint(WAYS));
    };
    let source = value.strip_prefix('@').map_or(Source::Here(value), Source::File);
    let word_of = match key.rsplit_once(':') {
        Some((key, "")) => Word::Json(key, source),
        Some((key, "bytes")) => Word::Bytes(key, source),
        Some((key, "time")) => Word::Time(key, source),
        _ => Word::Text(key, source),
    };
    match word_of {
        Word::Json("", _) | Word::Text("", _) | Word::Bytes("", _) | Word::Time("", _) => {
            Err(wrong(format!("the argument {word:?} has no name before the =")).hint(WAYS))
        }
        word => Ok(word),
    }
}

#[derive(PartialEq)]
enum Stdin {
    Unread,
    Read,
}

/// A text, and where it is from.
struct Content(String, String);

fn content(source: Source<'_>, stdin: &mut Stdin) -> Result<Content, Failure> {
    match source {
        Source::Here(text) => Ok(Content(text.to_owned(), "here".into())),
        Source::File(file) => {
            let place = if file == "-" { "standard input" } else { file };
            String::from_utf8(raw(source, stdin)?).map(|text| Content(text, place.to_owned())).map_err(|_| {
                wrong(format!("{place} is not text in UTF-8"))
                    .hint(format!("for bytes, write key:bytes=@{file}"))
            })
        }
    }
}

/// The bytes that are meant.
fn raw(source: Source<'_>, stdin: &mut Stdin) -> Result<Vec<u8>, Failure> {
    match source {
        Source::Here(text) => Ok(text.as_bytes().to_owned()),
        Source::File("-") => {
            if std::mem::replace(stdin, Stdin::Read) == Stdin::Read {
                return Err(wrong("standard input (@-) is named twice").hint("it can be read only once"));
            }
            let mut bytes = Vec::new();
            let read = std::io::stdin().lock().read_to_end(&mut bytes);
            read.map(|_| bytes).map_err(|error| wrong(format!("cannot read standard input: {error}")))
        }
        Source::File(file) => std::fs::read(file).map_err(|error| {
            wrong(format!("cannot read {file:?}: {error}"))
                .hint("after @ stands a file; text that begins with @ is written as key:='\"@…\"'")
        }),
    }
}

fn time(key: &str, Content(text, place): &Content) -> Result<Value, Failure> {
    let text = text.trim();
    if let Ok(time) = text.parse::<DateTime>() {
        return Ok(time.into());
    }
    text.parse::<NaiveDateTime>().map(Into::into).map_err(|error| {
        wrong(format!("the argument {key} is no date-time ({place}): {error}"))
            .hint("write 2026-01-31T12:00:00Z, or +02:00 in the place of Z, or neither")
    })
}

fn json(key: &str, Content(text, place): &Content) -> Result<Value, Failure> {
    // Larger integers than serde_json knows would become floats, which are other numbers.
    if let Ok(integer) = text.trim().parse::<BigInt>()
        && text.trim().starts_with(|c: char| c.is_ascii_digit() || c == '-')
    {
        return Ok(integer.into());
    }
    serde_json::from_str(text).map_err(|error| {
        let hint = format!("text needs no JSON: {key}=text");
        wrong(format!("the argument {key} is not JSON ({place}): {error}")).hint(hint)
    })
}

fn object(file: &str, stdin: &mut Stdin) -> Result<Map, Failure> {
    let Content(text, place) = content(Source::File(file), stdin)?;
    match serde_json::from_str(&text) {
        Ok(Value::Map(map)) => Ok(map),
        Ok(_) => Err(wrong(format!("{place} is JSON, but no object"))
            .hint("@file holds arguments by name, such as {\"a\": 1, \"b\": 2}")),
        Err(error) => Err(wrong(format!("{place} is not JSON: {error}"))
            .hint("@file holds arguments by name, such as {\"a\": 1, \"b\": 2}")),
    }
}

fn wrong(what: impl Into<String>) -> Failure {
    Failure::plain(what).status(USAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<String, String> {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        parse(&words).map(|map| map.to_string()).map_err(|failure| failure.text().to_owned())
    }

    #[test]
    fn bytes_and_times_have_signs_of_their_own() {
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
        assert!(parsed(&["at:time=soon"]).expect_err("no time").contains("no date-time"));
        assert_eq!(parsed(&["a:b=c"]), Ok(r#"{"a:b":"c"}"#.into()), "other colons are part of the name");
    }

    #[test]
    fn text_and_json_are_told_apart_by_the_colon() {
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
    fn what_cannot_be_understood_is_named() {
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
