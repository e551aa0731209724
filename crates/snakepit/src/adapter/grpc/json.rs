//! Values for workers that know no MessagePack. What has no place in JSON is an error that names where it stands, and never
//! a text in its place.

use bytes::Bytes;

use crate::value::{Encoded, Map, Value, ValueError};

pub(super) fn write(value: &Encoded) -> Result<Bytes, ValueError> {
    let value = value.to_value()?;
    check(&value)?;
    let text = serde_json::to_vec(&value).map_err(|error| ValueError::unsendable(error.to_string()))?;
    Ok(text.into())
}

pub(super) fn read(text: &[u8]) -> Result<Encoded, ValueError> {
    // An answer without a value is nothing.
    if text.is_empty() {
        return Ok(Encoded::nil());
    }
    let value: Value = serde_json::from_slice(text)
        .map_err(|error| ValueError::malformed(format!("it is not JSON: {error}")))?;
    Encoded::encode(&value)
}

fn check(value: &Value) -> Result<(), ValueError> {
    let what = match value {
        Value::Nil | Value::Bool(_) | Value::Str(_) => return Ok(()),
        Value::Int(number) if i64::try_from(*number).is_ok() || u64::try_from(*number).is_ok() => {
            return Ok(());
        }
        Value::Float(number) if number.is_finite() => return Ok(()),
        Value::List(list) => {
            return list
                .iter()
                .enumerate()
                .try_for_each(|(index, value)| check(value).map_err(|error| error.at_index(index)));
        }
        Value::Map(map) => return check_map(map),
        Value::Int(_) | Value::BigInt(_) => "an integer beyond 64 bits",
        Value::Float(_) => "a float that is no number",
        Value::Bytes(_) => "a byte string",
        Value::DateTime(_) | Value::NaiveDateTime(_) => "a date-time",
    };
    Err(ValueError::unsendable(format!("{what} cannot be sent to a worker that speaks JSON")))
}

fn check_map(map: &Map) -> Result<(), ValueError> {
    map.iter().try_for_each(|(key, value)| {
        if !matches!(key, Value::Str(_)) {
            let message =
                format!("the key {key} is no text, and cannot be sent to a worker that speaks JSON");
            return Err(ValueError::unsendable(message));
        }
        check(value).map_err(|error| error.at_key(key))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_json_knows_comes_back_as_it_was() {
        let text = r#"{"a":[1,-2,1.5,18446744073709551615,null,true,"ä"],"b":{"c":1.0}}"#;
        let value = read(text.as_bytes()).expect("read");
        assert_eq!(write(&value).expect("written"), text);
    }

    #[test]
    fn what_json_does_not_know_is_named_with_its_place() {
        let value = |value: Value| {
            Encoded::encode(
                &[("rows", vec![Value::Nil, value])]
                    .into_iter()
                    .collect::<std::collections::BTreeMap<_, _>>(),
            )
        };
        for (unknown, said) in [
            (Value::Bytes(Bytes::from_static(b"x")), "a byte string"),
            (Value::Float(f64::NAN), "no number"),
            (Value::Int(i128::MAX), "beyond 64 bits"),
        ] {
            let error = write(&value(unknown).expect("encoded")).expect_err("no place for it");
            assert!(error.to_string().contains(said), "{error}");
            assert_eq!(error.path(), "rows[1]");
        }
    }
}
