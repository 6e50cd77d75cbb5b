//! Quoted texts as Go's `%q` writes them, because kube-apiserver's messages contain them.

use std::fmt::{self, Write as _};

/// Longest quoted text, in characters with their escapes: every name of an object fits.
const MAX_LENGTH: usize = 320;

/// A text between double quotes, with Go's escapes. A long text ends with `…`.
pub(crate) struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        let (mut escaped, mut length) = (String::new(), 0);
        for c in self.0.chars() {
            escaped.clear();
            escape(c, &mut escaped)?;
            length += escaped.chars().count();
            if length > MAX_LENGTH {
                f.write_char('…')?;
                break;
            }
            f.write_str(&escaped)?;
        }
        f.write_char('"')
    }
}

fn escape(c: char, out: &mut String) -> fmt::Result {
    match c {
        '"' => out.write_str("\\\""),
        '\\' => out.write_str("\\\\"),
        '\x07' => out.write_str("\\a"),
        '\x08' => out.write_str("\\b"),
        '\x0c' => out.write_str("\\f"),
        '\n' => out.write_str("\\n"),
        '\r' => out.write_str("\\r"),
        '\t' => out.write_str("\\t"),
        '\x0b' => out.write_str("\\v"),
        ' '..='~' => out.write_char(c),
        '\0'..='\x7f' => write!(out, "\\x{:02x}", u32::from(c)),
        _ if c.escape_debug().len() == 1 => out.write_char(c),
        '\u{80}'..='\u{ffff}' => write!(out, "\\u{:04x}", u32::from(c)),
        _ => write!(out, "\\U{:08x}", u32::from(c)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_text_has_the_escapes_of_go() {
        for (text, quoted) in [
            ("", r#""""#),
            ("web-0", r#""web-0""#),
            ("a\"b\\c", r#""a\"b\\c""#),
            ("\0\x07\x08\t\n\x0b\x0c\r\x1b\x7f", r#""\x00\a\b\t\n\v\f\r\x1b\x7f""#),
            ("é世🙂", "\"é世🙂\""),
            ("\u{85}\u{200b}\u{e0001}", r#""\u0085\u200b\U000e0001""#),
        ] {
            assert_eq!(Quoted(text).to_string(), quoted);
        }
    }

    #[test]
    fn long_text_is_cut() {
        let name = "a".repeat(317);
        assert_eq!(Quoted(&name).to_string(), format!("\"{name}\""), "the longest name of an object");
        for c in ["a", "\n", "é", "\u{e0001}"] {
            let quoted = Quoted(&c.repeat(16 << 10)).to_string();
            assert!(quoted.chars().count() <= MAX_LENGTH + 3 && quoted.ends_with("…\""), "{quoted}");
        }
    }
}
