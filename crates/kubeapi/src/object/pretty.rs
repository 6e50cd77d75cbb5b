//! Indented JSON, as kube-apiserver writes it for `pretty=1`.

use super::scan::skip_string;

/// Depth beyond which the indentation no longer grows, so that deeply nested JSON cannot exhaust memory.
const DEEPEST: usize = 256;

/// Indents JSON by two spaces per level. Empty objects and arrays stay `{}` and `[]`.
#[must_use]
pub fn pretty(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len() * 2);
    Indenter::default().write(json, &mut out);
    out
}

/// Indents JSON that arrives in parts. The output for all parts equals that of [`pretty`] for the whole JSON. Each part
/// must end at the end of a token.
#[derive(Clone, Debug, Default)]
pub struct Indenter {
    depth: usize,
    last: Option<u8>,
}

impl Indenter {
    /// Appends the next part to `out`.
    pub fn write(&mut self, json: &[u8], out: &mut Vec<u8>) {
        let mut at = 0;
        while let Some(&byte) = json.get(at) {
            let start = at;
            at += 1;
            let is_first = matches!(self.last, Some(b'{' | b'['));
            match byte {
                b' ' | b'\n' | b'\r' | b'\t' => continue,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if !is_first {
                        self.new_line(out);
                    }
                }
                _ if is_first || self.last == Some(b',') => self.new_line(out),
                _ => {}
            }
            match byte {
                b'"' => {
                    at = skip_string(json, start).unwrap_or(json.len());
                    out.extend_from_slice(&json[start..at]);
                }
                b':' => out.extend_from_slice(b": "),
                b'{' | b'[' => {
                    self.depth += 1;
                    out.push(byte);
                }
                _ => out.push(byte),
            }
            self.last = Some(byte);
        }
    }

    fn new_line(&self, out: &mut Vec<u8>) {
        out.push(b'\n');
        out.resize(out.len() + 2 * self.depth.min(DEEPEST), b' ');
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::object::testing::json;

    #[test]
    fn levels_are_indented_by_two_spaces() {
        let json = br#"{"a":{},"b":[],"c":{"d":[1,"x, {y}: \"z\" ["]}}"#;
        let expected = "{\n  \"a\": {},\n  \"b\": [],\n  \"c\": {\n    \"d\": [\n      1,\n      \"x, {y}: \\\"z\\\" [\"\n    ]\n  }\n}";
        assert_eq!(String::from_utf8(pretty(json)).unwrap(), expected);
    }

    #[test]
    fn deep_values_take_bounded_memory() {
        let deep = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
        assert!(pretty(deep.as_bytes()).len() < 2 * 20_000 * (2 * DEEPEST + 2));
    }

    proptest! {
        #![proptest_config(informer_hub_testing::properties(1024))]

        #[test]
        fn indented_json_equals_that_of_serde_json(value in json(), is_pretty in any::<bool>()) {
            let expected = serde_json::to_vec_pretty(&value).unwrap();
            let json = if is_pretty { expected.clone() } else { serde_json::to_vec(&value).unwrap() };
            prop_assert_eq!(String::from_utf8(pretty(&json)).unwrap(), String::from_utf8(expected).unwrap());
        }

        #[test]
        fn list_in_parts_is_indented_like_the_whole(items in prop::collection::vec(json(), 0..4)) {
            let items: Vec<_> = items.iter().map(|item| serde_json::to_vec(item).unwrap()).collect();
            let (mut indenter, mut parts, mut whole) = (Indenter::default(), Vec::new(), b"{\"items\":[".to_vec());
            indenter.write(&whole, &mut parts);
            for (at, item) in items.iter().enumerate() {
                let separated = [if at > 0 { &b","[..] } else { b"" }, item].concat();
                indenter.write(&separated, &mut parts);
                whole.extend(separated);
            }
            indenter.write(b"]}\n", &mut parts);
            whole.extend_from_slice(b"]}\n");
            prop_assert_eq!(String::from_utf8(parts).unwrap(), String::from_utf8(pretty(&whole)).unwrap());
        }

        #[test]
        fn any_input_ends_without_a_panic(text in r#"[{}\[\]":, \\a0]{0,24}"#) {
            let _ = pretty(text.as_bytes());
        }
    }
}
