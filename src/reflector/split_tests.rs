use proptest::prelude::*;

use super::*;
use crate::reflector::{Decoder, ErrorClass, Projection};
use crate::types::{ApiResource, Gvr};

fn decoder() -> Decoder {
    let pods = ApiResource { gvr: Gvr::new("", "v1", "pods"), kind: "Pod".into(), namespaced: true };
    Decoder::new(pods, &Projection::default(), Vec::new())
}

/// What a list brings, as text: names, `skip:key`, `end:version:token:remaining`, or `error:class`.
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
fn a_list_is_the_same_wherever_it_is_cut() {
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
fn a_list_that_ends_early_is_an_error_wherever_it_ends() {
    for end in 0..LIST.trim_end().len() {
        let found = list(&[&LIST.as_bytes()[..end]], 1000);
        assert_eq!(found.last().map(String::as_str), Some("error:Transient"), "{end}: {found:?}");
    }
}

#[test]
fn the_envelope_may_come_in_any_order() {
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
fn what_is_not_a_list_is_refused() {
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

#[test]
fn an_item_over_the_limit_is_skipped_by_name_and_the_next_is_read() {
    let large = format!(r#"{{"metadata":{{"name":"big","namespace":"n"}},"x":"{}"}}"#, "}],\\\"".repeat(1000));
    let text =
        format!(r#"{{"items":[{large},{{"metadata":{{"name":"small"}}}}],"metadata":{{"resourceVersion":"1"}}}}"#);
    for size in [1, 7, 100, 300, 10_000] {
        let pieces: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
        assert_eq!(list(&pieces, 200), ["skip:n/big", "small", "end:1:None:None"], "pieces of {size}");
    }
}

#[test]
fn an_object_of_50_mib_costs_no_more_memory_than_the_limit() {
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

/// Lines as text; a too long one as `long:` and the length of its head.
fn lines(pieces: &[&[u8]], limit: usize) -> Result<Vec<String>, SourceError> {
    let (mut splitter, mut out) = (LineSplitter::new(limit), Vec::new());
    for piece in pieces {
        splitter.feed(piece, |line| {
            out.push(match line {
                Line::Whole(line) => String::from_utf8_lossy(line).into_owned(),
                Line::TooLong(head) => format!("long:{}", head.len()),
            });
            Ok(())
        })?;
    }
    if splitter.is_inside() {
        out.push(format!("rest:{}", String::from_utf8_lossy(splitter.rest())));
    }
    Ok(out)
}

#[test]
fn lines_are_the_same_wherever_they_are_cut() {
    let text = b"one\n\ntwo \xc3\xa9\r\n   \n0123456789abcdefghij\nthree\nfo";
    let expected = ["one", "two é\r", "long:10", "three", "rest:fo"];
    for cut in 0..=text.len() {
        let (first, second) = text.split_at(cut);
        assert_eq!(lines(&[first, second], 10).unwrap(), expected, "cut at {cut}");
    }
    let single: Vec<&[u8]> = text.chunks(1).collect();
    assert_eq!(lines(&single, 10).unwrap(), expected);
}

#[test]
fn a_line_without_end_ends_the_watch() {
    let piece = [b'x'; 16];
    let pieces: Vec<&[u8]> = std::iter::repeat_n(&piece[..], 3).collect();
    assert_eq!(lines(&pieces, 16).unwrap(), ["long:16", "rest:"]);
    let pieces: Vec<&[u8]> = std::iter::repeat_n(&piece[..], 5).collect();
    assert_eq!(lines(&pieces, 16).unwrap_err().class, ErrorClass::Malformed);
}

proptest! {
    #![proptest_config(crate::cache::testing::properties(256))]

    #[test]
    fn no_pieces_of_any_size_change_a_list(sizes in prop::collection::vec(1_usize..40, 1..60)) {
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
    fn no_bytes_make_the_splitters_panic(pieces in prop::collection::vec("[{}\\[\\]\",:a-fi\\\\ 0-9\n]{0,20}", 0..8)) {
        let pieces: Vec<&[u8]> = pieces.iter().map(String::as_bytes).collect();
        let _ = list(&pieces, 30);
        let mut in_items: Vec<&[u8]> = vec![br#"{"items":["#];
        in_items.extend(&pieces);
        let _ = list(&in_items, 30);
        let _ = lines(&pieces, 10);
    }
}
