//! YAML of an object, as kube-apiserver's serializer writes it: block style, sorted keys, strings quoted if needed.
//!
//! Long strings are folded at 80 columns and keys are in natural order (`a2` before `a10`), since go-yaml v2 does both.

mod emit;
mod keys;
mod node;
mod resolve;
mod scalar;

use emit::Emitter;
use node::Node;

/// Returns the object as YAML. JSON that is malformed or deeper than 500 levels is returned unchanged, since JSON is
/// YAML too.
#[must_use]
pub fn to_yaml(json: &[u8]) -> Vec<u8> {
    let Some(node) = Node::parse(json) else { return json.to_vec() };
    let mut emitter = Emitter::with_capacity(json.len() + json.len() / 4);
    emitter.document(&node);
    emitter.into_bytes()
}

/// Appends a value as an element (`- `) of a list such as `items`. A value that [`to_yaml`] would return unchanged
/// stays JSON, which is YAML in flow style.
pub fn write_yaml_element(json: &[u8], out: &mut Vec<u8>) {
    let Some(node) = Node::parse(json) else {
        out.extend_from_slice(b"- ");
        out.extend_from_slice(json);
        out.push(b'\n');
        return;
    };
    let mut emitter = Emitter::with_capacity(json.len() + json.len() / 4);
    emitter.document(&Node::Sequence(vec![node]));
    out.extend_from_slice(&emitter.into_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::object::testing;

    fn yaml(value: &Value) -> String {
        String::from_utf8(to_yaml(&serde_json::to_vec(value).unwrap())).unwrap()
    }

    #[test]
    fn sequences_are_not_indented_below_their_key() {
        let pod = json!({
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": {"name": "a", "labels": {}, "creationTimestamp": "2024-01-02T03:04:05Z", "uid": null},
            "spec": {"containers": [{"name": "a", "args": ["-v", "", "1", "x: y"], "ports": []}, {"name": "b"}]},
            "matrix": [[1, 2.5], [[]], [{"a": true}]],
        });
        let expected = "\
apiVersion: v1
kind: Pod
matrix:
- - 1
  - 2.5
- - []
- - a: true
metadata:
  creationTimestamp: \"2024-01-02T03:04:05Z\"
  labels: {}
  name: a
  uid: null
spec:
  containers:
  - args:
    - -v
    - \"\"
    - \"1\"
    - 'x: y'
    name: a
    ports: []
  - name: b
";
        assert_eq!(yaml(&pod), expected);
    }

    #[test]
    fn texts_of_several_lines_are_literals() {
        let map = json!({"a": "x\n y\n", "b": "x\ny", "c": "\nx\n\n", "d": "x \ny", "e": "x\ty", "f": "😀", "g": "\n"});
        let expected = "\
a: |
  x
   y
b: |-
  x
  y
c: |2+

  x

d: \"x \\ny\"
e: \"x\\ty\"
f: \"\\U0001F600\"
g: |2+

";
        assert_eq!(yaml(&map), expected);
    }

    #[test]
    fn long_texts_are_folded_and_long_keys_are_complex() {
        let text = "word ".repeat(30).trim().to_owned();
        let key = "k".repeat(129);
        let map = json!({"a": text, key.clone(): ["b"]});
        let line = "word word word word word word word word word word word word word word word word";
        let rest = "word word word word word word word word word word word word word word";
        assert_eq!(yaml(&map), format!("a: {line}\n  {rest}\n? {key}\n: - b\n"));
    }

    #[test]
    fn spaces_up_to_column_80_are_kept() {
        let text = |length: usize| format!("{} b", "x".repeat(length));
        assert_eq!(yaml(&json!({"a": text(77)})), format!("a: {}\n", text(77)));
        assert_eq!(yaml(&json!({"a": text(78)})), format!("a: {}\n  b\n", "x".repeat(78)));
        assert_eq!(yaml(&json!({"a": format!("{}:", text(78))})), format!("a: '{}\n  b:'\n", "x".repeat(78)));
    }

    #[test]
    fn numbers_are_written_as_go_prints_them() {
        for (json, expected) in [
            ("0", "0"),
            ("-0", "0"),
            ("-7", "-7"),
            ("18446744073709551615", "18446744073709551615"),
            ("18446744073709551616", "1.8446744073709552e+19"),
            ("1.0", "1"),
            ("0.5", "0.5"),
            ("1e5", "100000"),
            ("1e6", "1e+06"),
            ("1234567.5", "1.2345675e+06"),
            ("0.0001", "0.0001"),
            ("0.00001", "1e-05"),
            ("-1.5E-300", "-1.5e-300"),
        ] {
            let map = format!("{{\"a\":{json}}}");
            assert_eq!(String::from_utf8(to_yaml(map.as_bytes())).unwrap(), format!("a: {expected}\n"), "{json}");
        }
    }

    #[test]
    fn malformed_and_very_deep_json_is_returned_as_it_is() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        for json in ["", "{", "{\"a\":}", "{\"a\":\"\\x\"}", "[1,", &deep] {
            assert_eq!(to_yaml(json.as_bytes()), json.as_bytes());
        }
    }

    #[test]
    fn deep_element_stays_json() {
        let deep = format!("{}{}", "[".repeat(1000), "]".repeat(1000));
        let mut out = b"items:\n".to_vec();
        write_yaml_element(deep.as_bytes(), &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), format!("items:\n- {deep}\n"));
    }

    proptest! {
        #![proptest_config(informer_hub_testing::properties(2048))]

        #[test]
        fn elements_equal_those_of_a_whole_list(items in prop::collection::vec(testing::json(), 1..4)) {
            let mut out = b"items:\n".to_vec();
            for item in &items {
                write_yaml_element(&serde_json::to_vec(item).unwrap(), &mut out);
            }
            prop_assert_eq!(String::from_utf8(out).unwrap(), yaml(&json!({"items": items})));
        }

        #[test]
        fn yaml_decodes_to_the_same_tree(value in testing::json()) {
            let value = json!({"a": value});
            let yaml = yaml(&value);
            let options = serde_saphyr::options! { strict_booleans: false };
            let decoded: Value = serde_saphyr::from_str_with_options(&yaml, options).unwrap_or_else(|error| panic!("{error}: {yaml}"));
            prop_assert_eq!(decoded, value, "{}", yaml);
        }

        #[test]
        fn any_input_ends_without_a_panic(text in r#"[{\[]?([{}\[\]":, \\ntrue0-9]|"[a-c]{0,4}"){0,24}"#) {
            let _ = to_yaml(text.as_bytes());
        }
    }
}
