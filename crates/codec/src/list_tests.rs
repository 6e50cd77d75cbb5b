use proptest::prelude::*;

use super::*;
use crate::Projection;
use informer_hub_types::{ApiResource, Gvr};

fn decoder() -> Decoder {
    let pods = ApiResource { gvr: Gvr::new("", "v1", "pods"), kind: "Pod".into(), namespaced: true };
    Decoder::new(pods, &Projection::default(), Vec::new())
}

/// Decodes a list that arrives in `pieces`. Returns each step as text: an object's key, `skip:key`,
/// `end:version:token:remaining`, or `error:class`.
fn list(pieces: &[&[u8]], limit: usize) -> Vec<String> {
    let (mut decoder, mut splitter, mut out) = (decoder(), ListSplitter::new(limit), Vec::new());
    let describe = |step: ListStep| match step {
        ListStep::Object(object) => Some(object.key().as_str().to_owned()),
        ListStep::Skipped(skipped) => {
            Some(format!("skip:{}", skipped.key.map_or(String::new(), |k| k.as_str().to_owned())))
        }
        ListStep::End { version, continue_token, remaining } => {
            Some(format!("end:{version}:{continue_token:?}:{remaining:?}"))
        }
        ListStep::NeedMore => None,
    };
    let mut run = || {
        for piece in pieces {
            splitter.feed(piece);
            while let Some(text) = describe(splitter.next(&mut decoder)?) {
                out.push(text);
            }
        }
        while let Some(text) = describe(splitter.finish(&mut decoder)?) {
            out.push(text);
        }
        Ok(())
    };
    if let Err(error) = run() {
        let error: SourceError = error;
        out.push(format!("error:{:?}", error.class));
    }
    out
}

const LIST: &str = r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"99","continue":"t","remainingItemCount":7},"other":[{"items":[1,"]"]},1.5e3,null],"items":[{"metadata":{"name":"a","namespace":"n"}}, {"metadata":{"name":"é\"","namespace":"n"},"x":[-1.5e+3,true,"\u00e9\\"]} ,{"metadata":{}},12, {"metadata":{"name":"c"}}
]} "#;

fn expected() -> Vec<String> {
    ["n/a", "n/é\"", "skip:", "skip:", "c", "end:99:Some(\"t\"):Some(7)"].map(str::to_owned).to_vec()
}

#[test]
fn list_does_not_depend_on_split() {
    let bytes = LIST.as_bytes();
    assert_eq!(list(&[bytes], 1000), expected());
    for cut in 0..=bytes.len() {
        let (first, second) = bytes.split_at(cut);
        assert_eq!(list(&[first, second], 1000), expected(), "cut at {cut}");
    }
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(list(&single, 1000), expected());
}

#[test]
fn truncated_list_is_an_error() {
    for end in 0..LIST.trim_end().len() {
        let found = list(&[&LIST.as_bytes()[..end]], 1000);
        assert_eq!(found.last().map(String::as_str), Some("error:Transient"), "{end}: {found:?}");
    }
}

#[test]
fn envelope_members_may_be_in_any_order() {
    let end = "end:5:None:None";
    for text in [
        r#"{"items":[],"metadata":{"resourceVersion":"5"}}"#,
        r#"{"metadata":{"resourceVersion":"5","continue":""},"items":null}"#,
        r#"{"metadata":{"resourceVersion":"5","remainingItemCount":-1},"items":[ ]}"#,
    ] {
        assert_eq!(list(&[text.as_bytes()], 1000), [end], "{text}");
    }
    assert_eq!(list(&[br#"{"metadata":null,"items":[]}"#], 1000), ["end::None:None"]);
}

#[test]
fn answer_that_is_not_a_list_is_malformed() {
    for text in [
        r#"{"kind":"Status","metadata":{},"code":200}"#,
        r#"{"kind":"Table","rows":[]}"#,
        r#"{"kind":"Pod","metadata":{}}"#,
        r#"{"items":{}}"#,
        r#"{"items":5}"#,
        r"[]",
        "<html>",
        r#"{"items":[{"a":1 "b":2}]}"#,
        r#"{"items":[{}{}]}"#,
        r#"{"items":[,]}"#,
        r#"{"metadata":5,"items":[]}"#,
        r#"{"items" []}"#,
    ] {
        assert_eq!(list(&[text.as_bytes()], 1000).last().map(String::as_str), Some("error:Malformed"), "{text}");
    }
}

// client-go: TestIsUnsupportedTableObject.
#[test]
fn table_and_status_are_refused_before_items_are_read() {
    let message = |text: &str| steps(&[text.as_bytes()], 1000).unwrap_err().message;
    for (text, expected) in [
        (r#"{"kind":"Table","items":[{"metadata":{"name":"a"}}]}"#, "list: the server sent a Table instead of objects"),
        (r#"{"kind":"Status","items":[]}"#, "list: the server answered 200 with a Status instead of a list"),
        (r#"{"metadata":{},"kind":"Table","#, "list: the server sent a Table instead of objects"),
        (r#"{"kind":"Pod","spec":{}}"#, "list: the answer has no items; its kind is Pod"),
        ("{}", "list: the answer has no items; its kind is unset"),
        (r#"{"kind":["PodList"],"items":[]}"#, "list: invalid kind"),
        (r#"{"items":7}"#, "list: items are not an array"),
        (r#"{"items":[] "a":1}"#, "list: invalid JSON: missing comma"),
        (r#"{,"items":[]}"#, "list: invalid JSON: unexpected comma"),
        (r#"{"items" 1}"#, "list: invalid JSON: expected a colon"),
        ("{1:2}", "list: invalid JSON: expected a key or }"),
        ("7", "list: the answer is not a JSON object"),
    ] {
        assert_eq!(message(text), expected, "{text}");
    }
    for list in [r#"{"kind":"PodList","items":[]}"#, r#"{"kind":null,"items":null}"#, r#"{"kind":"List","items":[]}"#] {
        assert!(matches!(&steps(&[list.as_bytes()], 1000).unwrap()[..], [ListStep::End { .. }]), "{list}");
    }
}

// client-go: TestIsUnsupportedTableObject. A custom resource may name its list freely.
#[test]
fn table_of_own_group_is_a_list_but_of_meta_k8s_io_is_not() {
    let rows = || ApiResource { gvr: Gvr::new("custom.group", "v1", "rows"), kind: "Row".into(), namespaced: true };
    let read = |text: &str| {
        let (mut decoder, mut splitter) =
            (Decoder::new(rows(), &Projection::default(), Vec::new()), ListSplitter::new(1000));
        splitter.feed(text.as_bytes());
        let mut objects = 0;
        loop {
            match splitter.finish(&mut decoder) {
                Ok(ListStep::Object(_)) => objects += 1,
                Ok(ListStep::End { .. }) => return Ok(objects),
                Ok(other) => panic!("{other:?}"),
                Err(error) => return Err((error.class, error.message)),
            }
        }
    };
    let items = r#""items":[{"metadata":{"name":"a"}}]"#;
    for kind in ["Table", "Status"] {
        for own in [
            format!(r#"{{"apiVersion":"custom.group/v1","kind":"{kind}",{items}}}"#),
            format!(r#"{{"kind":"{kind}","apiVersion":"custom.group/v1","metadata":{{}},{items}}}"#),
            format!(r#"{{"apiVersion":"custom.group/v1",{items},"kind":"{kind}"}}"#),
        ] {
            assert_eq!(read(&own), Ok(1), "{own}");
        }
        for other in [
            format!(r#"{{"apiVersion":"meta.k8s.io/v1","kind":"{kind}",{items}}}"#),
            format!(r#"{{"kind":"{kind}","apiVersion":"meta.k8s.io/v1beta1",{items}}}"#),
            format!(r#"{{"apiVersion":"v1",{items},"kind":"{kind}"}}"#),
            format!(r#"{{"kind":"{kind}",{items}}}"#),
            format!(r#"{{"kind":"{kind}","items":null}}"#),
            format!(r#"{{"kind":"{kind}","apiVersion":7,{items}}}"#),
        ] {
            let (class, message) = read(&other).unwrap_err();
            assert_eq!(class, ErrorClass::Malformed, "{other}");
            assert!(message.contains("a Table instead of objects") || message.contains("with a Status"), "{message}");
        }
    }
}

#[test]
fn oversized_item_is_skipped_by_name() {
    let large = format!(r#"{{"metadata":{{"name":"big","namespace":"n"}},"x":"{}"}}"#, "}],\\\"".repeat(1000));
    let text =
        format!(r#"{{"items":[{large},{{"metadata":{{"name":"small"}}}}],"metadata":{{"resourceVersion":"1"}}}}"#);
    for size in [1, 7, 100, 300, 10_000] {
        let pieces: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
        assert_eq!(list(&pieces, 200), ["skip:n/big", "small", "end:1:None:None"], "pieces of {size}");
    }
}

#[test]
fn oversized_item_uses_bounded_memory() {
    let (mut decoder, mut splitter) = (decoder(), ListSplitter::new(1024 * 1024));
    splitter.feed(br#"{"items":[{"metadata":{"name":"big","namespace":"n"},"x":""#);
    let piece = vec![b'x'; 64 * 1024];
    let mut skipped = 0;
    for _ in 0..800 {
        splitter.feed(&piece);
        while !matches!(splitter.next(&mut decoder).unwrap(), ListStep::NeedMore) {
            skipped += 1;
        }
        assert!(splitter.buffered() <= 3 * 1024 * 1024);
    }
    splitter.feed(br#""}],"metadata":{}}"#);
    assert!(matches!(splitter.next(&mut decoder).unwrap(), ListStep::End { .. }));
    assert_eq!(skipped, 1);
}

/// Returns the steps of the list while its body arrives, without calling `finish`.
fn steps(pieces: &[&[u8]], limit: usize) -> Result<Vec<ListStep>, SourceError> {
    let (mut decoder, mut splitter, mut steps) = (decoder(), ListSplitter::new(limit), Vec::new());
    for piece in pieces {
        splitter.feed(piece);
        loop {
            match splitter.next(&mut decoder)? {
                ListStep::NeedMore => break,
                step => steps.push(step),
            }
        }
    }
    Ok(steps)
}

#[test]
fn scalar_at_end_of_piece_may_continue() {
    let item = "{\n\"metadata\":\n{\"name\":\"a\"},\n\"x\": -12.5e+30\n,\"y\":\n[true\n,false,null\n,0.5]\n}";
    let text = format!("{{\"items\":\n[{item}\n,{item},\n12\n,true ],\n\"metadata\":{{\"resourceVersion\":\"1\"}}}}");
    let expected = ["a", "a", "skip:", "skip:", "end:1:None:None"];
    for cut in 0..=text.len() {
        let (first, second) = text.as_bytes().split_at(cut);
        assert_eq!(list(&[first, second], 1000), expected, "cut at {cut}");
    }
}

#[test]
fn invalid_json_is_refused_at_once() {
    for broken in ["tx", "-x", "1.x", "1ex", "nul1", "01", "\"\\x\"", "\"a\" 1", "{1", "+1", "1.5.5"] {
        for lines in 0..4 {
            let before = "\"a\":1,\n".repeat(lines);
            for after in [",\n\"some\":\"more\"", ",\"some\":\"more\""] {
                let text = format!("{{\"items\":[{{{before}\"b\":{broken}{}", after.repeat(5));
                let error = steps(&[text.as_bytes()], 1000).unwrap_err();
                assert_eq!(error.class, ErrorClass::Malformed, "{text}");
                assert!(error.message.starts_with("object: invalid JSON at line "), "{}", error.message);
            }
        }
    }
}

#[test]
fn metadata_and_keys_are_limited_to_64_kib() {
    let start = r#"{"metadata":"#;
    let fits = format!("{{\"a\":\"{}", "x".repeat(64 * 1024 - 6));
    assert_eq!(fits.len(), 64 * 1024);
    assert!(steps(&[start.as_bytes(), fits.as_bytes()], 1000).unwrap().is_empty());
    let error = steps(&[start.as_bytes(), fits.as_bytes(), b"x"], 1000).unwrap_err();
    assert_eq!(error.message, "list: metadata is longer than 64 KiB");
    let key = format!("\"{}", "x".repeat(64 * 1024 - 1));
    assert!(steps(&[b"{", key.as_bytes()], 1000).unwrap().is_empty());
    let error = steps(&[b"{", key.as_bytes(), b"x"], 1000).unwrap_err();
    assert_eq!(error.message, "list: a key is longer than 64 KiB");
}

#[test]
fn item_may_be_as_large_as_the_limit() {
    let item = |size: usize| {
        let head = r#"{"metadata":{"name":"a","resourceVersion":"4"},"x":""#;
        format!("{head}{}\"}}", "x".repeat(size - head.len() - 2))
    };
    for size in [200, 201] {
        let text = format!("{{\"items\":[{}", item(size));
        let (whole, halves) = (text.as_bytes(), text.as_bytes().split_at(100));
        for pieces in [vec![whole], vec![halves.0, halves.1]] {
            let steps = steps(&pieces, 200).unwrap();
            match (&steps[..], size) {
                ([ListStep::Object(_)], 200) => {}
                ([ListStep::Skipped(skipped)], 201) => {
                    assert_eq!(skipped.key.as_ref().unwrap().name(), "a");
                    assert_eq!(skipped.version.as_ref().unwrap().to_string(), "4");
                    assert_eq!(skipped.reason, "larger than the limit of 200 bytes");
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn incomplete_item_is_skipped_one_byte_past_the_limit() {
    let head = r#"{"metadata":{"name":"a","namespace":"n"},"x":""#;
    for first in [head.len(), 100, 150, 200] {
        let (mut decoder, mut splitter) = (decoder(), ListSplitter::new(200));
        splitter.feed(br#"{"items":["#);
        let item = format!("{head}{}", "x".repeat(201 - head.len()));
        splitter.feed(&item.as_bytes()[..first]);
        assert!(matches!(splitter.next(&mut decoder).unwrap(), ListStep::NeedMore));
        splitter.feed(&item.as_bytes()[first..200]);
        assert!(matches!(splitter.next(&mut decoder).unwrap(), ListStep::NeedMore), "it may still end at the limit");
        splitter.feed(b"x");
        let ListStep::Skipped(skipped) = splitter.next(&mut decoder).unwrap() else { panic!("{first}") };
        assert_eq!(skipped.key.unwrap().as_str(), "n/a");
        assert!(matches!(splitter.next(&mut decoder).unwrap(), ListStep::NeedMore));
        splitter.feed(br#""}]}"#);
        assert!(matches!(splitter.next(&mut decoder).unwrap(), ListStep::End { .. }));
    }
}

// No piece ends exactly at the end of an item. Decoded bytes must be freed nevertheless.
#[test]
fn buffer_holds_undecoded_bytes_only() {
    let (mut decoder, mut splitter) = (decoder(), ListSplitter::new(1024));
    splitter.feed(br#"{"items":["#);
    let items = r#"{"metadata":{"name":"a"}},"#.repeat(4000);
    let mut read = 0;
    for piece in items.as_bytes().chunks(1003) {
        splitter.feed(piece);
        while !matches!(splitter.next(&mut decoder).unwrap(), ListStep::NeedMore) {
            read += 1;
        }
        assert!((1..8192).contains(&splitter.buffered()), "{}", splitter.buffered());
    }
    assert_eq!(read, 4000);
}

#[test]
fn buffer_shrinks_to_1_mib_after_a_large_item_and_is_freed_at_the_end() {
    let (mut decoder, mut splitter) = (decoder(), ListSplitter::default());
    splitter
        .feed(format!("{{\"items\":[{{\"metadata\":{{\"name\":\"a\"}},\"x\":\"{}\"}}", "x".repeat(3 << 20)).as_bytes());
    assert!(matches!(splitter.next(&mut decoder).unwrap(), ListStep::Object(_)));
    assert!(splitter.buffered() > 3 << 20);
    splitter.feed(b"]");
    assert_eq!(splitter.buffered(), 1 << 20);
    assert!(!splitter.is_done());
    splitter.feed(b"}");
    assert!(matches!(splitter.next(&mut decoder).unwrap(), ListStep::NeedMore | ListStep::End { .. }));
    assert!(splitter.is_done());
    splitter.feed(b"more");
    assert_eq!(splitter.buffered(), 0);
    assert!(matches!(splitter.next(&mut decoder).unwrap(), ListStep::NeedMore));
}

proptest! {
    #![proptest_config(informer_hub_testing::properties(256))]

    #[test]
    fn list_does_not_depend_on_sizes_of_pieces(sizes in prop::collection::vec(1_usize..40, 1..60)) {
        let (mut rest, mut pieces) = (LIST.as_bytes(), Vec::new());
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, tail) = rest.split_at((*size).min(rest.len()));
            pieces.push(piece);
            rest = tail;
        }
        prop_assert_eq!(list(&pieces, 1000), expected());
    }

    #[test]
    fn list_splitter_never_panics(pieces in prop::collection::vec("[{}\\[\\]\",:a-fi\\\\ 0-9\n]{0,20}", 0..8)) {
        let pieces: Vec<&[u8]> = pieces.iter().map(String::as_bytes).collect();
        let _ = list(&pieces, 30);
        let mut in_items: Vec<&[u8]> = vec![br#"{"items":["#];
        in_items.extend(&pieces);
        let _ = list(&in_items, 30);
    }
}
