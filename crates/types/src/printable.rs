//! Sanitizer for foreign text shown to people: names, error bodies, plugin output and anything else from outside the
//! hub.
//!
//! Terminals execute control characters, log readers split at line breaks, and zero-width or direction-changing
//! characters mislead readers. All foreign text for people must pass through this module.

use std::borrow::Cow;
use std::fmt::Write;
use std::iter::Peekable;
use std::str::Chars;

/// Returns the text on one line, without control characters and without characters that hide or reorder others.
///
/// Colour codes (ANSI CSI sequences) are removed. Other control characters and line breaks become spaces. Invisible and
/// direction-changing characters become `U+FFFD`, so that they can be seen. The result has at most as many characters
/// as the text.
#[must_use]
pub fn printable(text: &str) -> String {
    Printable(text.chars().peekable()).collect()
}

/// Maximum number of characters that an error quotes from a caller's text.
pub const MAX_QUOTED: usize = 200;

/// Returns the first `limit` characters of a text, followed by `…` if characters are missing.
#[must_use]
pub fn shortened(text: &str, limit: usize) -> Cow<'_, str> {
    match text.char_indices().nth(limit) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

/// Returns the number, from 1, of the character at a byte offset of a text. Errors show such positions.
#[must_use]
pub fn position_of(text: &str, at: usize) -> usize {
    text.char_indices().take_while(|(start, _)| *start < at).count() + 1
}

/// Like [`printable`], limited to the first `limit` characters, followed by `…` if characters are missing.
#[must_use]
pub fn printable_start(text: &str, limit: usize) -> String {
    let mut all = Printable(text.chars().peekable());
    let mut short: String = all.by_ref().take(limit).collect();
    if all.next().is_some() {
        short.push('…');
    }
    short
}

/// Like [`printable`], limited to the last `limit` characters, preceded by `…` if characters are missing.
#[must_use]
pub fn printable_end(text: &str, limit: usize) -> String {
    let whole = printable(text);
    let missing = whole.chars().count().saturating_sub(limit);
    if missing == 0 {
        return whole;
    }
    std::iter::once('…').chain(whole.chars().skip(missing)).collect()
}

/// Returns an equivalent JSON document that is printable except for line breaks.
///
/// Unsafe characters become `\uXXXX`, since valid JSON has them only in strings. Tabs and carriage returns become
/// spaces, since valid JSON has them only between values.
#[must_use]
pub fn printable_json(document: &str) -> String {
    let mut safe = String::with_capacity(document.len());
    for c in document.chars() {
        if c == '\n' || printable_char(c) == c {
            safe.push(c);
        } else if matches!(c, '\t' | '\r') {
            safe.push(' ');
        } else {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                let _ = write!(safe, "\\u{unit:04x}");
            }
        }
    }
    safe
}

/// Applies [`printable`] to each line of a text composed by the program, which may contain foreign text. With
/// `colours`, colour codes are kept.
#[must_use]
pub fn printable_lines(text: &str, colours: bool) -> String {
    let mut safe = String::with_capacity(text.len());
    for (at, line) in text.split('\n').enumerate() {
        if at > 0 {
            safe.push('\n');
        }
        let mut rest = line;
        while let Some((before, code, after)) = colours.then(|| split_at_colour(rest)).flatten() {
            safe.push_str(&printable(before));
            safe.push_str(code);
            rest = after;
        }
        safe.push_str(&printable(rest));
    }
    safe
}

/// Splits a line at its first colour code: `ESC [`, then digits and `;`, then `m`. Returns the text before it, the
/// code, and the text after it.
fn split_at_colour(line: &str) -> Option<(&str, &str, &str)> {
    line.match_indices("\u{1b}[").find_map(|(start, begin)| {
        let parameters = &line[start + begin.len()..];
        let length = parameters.find(|c: char| !(c.is_ascii_digit() || c == ';'))?;
        let end = start + begin.len() + length + 1;
        parameters[length..].starts_with('m').then(|| (&line[..start], &line[start..end], &line[end..]))
    })
}

/// Returns the printable replacement of a character, or the character itself if it is harmless.
#[must_use]
pub fn printable_char(c: char) -> char {
    if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') {
        ' '
    } else if is_deceptive(c) {
        '\u{FFFD}'
    } else {
        c
    }
}

/// Returns whether a character hides itself or others, or changes their order.
///
/// These are zero-width characters; the marks, embeddings, overrides and isolates of bidirectional text; annotations
/// and tags. The joiners U+200C and U+200D are allowed, because Persian, Hindi and emoji need them.
fn is_deceptive(c: char) -> bool {
    matches!(c,
        '\u{AD}' | '\u{61C}' | '\u{115F}' | '\u{1160}' | '\u{180E}' | '\u{200B}' | '\u{200E}' | '\u{200F}'
        | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{3164}' | '\u{FEFF}' | '\u{FFA0}'
        | '\u{FFF9}'..='\u{FFFB}' | '\u{E0000}'..='\u{E007F}')
}

struct Printable<'t>(Peekable<Chars<'t>>);

impl Printable<'_> {
    /// Skips the rest of a CSI sequence: parameters, intermediates, one final character.
    fn skip_sequence(&mut self) {
        while self.0.next_if(|c| matches!(c, ' '..='?')).is_some() {}
        self.0.next_if(|c| matches!(c, '@'..='~'));
    }
}

impl Iterator for Printable<'_> {
    type Item = char;

    fn next(&mut self) -> Option<char> {
        loop {
            match self.0.next()? {
                '\u{9B}' => self.skip_sequence(),
                '\u{1B}' if self.0.next_if_eq(&'[').is_some() => self.skip_sequence(),
                c => return Some(printable_char(c)),
            }
        }
    }
}

/// Hostile sample text, and an assertion that shown text is harmless.
#[cfg(any(test, feature = "testing"))]
pub mod hostile {
    /// Sample with colours, cursor movement, a terminal title, all kinds of line breaks, direction overrides and
    /// zero-width characters.
    pub const TEXT: &str = "ok\u{1b}[2J\u{1b}[31mred\u{1b}[0m\u{9b}1A\u{1b}]0;title\u{7}\r\n2026 ERROR forged\n\u{85}\u{2028}a\u{202e}b\u{2066}\u{200b}\u{feff}\0\u{7f}\u{8}end";

    /// Asserts that `shown`, which contains [`TEXT`], is harmless. `breaks` is the number of line breaks that the
    /// program itself writes, `way` the name of the output in the panic message.
    ///
    /// # Panics
    /// If `shown` is not harmless.
    #[track_caller]
    pub fn assert_harmless(way: &str, shown: &str, breaks: usize) {
        assert!(shown.contains("end"), "{way} shows the text: {shown:?}");
        let broken = shown.matches('\n').count();
        assert!(broken <= breaks, "{way} has {broken} line breaks for {breaks}: {shown:?}");
        let unsafe_char = shown.chars().find(|c| *c != '\n' && super::printable_char(*c) != *c);
        assert_eq!(unsafe_char, None, "{way}: {shown:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_counts_characters_from_one() {
        let text = "é=b";
        assert_eq!([0, 2, 3, 4, 9].map(|at| position_of(text, at)), [1, 2, 3, 4, 4]);
        assert_eq!(position_of("", 0), 1);
    }

    #[test]
    fn printable_documents_and_lines_keep_the_programs_own_breaks_and_colours() {
        let value = serde_json::json!({ "a": hostile::TEXT, "b\u{202e}": "\u{E0001}" });
        let text = printable_json(&serde_json::to_string_pretty(&value).unwrap());
        hostile::assert_harmless("JSON", &text, 3);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
        assert_eq!(printable_json("{\r\n\t\"a\":\t1}"), "{ \n \"a\": 1}", "tabs between values");
        let own = "\u{1b}[31merror  \u{1b}[0m a\u{1b}[2J\u{1b}[\nb\t\u{1b}]c\n";
        assert_eq!(printable_lines(own, true), "\u{1b}[31merror  \u{1b}[0m a\nb  ]c\n");
        assert_eq!(printable_lines(own, false), "error   a\nb  ]c\n");
    }

    #[test]
    fn printable_text_has_no_colours_breaks_or_hidden_characters() {
        for (text, expected) in [
            ("plain é 日本 👩\u{200D}🚀", "plain é 日本 👩\u{200D}🚀"),
            ("\u{1b}[31;1mred\u{1b}[0m", "red"),
            ("\u{9b}2Jgone", "gone"),
            ("\u{1b}]0;title\u{7}x", " ]0;title x"),
            ("a\r\nb\tc\u{85}d\u{2028}e", "a  b c d e"),
            ("gpj\u{202e}exe.\u{2066}x\u{200b}y", "gpj\u{FFFD}exe.\u{FFFD}x\u{FFFD}y"),
            ("\u{1b}[", ""),
            ("\u{1b}[3\nm", " m"),
            ("\u{7f}\u{0}", "  "),
        ] {
            assert_eq!(printable(text), expected, "{text:?}");
        }
        let every: String = ('\0'..=char::MAX).collect();
        assert!(printable(&every).chars().all(|c| !c.is_control() && printable_char(c) == c));
    }

    #[test]
    fn bounded_printable_text_marks_the_cut() {
        assert_eq!((printable_start("abc", 3).as_str(), printable_end("abc", 3).as_str()), ("abc", "abc"));
        assert_eq!((printable_start("äbcd", 3).as_str(), printable_end("äbcd", 3).as_str()), ("äbc…", "…bcd"));
        assert_eq!(printable_start("abc\u{1b}[0m", 3), "abc", "only invisible characters are missing");
    }
}
