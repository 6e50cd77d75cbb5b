//! Tests of continue tokens: round trips and refusals.

use proptest::prelude::*;

use super::*;
use crate::{Target, parse_path};

fn position() -> Continuation {
    Continuation {
        version: 57,
        list: u64::MAX,
        cluster: ClusterName::new("prod-eu").unwrap(),
        key: ObjectKey::new("default", "web-0"),
    }
}

/// Encodes a JSON text as a token.
fn encoded(json: &str) -> String {
    URL_SAFE_NO_PAD.encode(json)
}

/// Creates the token of [`position`] and returns the JSON that the token contains.
fn decoded() -> String {
    String::from_utf8(URL_SAFE_NO_PAD.decode(position().token()).unwrap()).unwrap()
}

fn problem(token: &str) -> String {
    let status = Continuation::parse(token).expect_err(token);
    assert_eq!(status.code, 400);
    let start = "invalid continue token: continue key is not valid: ";
    status.message.strip_prefix(start).unwrap_or_else(|| panic!("{status}")).to_owned()
}

fn fingerprint(path: &str, query: &str) -> u64 {
    let Some((root, Target::Resource(path))) = parse_path(path).unwrap() else { panic!("{path} is no resource") };
    Continuation::fingerprint(&root, &path, &Options::parse(query).unwrap())
}

#[test]
fn token_is_read_back() {
    let token = position().token();
    assert_eq!(Continuation::parse(&token), Ok(position()));
    assert!(token.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')), "{token}");
}

#[test]
fn longest_position_fits_into_a_token() {
    let cluster = ClusterName::new("c".repeat(63)).unwrap();
    let key = ObjectKey::new(&"n".repeat(253), &"\u{1}".repeat(253));
    let longest = Continuation { version: u64::MAX, cluster, key, ..position() };
    assert_eq!(Continuation::parse(&longest.token()), Ok(longest));
}

#[test]
fn text_that_is_no_token_is_refused() {
    assert_eq!(problem("x"), "it is not base64");
    assert_eq!(problem("!!!!"), "it is not base64");
    assert_eq!(problem("%%"), "it is not base64");
    assert_eq!(problem(&encoded("not JSON")), "it is not JSON with a format version `v`");
    assert_eq!(problem(&encoded("{}")), "it is not JSON with a format version `v`");
    assert_eq!(problem(&encoded("[]")), "it is not JSON with a format version `v`");
    assert_eq!(problem(""), "it is not JSON with a format version `v`");
    assert_eq!(problem(&"A".repeat(4097)), "it has 4097 characters: at most 4096 are allowed");
}

#[test]
fn token_of_another_version_is_refused() {
    let unknown = "server does not recognize this encoded version";
    // The first is a token of kube-apiserver.
    assert_eq!(problem(&encoded(r#"{"v":"meta.k8s.io/v1","rv":5,"start":"default/web-0"}"#)), unknown);
    assert_eq!(problem(&encoded(&decoded().replace("hub.io/v1", "hub.io/v2"))), unknown);
}

#[test]
fn changed_token_is_refused() {
    for (from, to) in [
        (r#""rv":57"#, r#""rv":58"#),
        (r#""rv":57"#, r#""rv":0"#),
        (r#""rv":57"#, r#""rv":-1"#),
        (r#""list":18446744073709551615"#, r#""list":5"#),
        ("prod-eu", "prod-us"),
        ("prod-eu", "../x"),
        ("web-0", "web-1"),
        ("web-0", "web/0"),
        (r#""rv":57"#, r#""rv":57,"more":1"#),
        (r#""rv":57"#, r#""rv":57,"rv":57"#),
        (r#""rv":57"#, r#""rv": 57"#),
    ] {
        let json = decoded();
        assert!(json.contains(from), "{json}");
        assert_eq!(problem(&encoded(&json.replace(from, to))), "it is damaged", "{to}");
    }
}

#[test]
fn position_that_no_object_can_have_is_refused_even_with_a_right_checksum() {
    for key in ["", "/", "a/", "/a", "a/b/c", "..", "../a", "a/..", ".", "a%2Fb", &"x".repeat(254)] {
        let forged = Continuation { key: ObjectKey::of(key), ..position() };
        assert_eq!(problem(&forged.token()), "it is damaged", "{key}");
    }
    let forged = Continuation { version: 0, ..position() };
    assert_eq!(problem(&forged.token()), "it is damaged");
}

#[test]
fn token_of_another_list_is_refused() {
    let wanted = fingerprint("/clusters/*/api/v1/namespaces/x/pods", "labelSelector=a%3Db&fieldSelector=c%3Dd&limit=5");
    let position = Continuation { list: wanted, ..position() };
    let same =
        ("/clusters/%2A/api/v1/namespaces/x/pods/", "fieldSelector=c%3D%3Dd&labelSelector=a%3D%3Db&limit=7&continue=x");
    assert_eq!(position.check(fingerprint(same.0, same.1)), Ok(()));
    for (path, query) in [
        ("/unique/*/api/v1/namespaces/x/pods", "labelSelector=a%3Db&fieldSelector=c%3Dd"),
        ("/clusters/x/api/v1/namespaces/x/pods", "labelSelector=a%3Db&fieldSelector=c%3Dd"),
        ("/clusters/x=y/api/v1/namespaces/x/pods", "labelSelector=a%3Db&fieldSelector=c%3Dd"),
        ("/clusters/*/api/v1/pods", "labelSelector=a%3Db&fieldSelector=c%3Dd"),
        ("/clusters/*/api/v1/namespaces/x/services", "labelSelector=a%3Db&fieldSelector=c%3Dd"),
        ("/clusters/*/apis/g/v1/namespaces/x/pods", "labelSelector=a%3Db&fieldSelector=c%3Dd"),
        ("/clusters/*/api/v1/namespaces/x/pods", "labelSelector=a%3Db"),
        ("/clusters/*/api/v1/namespaces/x/pods", "fieldSelector=c%3Dd"),
    ] {
        let refused = position.check(fingerprint(path, query)).unwrap_err();
        assert_eq!(refused.code, 400, "{path} {query}");
    }
}

proptest! {
    #![proptest_config(informer_hub_testing::properties(256))]

    #[test]
    fn any_position_is_read_back(
        version in 1..u64::MAX,
        list in any::<u64>(),
        cluster in "[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}",
        namespace in prop::option::of("[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?"),
        name in "[a-z][^/%]{0,30}",
    ) {
        let key = ObjectKey::new(namespace.as_deref().unwrap_or_default(), &name);
        let position = Continuation { version, list, cluster: ClusterName::new(&cluster).unwrap(), key };
        prop_assert_eq!(Continuation::parse(&position.token()), Ok(position));
    }

    #[test]
    fn cut_or_changed_tokens_are_refused(at in any::<prop::sample::Index>(), byte in "[A-Za-z0-9_-]", is_cut in any::<bool>()) {
        let mut token = position().token();
        let at = at.index(token.len());
        if is_cut {
            token.truncate(at);
        } else {
            token.replace_range(at..=at, &byte);
        }
        prop_assume!(token != position().token());
        prop_assert!(Continuation::parse(&token).is_err());
    }

    #[test]
    fn random_tokens_are_refused_without_panic(token in r"[A-Za-z0-9_-]{0,60}|\PC{0,20}") {
        prop_assert!(Continuation::parse(&token).is_err());
    }
}
