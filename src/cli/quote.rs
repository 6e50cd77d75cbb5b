//! Texts of others, in commands and in tables.

use informer_hub_types::printable_start;

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
    printable_start(text, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_text_gives_no_orders_and_is_bounded() {
        assert_eq!(shown("a\u{1b}[31m\u{202e}b\n", 80), "a\u{FFFD}b ");
        assert_eq!(shown("äöüß", 3), "äöü…");
        assert_eq!(shown("äöü", 3), "äöü");
    }

    #[test]
    fn a_plain_word_is_not_quoted() {
        let words = ["jane@example.com", "a b", "", "o'brien", "$x"].map(shell);
        assert_eq!(words, ["jane@example.com", "'a b'", "''", r"'o'\''brien'", "'$x'"]);
    }
}
