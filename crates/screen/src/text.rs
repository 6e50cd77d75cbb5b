//! Width of texts on a terminal, and their shortening.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Mark of a shortened text, one column wide.
const ELLIPSIS: char = '…';

/// Returns the number of terminal columns that a text takes.
#[must_use]
pub fn width_of(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

/// Shortens a text at its end to at most `width` columns.
#[must_use]
pub fn cut(text: &str, width: usize) -> String {
    if width_of(text) <= width {
        return text.to_owned();
    }
    let mut start = start(text.chars(), width.saturating_sub(1));
    start.truncate(start.trim_end().len());
    if width > 0 {
        start.push(ELLIPSIS);
    }
    start
}

/// Shortens a text in its middle to at most `width` columns. Suits names, which often differ at both ends.
#[must_use]
pub fn cut_middle(text: &str, width: usize) -> String {
    if width_of(text) <= width {
        return text.to_owned();
    }
    let room = width.saturating_sub(1);
    let head = start(text.chars(), room.div_ceil(2));
    let tail: String = start(text.chars().rev(), room / 2).chars().rev().collect();
    if width == 0 { String::new() } else { format!("{head}{ELLIPSIS}{tail}") }
}

/// Returns as many of the first characters as fit `width` columns.
fn start(chars: impl Iterator<Item = char>, width: usize) -> String {
    let mut used = 0;
    let fits = |c: &char| {
        used += c.width().unwrap_or_default();
        used <= width
    };
    chars.take_while(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortened_texts_take_at_most_the_given_columns() {
        assert_eq!(
            [cut("abcdef", 6), cut("abcdef", 4), cut("ab  ef", 4), cut("ab", 1)],
            ["abcdef", "abc…", "ab…", "…"]
        );
        assert_eq!([cut_middle("web-5d9f-x7", 11), cut_middle("web-5d9f-x7", 8)], ["web-5d9f-x7", "web-…-x7"]);
        for width in 0..12 {
            for text in ["日本語テキスト", "abcdefghijkl", "a日b本c語"] {
                assert!(width_of(&cut(text, width)) <= width && width_of(&cut_middle(text, width)) <= width);
            }
        }
    }
}
