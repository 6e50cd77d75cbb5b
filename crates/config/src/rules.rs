//! Rules for single values without a type of their own: addresses, namespaces, field selectors, paths.

use std::net::IpAddr;

use http::Uri;

use informer_hub_types::{FieldPath, Segment};

/// Parses an `http` or `https` address. Errors do not quote it, since it may contain a secret.
pub fn url(text: &str) -> Result<Uri, String> {
    const SHAPE: &str = "write e.g. \"https://example.com/path\"";
    let uri: Uri = text.parse().map_err(|e| format!("not an address ({e}); {SHAPE}"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(format!("the address does not begin with http:// or https://; {SHAPE}"));
    }
    if uri.host().is_none_or(str::is_empty) {
        return Err(format!("the address has no host; {SHAPE}"));
    }
    if uri.authority().is_some_and(|a| a.as_str().contains('@')) {
        return Err(
            "a user or password does not belong in the address; remove it, and use the keys for credentials".to_owned()
        );
    }
    Ok(uri)
}

/// Parses comma-separated addresses of NATS servers. Errors do not quote the addresses.
///
/// `keys` names the configuration keys for credentials. An error about credentials in an address refers to them.
pub(super) fn nats_urls(text: &str, keys: &str) -> Result<Vec<String>, String> {
    const SHAPE: &str = "write e.g. \"nats://nats.example.com:4222\"";
    let check = |text: &str| {
        let uri: Uri = text.parse().map_err(|e| format!("not an address ({e}); {SHAPE}"))?;
        if !matches!(uri.scheme_str(), Some("nats" | "tls")) {
            return Err(format!("the address does not begin with nats:// or tls://; {SHAPE}"));
        }
        if uri.host().is_none_or(str::is_empty) {
            return Err(format!("the address has no host; {SHAPE}"));
        }
        if uri.authority().is_some_and(|a| a.as_str().contains('@')) {
            return Err(format!("credentials do not belong in the address; use {keys}"));
        }
        Ok(text.to_owned())
    };
    text.split(',').map(|address| check(address.trim())).collect()
}

/// Returns whether the host of an address is this machine.
#[must_use]
pub fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Returns whether a text is a valid pattern of cluster names, in which `*` matches any text.
pub(super) fn is_cluster_pattern(text: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'*');
    text.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '*') && text.bytes().all(legal)
}

/// Checks the syntax of a field selector, `path=value,path!=value`, where `\` escapes `,`, `=` and itself in a value.
/// The supported paths are known only to the apiserver.
pub(super) fn field_selector(text: &str) -> Result<(), String> {
    for term in terms(text)? {
        let Some(at) = term.find('=') else {
            return Err(format!("{term:?} has no operator; write path=value or path!=value"));
        };
        let path = term[..at].strip_suffix('!').unwrap_or(&term[..at]);
        let value = term[at + 1..].strip_prefix('=').unwrap_or(&term[at + 1..]);
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '/');
        if path.is_empty() || !path.chars().all(legal) {
            return Err(format!("{path:?} is not a field; write e.g. \"status.phase=Running\""));
        }
        if has_bare_equals(value) {
            return Err(format!("the value of {path:?} has a \"=\"; write \"\\\\=\" for a literal one"));
        }
    }
    Ok(())
}

/// Splits a field selector at unescaped commas.
fn terms(text: &str) -> Result<Vec<&str>, String> {
    let (mut found, mut start, mut escaped) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        match (escaped, c) {
            (true, ',' | '=' | '\\') => escaped = false,
            (true, other) => return Err(format!("\"\\{other}\" is not an escape; use \\ only before , = or \\")),
            (false, '\\') => escaped = true,
            (false, ',') => {
                found.push(&text[start..at]);
                start = at + 1;
            }
            (false, _) => {}
        }
    }
    if escaped {
        return Err("ends in the middle of an escape".to_owned());
    }
    found.push(&text[start..]);
    Ok(found)
}

fn has_bare_equals(value: &str) -> bool {
    let mut escaped = false;
    value.chars().any(|c| {
        let bare = c == '=' && !escaped;
        escaped = c == '\\' && !escaped;
        bare
    })
}

/// Returns whether a path is inside `metadata`.
pub(super) fn in_metadata(path: &FieldPath) -> bool {
    matches!(path.segments().first(), Some(Segment::Field(name)) if name == "metadata")
}

/// Returns whether a path is part of an object's identity, such as `kind` or `metadata.name`.
pub(super) fn is_identity(path: &FieldPath) -> bool {
    let fields: Option<Vec<_>> =
        path.segments().iter().map(|s| if let Segment::Field(f) = s { Some(f.as_str()) } else { None }).collect();
    matches!(
        fields.as_deref(),
        Some(["apiVersion" | "kind" | "metadata"] | ["metadata", "name" | "namespace" | "uid" | "resourceVersion"])
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_accepts_http_with_host_and_without_password() {
        for good in ["https://example.com/x?y=z", "http://127.0.0.1:80", "https://[::1]:6443"] {
            assert!(url(good).is_ok(), "{good}");
        }
        for bad in ["", "example.com", "ftp://x", "https://", "https:///x", "https://u:hunter2@x/", "https://a b"] {
            let problem = url(bad).expect_err(bad);
            assert!(!problem.contains("hunter2"), "{problem}");
        }
    }

    #[test]
    fn nats_urls_need_a_scheme_and_no_password() {
        assert_eq!(
            nats_urls("nats://a:4222, tls://b", "token"),
            Ok(vec!["nats://a:4222".to_owned(), "tls://b".to_owned()])
        );
        for bad in ["", "a:4222", "http://a", "nats://a,,nats://b", "nats://u:hunter2@a", "nats://"] {
            let problem = nats_urls(bad, "token").expect_err(bad);
            assert!(!problem.contains("hunter2"), "{problem}");
        }
    }

    #[test]
    fn is_loopback_recognizes_loopback_hosts() {
        let at = |text: &str| is_loopback(text.parse::<Uri>().unwrap().host().unwrap());
        assert!(at("http://127.0.0.1:1") && at("http://[::1]:1") && at("http://localhost"));
        assert!(!at("http://10.0.0.1") && !at("http://localhost.example.com"));
    }

    #[test]
    fn field_selector_syntax_is_checked() {
        for good in ["status.phase=Running", "a==b,c!=d", "metadata.name=x\\,y\\=z", "a="] {
            assert_eq!(field_selector(good), Ok(()), "{good}");
        }
        for bad in ["a", "=b", "!=b", "a=b,", "a b=c", "a=b=c", "a=\\x", "a=\\"] {
            assert!(field_selector(bad).is_err(), "{bad}");
        }
    }
}
