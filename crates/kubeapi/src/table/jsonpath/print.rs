//! Text of JSONPath values in table cells.

use serde_json::Value;

use super::PathValue;
use super::eval::Basic;
use crate::number::{go_float, json_float};
use crate::table::age::parse_timestamp;

impl PathValue<'_> {
    /// Returns the value as a cell of a column of type `kind`; null if the value has another type. `now`, for ages, is
    /// in seconds since 1970.
    pub(in crate::table) fn cell(&self, kind: &str, now: i64) -> Value {
        match (kind, self.basic()) {
            ("string", basic) => self.text(basic),
            ("integer" | "number", Some(Basic::Integer(number))) => number.into(),
            ("integer", Some(Basic::Float(number))) => truncated(number).into(),
            ("number", Some(Basic::Float(number))) => whole_or_float(number),
            ("boolean", Some(Basic::Bool(value))) => value.into(),
            ("date", Some(Basic::Text(text))) => match &*text {
                "" | "null" => "<unknown>".into(),
                text => parse_timestamp(text).map_or_else(|| "<invalid>".into(), |time| time.age(now).into()),
            },
            _ => Value::Null,
        }
    }

    /// Returns the text of a value: objects and arrays as JSON, with sorted keys.
    fn text(&self, basic: Option<Basic<'_>>) -> Value {
        match (basic, self) {
            (Some(Basic::Text(text)), _) => text.into(),
            (Some(Basic::Integer(number)), _) => number.to_string().into(),
            (Some(Basic::Float(number)), _) => go_float(number).into(),
            (Some(Basic::Bool(value)), _) => value.to_string().into(),
            (None, Self::Json(json)) => match serde_json::from_slice::<Value>(json) {
                Ok(Value::Null) => "<no value>".into(),
                Ok(value) => {
                    let mut text = String::new();
                    write_json(&value, &mut text);
                    text.into()
                }
                Err(_) => Value::Null,
            },
            (None, _) => Value::Null,
        }
    }
}

/// Returns a number without its fraction. A number out of range gives the least integer, as in Go.
fn truncated(number: f64) -> i64 {
    const END: f64 = 9_223_372_036_854_775_808.0;
    #[allow(clippy::cast_possible_truncation, reason = "the fraction is dropped, and the number is in range")]
    if (-END..END).contains(&number) { number as i64 } else { i64::MIN }
}

/// Returns a number, as an integer if it has no fraction and its absolute value is below 1e15.
fn whole_or_float(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < 1e15 { truncated(number).into() } else { number.into() }
}

/// Writes JSON as Go's encoder does.
fn write_json(value: &Value, out: &mut String) {
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() => out.push_str(&json_float(float)),
            _ => out.push_str(&number.to_string()),
        },
        Value::String(text) => write_string(text, out),
        Value::Array(elements) => {
            out.push('[');
            for (index, element) in elements.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_json(element, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_unstable_by_key(|&(key, _)| key);
            out.push('{');
            for (index, (key, value)) in members.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_string(key, out);
                out.push(':');
                write_json(value, out);
            }
            out.push('}');
        }
        Value::Null | Value::Bool(_) => out.push_str(&value.to_string()),
    }
}

/// Writes a string. As in Go, `<`, `>`, `&`, U+2028 and U+2029 are escaped too.
fn write_string(text: &str, out: &mut String) {
    for c in Value::from(text).to_string().chars() {
        match c {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            _ => out.push(c),
        }
    }
}
