//! JSON of objects that are nested deeper than serde_json reads by default (128 levels). kube-apiserver accepts 10,000.

use serde::Deserialize;
use serde_json::de::Deserializer;
use serde_json::error::Error;

/// Maximum number of levels that are read.
const MAX_DEPTH: usize = 10_000;

/// Stack in bytes that a thread needs to read, compare and print JSON of the greatest depth, also in a debug build.
pub const DEEP_STACK: usize = 256 << 20;

/// Reads JSON with up to 10,000 levels. The thread must have a stack of [`DEEP_STACK`] bytes.
///
/// # Errors
/// The text is not the JSON of a `T`, or has more than 10,000 levels.
pub fn parse_deep<'de, T: Deserialize<'de>>(json: &'de [u8]) -> Result<T, Error> {
    if depth(json) > MAX_DEPTH {
        return Err(serde::de::Error::custom(format!("the object has more than {MAX_DEPTH} levels")));
    }
    let mut reader = Deserializer::from_slice(json);
    reader.disable_recursion_limit();
    let value = T::deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// Returns the depth of the JSON: the greatest number of objects and arrays that are open at once.
fn depth(json: &[u8]) -> usize {
    let (mut open, mut most, mut bytes) = (0_usize, 0, json.iter());
    while let Some(byte) = bytes.next() {
        match byte {
            b'{' | b'[' => {
                open += 1;
                most = most.max(open);
            }
            b'}' | b']' => open = open.saturating_sub(1),
            b'"' => {
                while bytes.next().is_some_and(|byte| {
                    if *byte == b'\\' {
                        bytes.next();
                    }
                    *byte != b'"'
                }) {}
            }
            _ => {}
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn nested(levels: usize) -> String {
        format!("{}1{}", "[".repeat(levels), "]".repeat(levels))
    }

    #[test]
    fn deep_objects_are_read_up_to_the_limit() {
        let on_deep_stack = std::thread::Builder::new().stack_size(DEEP_STACK).spawn(|| {
            let text = nested(MAX_DEPTH);
            let value: Value = parse_deep(text.as_bytes()).unwrap();
            assert_eq!(value.to_string(), text);
            assert!(value == value.clone());
            let error = parse_deep::<Value>(nested(MAX_DEPTH + 1).as_bytes()).unwrap_err();
            assert!(error.to_string().contains("more than 10000 levels"), "{error}");
        });
        on_deep_stack.unwrap().join().unwrap();
    }

    #[test]
    fn brackets_in_texts_are_no_levels() {
        assert_eq!(depth(br#"{"a":"[[{\"[","b":[{}]}"#), 3);
        assert_eq!(depth(br#""\\"[["#), 2);
        assert!(parse_deep::<Value>(b"[1] 2").is_err(), "text after the end");
    }
}
