//! Quoted texts as Go's `%q` writes them, because kube-apiserver's messages contain them.

use std::fmt::{self, Write as _};

/// A text between double quotes, with Go's escapes.
pub(crate) struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\x07' => f.write_str("\\a")?,
                '\x08' => f.write_str("\\b")?,
                '\x0c' => f.write_str("\\f")?,
                '\n' => f.write_str("\\n")?,
                '\r' => f.write_str("\\r")?,
                '\t' => f.write_str("\\t")?,
                '\x0b' => f.write_str("\\v")?,
                ' '..='~' => f.write_char(c)?,
                '\0'..='\x7f' => write!(f, "\\x{:02x}", u32::from(c))?,
                _ if c.escape_debug().len() == 1 => f.write_char(c)?,
                '\u{80}'..='\u{ffff}' => write!(f, "\\u{:04x}", u32::from(c))?,
                _ => write!(f, "\\U{:08x}", u32::from(c))?,
            }
        }
        f.write_char('"')
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
}
