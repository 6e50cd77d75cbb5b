//! Quoting of shell words in suggested commands.

/// Quotes a text as one word of a POSIX shell.
pub(super) fn shell(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "@%+=:,./_-".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_words_with_special_characters_are_quoted() {
        let words = ["jane@example.com", "a b", "", "o'brien", "$x"].map(shell);
        assert_eq!(words, ["jane@example.com", "'a b'", "''", r"'o'\''brien'", "'$x'"]);
    }
}
