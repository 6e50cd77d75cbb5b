//! `Warning` headers (RFC 7234) of answers.

/// Prefix of the hub's own warnings, which is removed.
const OWN: &str = "informer-hub: ";

/// Returns the text of a header such as `299 - "informer-hub: stale: prod-us"`, without the prefix; `None` if it is
/// malformed.
#[must_use]
pub fn warning_text(header: &str) -> Option<String> {
    let rest = header.trim().strip_prefix("299 ")?;
    let (_agent, quoted) = rest.split_once(' ')?;
    let mut chars = quoted.trim().strip_prefix('"')?.chars();
    let mut text = String::new();
    loop {
        match chars.next()? {
            '"' => break,
            '\\' => text.push(chars.next()?),
            c => text.push(c),
        }
    }
    Some(text.strip_prefix(OWN).map_or(text.clone(), str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warning_is_the_quoted_text() {
        let text = |header: &str| warning_text(header);
        assert_eq!(text("299 - \"informer-hub: stale: us\"").as_deref(), Some("stale: us"));
        assert_eq!(text("299 - \"say \\\"x\\\\\\\"\" \"date\"").as_deref(), Some("say \"x\\\""));
        for bad in ["", "110 - \"x\"", "299 -", "299 - x", "299 - \"x", "299 - \"x\\"] {
            assert_eq!(text(bad), None, "{bad}");
        }
    }
}
