//! Removal of credentials from what a client has sent.
//!
//! A credential belongs in the header `Authorization`, which is never logged. A client may put one into the address by
//! mistake, so parts of an address that look like credentials are replaced.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use crate::event::cut;

/// Longest address in an event, in characters.
const MAX_URI: usize = 2048;

/// Longest `User-Agent` in an event, in characters.
const MAX_AGENT: usize = 256;

/// Text in place of a credential.
const REDACTED: &str = "REDACTED";

/// Words in parameter names that mark the value as a credential.
const NAMES: [&str; 13] = [
    "token",
    "secret",
    "passw",
    "pwd",
    "credential",
    "authorization",
    "bearer",
    "apikey",
    "signature",
    "session",
    "cookie",
    "jwt",
    "assertion",
];

/// Parameter names that mark the value as a credential, but only as the whole name.
const WHOLE_NAMES: [&str; 5] = ["auth", "code", "key", "pass", "sig"];

/// Returns path and query for an event, without credentials, cut after 2048 characters. `is_secret` recognizes the
/// tokens that the caller knows.
#[must_use]
pub fn request_uri(path_and_query: &str, is_secret: &dyn Fn(&str) -> bool) -> String {
    let (path, query) = match path_and_query.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (path_and_query, None),
    };
    let mut shown = String::with_capacity(path_and_query.len());
    for (at, segment) in path.split('/').enumerate() {
        if at > 0 {
            shown.push('/');
        }
        shown.push_str(if is_credential(&decoded(segment), is_secret) { REDACTED } else { segment });
    }
    let Some(query) = query else { return cut(&shown, MAX_URI) };
    let mut separator = '?';
    for (pair, next) in pairs(query) {
        shown.push(separator);
        separator = next;
        match pair.split_once('=') {
            Some((name, value))
                if is_name_of_credential(&decoded(name)) || is_credential(&decoded(value), is_secret) =>
            {
                // The name itself may be a credential: `?<token>=`.
                shown.push_str(if is_credential(&decoded(name), is_secret) { REDACTED } else { name });
                shown.push('=');
                shown.push_str(REDACTED);
            }
            _ if is_credential(&decoded(pair.split('=').next().unwrap_or_default()), is_secret) => {
                shown.push_str(REDACTED);
            }
            _ => shown.push_str(pair),
        }
    }
    cut(&shown, MAX_URI)
}

/// Returns a path without percent-encoding, to compare it with rules.
#[must_use]
pub fn decoded_path(path: &str) -> String {
    percent_decode_str(path).decode_utf8_lossy().into_owned()
}

/// Returns a `User-Agent` for an event, without credentials, cut after 256 characters.
#[must_use]
pub fn user_agent(text: &str, is_secret: &dyn Fn(&str) -> bool) -> String {
    if is_secret(text) {
        return REDACTED.to_owned();
    }
    let is_end = |c: char| c.is_whitespace() || matches!(c, '(' | ')' | ',' | ';');
    let mut shown = String::with_capacity(text.len());
    for part in text.split_inclusive(is_end) {
        let word = part.trim_end_matches(is_end);
        if is_credential(word, is_secret) {
            shown.push_str(REDACTED);
            shown.push_str(&part[word.len()..]);
        } else {
            shown.push_str(part);
        }
    }
    cut(&shown, MAX_AGENT)
}

/// Splits a query into its parameters, each with the separator after it.
fn pairs(query: &str) -> impl Iterator<Item = (&str, char)> {
    let ends = query.split_inclusive(['&', ';']);
    ends.map(|part| match part.strip_suffix(['&', ';']) {
        Some(pair) => (pair, part.chars().next_back().unwrap_or('&')),
        None => (part, '&'),
    })
}

fn decoded(text: &str) -> Cow<'_, str> {
    if text.contains(['%', '+']) {
        let spaced = text.replace('+', " ");
        Cow::Owned(percent_decode_str(&spaced).decode_utf8_lossy().into_owned())
    } else {
        Cow::Borrowed(text)
    }
}

fn is_name_of_credential(name: &str) -> bool {
    let name: String = name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    WHOLE_NAMES.contains(&name.as_str()) || NAMES.iter().any(|part| name.contains(part))
}

/// Returns whether a value is a credential: `is_secret` recognizes it, it begins with `Bearer` or `Basic`, or it
/// contains a JSON Web Token.
fn is_credential(value: &str, is_secret: &dyn Fn(&str) -> bool) -> bool {
    let has_scheme = |scheme: &str| value.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    has_scheme("bearer ") || has_scheme("basic ") || has_token(value) || is_secret(value)
}

/// Returns whether a text contains a JSON Web Token: two parts in Base64 that begin like JSON objects, with a dot between.
fn has_token(text: &str) -> bool {
    text.match_indices("eyJ").any(|(at, _)| {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let head = text[at..].bytes().take_while(|byte| is_part(*byte)).count();
        text[at + head..].starts_with(".eyJ")
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn uri(text: &str) -> String {
        request_uri(text, &|value| value == "planted-0123456789")
    }

    #[test]
    fn credentials_in_addresses_are_redacted() {
        for (sent, shown) in [
            ("/v1/query?q=a&resource=pods", "/v1/query?q=a&resource=pods"),
            ("/a?continue=eyJxIjoxfQ&limit=5", "/a?continue=eyJxIjoxfQ&limit=5"),
            ("/a?token=x", "/a?token=REDACTED"),
            ("/a?access_token=x&b=c", "/a?access_token=REDACTED&b=c"),
            ("/a?b=c;Access-Token=x;d", "/a?b=c;Access-Token=REDACTED;d"),
            ("/a?%74oken=x", "/a?%74oken=REDACTED"),
            ("/a?api_key=x&key=y&monkey=z", "/a?api_key=REDACTED&key=REDACTED&monkey=z"),
            ("/a?q=eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln", "/a?q=REDACTED"),
            ("/eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln/x", "/REDACTED/x"),
            ("/a?q=Bearer%20abc", "/a?q=REDACTED"),
            ("/a?q=BEARER+abc", "/a?q=REDACTED"),
            ("/a?q=planted-0123456789", "/a?q=REDACTED"),
            ("/a?q=planted%2D0123456789", "/a?q=REDACTED"),
            ("/a?planted-0123456789", "/a?REDACTED"),
            ("/a?planted-0123456789=", "/a?REDACTED"),
            ("/a?planted-0123456789=planted-0123456789", "/a?REDACTED=REDACTED"),
            ("/a/planted-0123456789", "/a/REDACTED"),
            ("/a?", "/a"),
            ("*", "*"),
        ] {
            assert_eq!(uri(sent), shown, "{sent}");
        }
    }

    #[test]
    fn credentials_in_user_agents_are_redacted() {
        let agent = |text: &str| user_agent(text, &|value| value == "planted-0123456789");
        assert_eq!(agent("kubectl/v1.37 (linux/amd64)"), "kubectl/v1.37 (linux/amd64)");
        assert_eq!(agent("x planted-0123456789; y"), "x REDACTED; y");
        assert_eq!(agent("x (eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln)"), "x (REDACTED)");
        assert_eq!(agent(&"a".repeat(1000)).chars().count(), MAX_AGENT + 1);
    }

    #[test]
    fn long_addresses_are_cut_after_redaction() {
        let shown = uri(&format!("/{}?token=x", "ä".repeat(MAX_URI - 3)));
        assert!(shown.chars().count() == MAX_URI + 1 && shown.ends_with("?t…"), "{}", &shown[shown.len() - 20..]);
    }

    proptest! {
        #![proptest_config(informer_hub_testing::properties(512))]

        #[test]
        fn known_credential_never_remains(
            before in "[a-z%&=;/?+]{0,12}",
            after in "[a-z%&=;/?+]{0,12}",
            place in 0..4,
        ) {
            let secret = "planted-0123456789";
            let sent = match place {
                0 => format!("/a?{before}&x={secret}&{after}"),
                1 => format!("/a/{secret}/{after}?{before}"),
                2 => format!("/a?{before}&{secret}"),
                _ => format!("/a?{secret}={before}"),
            };
            let shown = uri(&sent);
            prop_assert!(!shown.contains(secret), "{} becomes {}", sent, shown);
        }
    }
}
