//! Incremental search for the end of a JSON value, without buffering it.

/// Search for the end of a value that arrives in pieces. Only brackets and quotes are considered, so it also finds an
/// end in invalid JSON.
#[derive(Debug, Default, Clone)]
pub(super) struct Skim {
    depth: usize,
    in_string: bool,
    escaped: bool,
    scalar: bool,
}

impl Skim {
    /// Continues the search in `bytes`. Returns how many of them belong to the value; `None` if the value continues
    /// after them.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            if self.in_string {
                if self.escaped {
                    self.escaped = false;
                    at += 1;
                    continue;
                }
                let stop = at + memchr::memchr2(b'"', b'\\', &bytes[at..])?;
                at = stop + 1;
                self.escaped = bytes[stop] == b'\\';
                self.in_string = self.escaped;
                if !self.in_string && self.depth == 0 {
                    return Some(at);
                }
                continue;
            }
            match byte {
                // These end a number or word at depth 0 and do not belong to it.
                b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n' if self.depth == 0 && self.scalar => return Some(at),
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return Some(at + 1);
                    }
                }
                b' ' | b'\t' | b'\r' | b'\n' => {}
                _ => self.scalar |= self.depth == 0,
            }
            at += 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_value_is_found_for_any_split() {
        for (text, end) in [
            (r#"{"a":"}\"]\\","b":[{}]},x"#, 23),
            (r"[1,[2]] ", 7),
            (r#" "a,\"b" ,"#, 8),
            ("12.5e3,", 6),
            ("null}", 4),
            ("true\n", 4),
            ("  12,", 4),
            ("\r\n\"a\"]", 5),
            ("\t\t {} }", 5),
            ("-1\t,", 2),
            ("0\r\n", 1),
            ("[ ]", 3),
            ("1]", 1),
            (r#"{"a":{"b":"}"}}]"#, 15),
        ] {
            for cut in 0..=text.len() {
                let mut skim = Skim::default();
                let (first, second) = text.as_bytes().split_at(cut);
                let found = skim.advance(first).or_else(|| skim.advance(second).map(|n| cut + n));
                assert_eq!(found, Some(end), "{text} cut at {cut}");
            }
        }
    }
}
