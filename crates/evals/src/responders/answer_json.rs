//! Converts the answer of a worker to JSON. No number is rounded, and no value becomes null.

use serde_json::{Map, Value as Json};

use crate::Value;

/// Converts a value to JSON. An integer of more than 64 bits becomes a text of its digits, as in a data set. NaN and
/// the infinities are rejected.
pub(super) fn to_json(value: &Value) -> Result<Json, String> {
    match value {
        Value::Int(number) => Ok(match (i64::try_from(*number), u64::try_from(*number)) {
            (Ok(number), _) => number.into(),
            (_, Ok(number)) => number.into(),
            (Err(_), Err(_)) => number.to_string().into(),
        }),
        Value::BigInt(number) => Ok(number.to_string().into()),
        Value::Float(number) if !number.is_finite() => {
            let shown = match number {
                number if number.is_nan() => "NaN",
                number if *number > 0.0 => "Infinity",
                _ => "-Infinity",
            };
            Err(format!("the answer holds {shown}, which JSON cannot represent: answer None, or a text"))
        }
        Value::List(list) => list.iter().map(to_json).collect(),
        Value::Map(map) => {
            let mut object = Map::new();
            for (key, value) in map.iter() {
                let Some(key) = key_of(key) else {
                    return Err(format!(
                        "the answer has the key {key}, which no JSON object can have: use a text"
                    ));
                };
                object.insert(key, to_json(value)?);
            }
            Ok(Json::Object(object))
        }
        Value::Nil
        | Value::Bool(_)
        | Value::Float(_)
        | Value::Str(_)
        | Value::Bytes(_)
        | Value::DateTime(_)
        | Value::NaiveDateTime(_) => serde_json::to_value(value)
            .map_err(|error| format!("the answer cannot be written as JSON: {error}")),
    }
}

/// Returns a key as JSON writes it. Integers and bools become texts.
fn key_of(key: &Value) -> Option<String> {
    match key {
        Value::Str(text) => Some(text.clone()),
        Value::Int(number) => Some(number.to_string()),
        Value::Bool(value) => Some(value.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::BigInt;
    use serde_json::json;

    #[test]
    fn integers_of_any_size_keep_all_their_digits() {
        assert_eq!(to_json(&Value::Int(-7)), Ok(json!(-7)));
        assert_eq!(to_json(&Value::Int(u64::MAX.into())), Ok(json!(u64::MAX)));
        assert_eq!(to_json(&Value::Int(i128::MAX)), Ok(json!(i128::MAX.to_string())));
        let big: BigInt = format!("{}0", i128::MAX).parse().expect("an integer");
        assert_eq!(to_json(&Value::List(vec![Value::from(big)])), Ok(json!([format!("{}0", i128::MAX)])));
    }

    #[test]
    fn a_float_that_is_no_number_is_rejected_and_does_not_become_null() {
        for (number, name) in [(f64::NAN, "NaN"), (f64::INFINITY, "Infinity"), (-f64::INFINITY, "-Infinity")]
        {
            let nested = Value::List(vec![Value::Float(1.5), Value::Float(number)]);
            let reason = to_json(&nested).expect_err("it is no JSON");
            assert!(reason.contains(&format!("holds {name}, ")), "{reason}");
        }
        assert_eq!(to_json(&Value::Float(1.5)), Ok(json!(1.5)));
    }
}
