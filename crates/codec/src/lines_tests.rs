use proptest::prelude::*;

use super::*;
use crate::ErrorClass;

#[test]
fn limits_match_documentation() {
    assert_eq!(MAX_OBJECT_BYTES, 16 << 20);
    assert_eq!(KEPT_CAPACITY, 256 << 10);
}

/// Splits `pieces` into lines and returns their texts. An oversized line is `long:` and the number of its bytes that
/// the splitter kept; an incomplete last line is `rest:` and its text.
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
fn lines_do_not_depend_on_split() {
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
fn endless_line_ends_the_watch() {
    let piece = [b'x'; 16];
    let pieces: Vec<&[u8]> = std::iter::repeat_n(&piece[..], 3).collect();
    assert_eq!(lines(&pieces, 16).unwrap(), ["long:16", "rest:"]);
    let pieces: Vec<&[u8]> = std::iter::repeat_n(&piece[..], 5).collect();
    assert_eq!(lines(&pieces, 16).unwrap_err().class, ErrorClass::Malformed);
}

#[test]
fn line_limit_and_skip_limit_are_exact() {
    let x = |length: usize| "x".repeat(length);
    assert_eq!(lines(&[x(16).as_bytes(), b"\n"], 16).unwrap(), [x(16)]);
    assert_eq!(lines(&[x(17).as_bytes(), b"\na\n"], 16).unwrap(), ["long:16", "a"]);
    assert_eq!(lines(&[x(16).as_bytes(), b"x", b"\na\n"], 16).unwrap(), ["long:16", "a"]);
    assert_eq!(lines(&[x(64).as_bytes(), b"\na\n"], 16).unwrap(), ["long:16", "a"]);
    assert_eq!(lines(&[x(60).as_bytes(), b"xxxx\na\n"], 16).unwrap(), ["long:16", "a"]);
    for pieces in [[x(65), String::new()], [x(60), x(5)], [x(60), x(5) + "\n"]] {
        let pieces: Vec<_> = pieces.iter().map(String::as_bytes).collect();
        let error = lines(&pieces, 16).unwrap_err();
        assert_eq!(error.message, "watch: no newline in 65 bytes; a line has at most 64");
    }
}

#[test]
fn long_line_releases_its_buffer() {
    for (length, kept) in [(KEPT_CAPACITY, true), (KEPT_CAPACITY + 1, false)] {
        let mut splitter = LineSplitter::default();
        let mut line = vec![b'x'; length];
        splitter.feed(&line, |_| panic!("the line is incomplete")).unwrap();
        assert!(splitter.is_inside());
        splitter.buffer.shrink_to_fit();
        line.truncate(0);
        let mut found = 0;
        splitter
            .feed(b"\n", |line| {
                let Line::Whole(line) = line else { panic!("too long") };
                found = line.len();
                Ok(())
            })
            .unwrap();
        assert_eq!((found, splitter.buffer.capacity() > 0, splitter.is_inside()), (length, kept, false));
    }
}

#[test]
fn buffer_is_freed_between_lines_only() {
    let mut splitter = LineSplitter::default();
    let mut found = Vec::new();
    let mut feed = |splitter: &mut LineSplitter, piece: &[u8]| {
        let each = |line: Line<'_>| {
            found.push(format!("{line:?}"));
            Ok(())
        };
        splitter.feed(piece, each).unwrap();
        splitter.free();
        splitter.buffer.capacity()
    };
    assert!(feed(&mut splitter, b"on") > 0, "inside a line");
    assert_eq!(feed(&mut splitter, b"e\n"), 0);
    assert_eq!(feed(&mut splitter, b"two\n"), 0);
    assert_eq!(found.len(), 2);
}

#[test]
fn error_of_callback_is_returned() {
    for feed in [&b"one\ntwo\n"[..], b"\n \none\ntwo\n", b"way too long\ntwo\n"] {
        let mut splitter = LineSplitter::new(8);
        let mut seen = 0;
        let refused = splitter.feed(feed, |_| {
            seen += 1;
            Err(malformed("no"))
        });
        assert_eq!((refused.unwrap_err().message.as_str(), seen), ("no", 1));
    }
}

proptest! {
    #![proptest_config(informer_hub_testing::properties(256))]

    #[test]
    fn line_splitter_never_panics(pieces in prop::collection::vec("[{}\\[\\]\",:a-fi\\\\ 0-9\n]{0,20}", 0..8)) {
        let pieces: Vec<&[u8]> = pieces.iter().map(String::as_bytes).collect();
        let _ = lines(&pieces, 10);
    }
}
