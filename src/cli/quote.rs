//! Texts of others, in commands and in tables.

/// One word of a POSIX shell.
pub(super) fn shell(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "@%+=:,./_-".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A text that others wrote: without what a terminal obeys, and no longer than so many characters.
pub(super) fn shown(text: &str, most: usize) -> String {
    let is_order = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    let mut shown = String::new();
    for (at, c) in text.chars().enumerate() {
        if at == most {
            shown.push('…');
            break;
        }
        if is_order(c) { shown.extend(c.escape_unicode()) } else { shown.push(c) }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_text_gives_no_orders_and_is_bounded() {
        assert_eq!(shown("a\u{1b}[31m\u{202e}b\n", 80), "a\\u{1b}[31m\\u{202e}b\\u{a}");
        assert_eq!(shown("äöüß", 3), "äöü…");
        assert_eq!(shown("äöü", 3), "äöü");
    }

    #[test]
    fn a_plain_word_is_not_quoted() {
        let words = ["jane@example.com", "a b", "", "o'brien", "$x"].map(shell);
        assert_eq!(words, ["jane@example.com", "'a b'", "''", r"'o'\''brien'", "'$x'"]);
    }
}
