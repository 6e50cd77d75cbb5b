//! Quoting of strings in YAML: which style a string allows.

use super::resolve::is_string;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Style {
    /// Without quotes.
    Plain,
    /// Between single quotes.
    Single,
    /// Between double quotes, with escapes.
    Double,
    /// As lines below a `|`.
    Literal,
}

/// Properties of a string that limit the styles in which it can be written.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "independent properties of a text")]
struct Analysis {
    is_multiline: bool,
    allows_plain: bool,
    allows_single: bool,
    allows_literal: bool,
}

/// Returns whether a key can be written on one line with its colon. Other keys need YAML's `? ` form.
pub(super) fn is_simple_key(text: &str) -> bool {
    text.len() <= 128 && !text.chars().any(is_break)
}

/// Chooses the style of a string. A simple key (see [`is_simple_key`]) must fit on one line.
pub(super) fn style_of(text: &str, is_simple_key: bool) -> Style {
    let analysis = Analysis::of(text);
    let wanted = if is_simple_key && analysis.is_multiline {
        Style::Double
    } else if text.contains('\n') {
        Style::Literal
    } else if is_string(text) {
        Style::Plain
    } else {
        Style::Double
    };
    match wanted {
        Style::Literal if analysis.allows_literal && !is_simple_key => Style::Literal,
        Style::Plain if analysis.allows_plain => Style::Plain,
        Style::Plain if analysis.allows_single => Style::Single,
        _ => Style::Double,
    }
}

impl Analysis {
    fn of(text: &str) -> Self {
        let mut is_multiline = false;
        let mut is_special = false;
        let mut has_indicator = text.starts_with("---") || text.starts_with("...");
        let (mut space_follows_break, mut break_follows_space) = (false, false);
        let mut previous = None;
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            let is_last_of_word = chars.peek().is_none_or(|next| matches!(next, ' ' | '\t'));
            has_indicator |= match (previous, c) {
                (None, '?' | ':' | '-') | (_, ':') => is_last_of_word,
                (None, first) => "#,[]{}&*!|>'\"%@`".contains(first),
                (Some(before), '#') => matches!(before, ' ' | '\t' | '\0') || is_break(before),
                _ => false,
            };
            is_special |= !is_printable(c);
            is_multiline |= is_break(c);
            space_follows_break |= c == ' ' && previous.is_some_and(is_break);
            break_follows_space |= is_break(c) && previous == Some(' ');
            previous = Some(c);
        }
        let is_blank = |c: Option<char>| c.is_some_and(|c| c == ' ' || is_break(c));
        let has_blank_end = is_blank(text.chars().next()) || is_blank(previous);
        let is_escaped = is_special || break_follows_space;
        Self {
            is_multiline,
            allows_plain: !(is_escaped || is_multiline || has_blank_end || has_indicator),
            allows_single: !(is_escaped || space_follows_break),
            allows_literal: !(is_escaped || text.is_empty() || previous == Some(' ')),
        }
    }
}

pub(super) fn is_break(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Returns whether a character needs no escape. go-yaml v2 escapes all characters that take four bytes in UTF-8.
pub(super) fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn style_is_the_simplest_that_is_allowed() {
        for (text, style) in [
            ("a b", Style::Plain),
            ("a:b#c", Style::Plain),
            ("-a", Style::Plain),
            ("?a", Style::Plain),
            ("a[0]", Style::Plain),
            ("a\u{2028}b", Style::Single),
            ("a: b", Style::Single),
            ("a:", Style::Single),
            ("a #b", Style::Single),
            ("#a", Style::Single),
            ("-", Style::Single),
            ("- a", Style::Single),
            ("---", Style::Single),
            ("---a", Style::Single),
            ("[a", Style::Single),
            ("%a", Style::Single),
            ("'a", Style::Single),
            (" a", Style::Single),
            ("a ", Style::Single),
            ("", Style::Double),
            ("true", Style::Double),
            ("a\tb", Style::Double),
            ("😀", Style::Double),
            ("a\nb", Style::Literal),
            (" a\nb", Style::Literal),
            ("a\n b", Style::Literal),
            ("a \nb", Style::Double),
            ("a\nb ", Style::Double),
            ("a\n\tb", Style::Double),
        ] {
            assert_eq!(style_of(text, false), style, "{text:?}");
        }
        assert_eq!(style_of("a\nb", true), Style::Double);
        assert_eq!(style_of("a: b", true), Style::Single);
    }
}
