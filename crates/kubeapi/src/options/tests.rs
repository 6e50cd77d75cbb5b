//! Tests of query parameters: values, defaults and refusals.

use proptest::prelude::*;

use super::*;
use crate::{Reason, Root, Target, parse_path};

fn parse(query: &str) -> Options {
    Options::parse(query).unwrap_or_else(|status| panic!("{query}: {status}"))
}

fn refusal(query: &str) -> Status {
    Options::parse(query).expect_err(query)
}

fn of(path: &str, query: &str) -> Result<Options, Status> {
    match parse_path(&format!("/clusters/c{path}")) {
        Ok(Some((Root::Cluster(_), Target::Resource(path)))) => Options::of(&path, query),
        other => panic!("{path}: {other:?}"),
    }
}

#[test]
fn empty_query_has_the_defaults() {
    for query in ["", "&&", "unknown=1", "labelSelector=&fieldSelector=&continue=&resourceVersion="] {
        assert_eq!(parse(query), Options::default(), "{query}");
    }
}

#[test]
fn every_parameter_is_parsed() {
    let options = parse(
        "labelSelector=app%3Dweb&fieldSelector=spec.nodeName%3Dn1&limit=500&continue=abc&resourceVersion=0&\
         timeoutSeconds=30&watch=false&allowWatchBookmarks=true&pretty=1&includeObject=Object",
    );
    let expected = Options {
        labels: "app=web".parse().unwrap(),
        fields: FieldSelector::parse("spec.nodeName=n1").unwrap(),
        limit: 500,
        continuation: "abc".into(),
        resource_version: "0".into(),
        timeout: Some(Duration::from_secs(30)),
        bookmarks: true,
        pretty: Some(true),
        include_object: Some("Object".into()),
        ..Options::default()
    };
    assert_eq!(options, expected);
    let watch = parse("watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=5");
    assert!(watch.watch);
    assert_eq!(watch.initial_events, Some(false));
    assert_eq!(watch.version_match, Some(VersionMatch::NotOlderThan));
    assert_eq!(parse("resourceVersion=5&resourceVersionMatch=Exact").version_match, Some(VersionMatch::Exact));
}

#[test]
fn watch_from_any_version_begins_with_the_state_by_default() {
    for query in ["watch=1", "watch=1&resourceVersion=0"] {
        let options = parse(query);
        assert_eq!(options.initial_events, Some(true), "{query}");
        assert_eq!(options.version_match, Some(VersionMatch::NotOlderThan), "{query}");
    }
    for query in ["watch=1&resourceVersion=5", "watch=1&resourceVersion=00", ""] {
        assert_eq!((parse(query).initial_events, parse(query).version_match), (None, None), "{query}");
    }
    assert_eq!(of("/api/v1/watch/nodes", "").unwrap().initial_events, None);
}

#[test]
fn boolean_is_true_unless_it_is_zero_or_false() {
    for (query, is_true) in [
        ("watch=0", false),
        ("watch=false", false),
        ("watch=FALSE", false),
        ("watch=", true),
        ("watch", true),
        ("watch=1", true),
        ("watch=true", true),
        ("watch=no", true),
        ("watch=0&watch=1", false),
        ("watch=1&watch=0", true),
    ] {
        assert_eq!(parse(query).watch, is_true, "{query}");
    }
}

#[test]
fn pretty_is_a_boolean_of_go() {
    for (query, pretty) in [
        ("", None),
        ("pretty=", None),
        ("pretty=true", Some(true)),
        ("pretty=T", Some(true)),
        ("pretty=0", Some(false)),
        ("pretty=yes", Some(false)),
    ] {
        assert_eq!(parse(query).pretty, pretty, "{query}");
    }
}

#[test]
fn query_is_decoded_like_a_form() {
    assert_eq!(parse("labelSelector=a+in+(b,c)").labels, "a in (b,c)".parse().unwrap());
    assert_eq!(parse("label%53elector=a%3D%3Db").labels, "a=b".parse().unwrap());
    // Pairs that cannot be decoded are dropped.
    assert_eq!(parse("limit=%zz&limit=7&continue=a;b").limit, 7);
    assert_eq!(parse("limit=%zz&continue=a;b").continuation, "");
    assert_eq!(refusal("continue=%ff").message, "the value of parameter continue is not UTF-8");
}

#[test]
fn integers_are_parsed_by_the_rules_of_go() {
    assert_eq!(parse("limit=%2B5").limit, 5);
    assert_eq!(parse("limit=-5").limit, 0);
    assert_eq!(parse("timeoutSeconds=0").timeout, None);
    assert_eq!(parse("timeoutSeconds=-1").timeout, Some(Duration::ZERO));
    for (query, message) in [
        ("limit=abc", r#"strconv.ParseInt: parsing "abc": invalid syntax"#),
        ("limit=", r#"strconv.ParseInt: parsing "": invalid syntax"#),
        ("limit=1_0", r#"strconv.ParseInt: parsing "1_0": invalid syntax"#),
        ("limit=%2B-1", r#"strconv.ParseInt: parsing "+-1": invalid syntax"#),
        (
            "timeoutSeconds=9223372036854775808",
            r#"strconv.ParseInt: parsing "9223372036854775808": value out of range"#,
        ),
    ] {
        assert_eq!(refusal(query), Status::bad_request(message), "{query}");
    }
}

#[test]
fn wrong_number_is_refused_before_a_wrong_selector() {
    for query in ["labelSelector=a%3Db%3Dc&limit=abc", "fieldSelector=a&timeoutSeconds=abc"] {
        assert_eq!(refusal(query).message, r#"strconv.ParseInt: parsing "abc": invalid syntax"#, "{query}");
    }
}

#[test]
fn wrong_selectors_are_bad_requests_with_position_and_token() {
    for (query, message) in [
        ("labelSelector=a%3D%3D%3Db", "unable to parse requirement: expected a value, found \"=\" at position 4"),
        ("labelSelector=a+in+b", "unable to parse requirement: expected \"(\", found \"b\" at position 6"),
        ("fieldSelector=foo", "invalid selector: 'foo'; can't understand 'foo'"),
        (
            "fieldSelector=foo&labelSelector=%3D",
            "unable to parse requirement: expected a label key, found \"=\" at position 1",
        ),
        ("fieldSelector=foo&limit=x", r#"strconv.ParseInt: parsing "x": invalid syntax"#),
        ("limit=x&timeoutSeconds=y", r#"strconv.ParseInt: parsing "y": invalid syntax"#),
    ] {
        assert_eq!(refusal(query), Status::bad_request(message), "{query}");
    }
}

#[test]
fn contradicting_options_of_a_list_are_invalid() {
    const UNSET: &str =
        "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided";
    const CONTINUE: &str =
        "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided";
    const UNKNOWN: &str =
        r#"resourceVersionMatch: Unsupported value: "foo": supported values: "Exact", "NotOlderThan", """#;
    const ZERO: &str =
        r#"resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0""#;
    const INITIAL: &str = "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list";
    for (query, problems) in [
        ("resourceVersionMatch=Exact", vec![UNSET]),
        ("resourceVersionMatch=NotOlderThan", vec![UNSET]),
        ("resourceVersionMatch=Exact&resourceVersion=0", vec![ZERO]),
        ("resourceVersionMatch=foo&resourceVersion=1", vec![UNKNOWN]),
        ("resourceVersionMatch=Exact&resourceVersion=1&continue=x", vec![CONTINUE]),
        ("sendInitialEvents=false", vec![INITIAL]),
        ("resourceVersionMatch=foo&continue=x&sendInitialEvents=1", vec![UNSET, CONTINUE, UNKNOWN, INITIAL]),
    ] {
        check_invalid(query, &problems);
    }
}

#[test]
fn contradicting_options_of_a_watch_are_invalid() {
    const NEEDS: &str =
        "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
    const ALONE: &str = "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
    const UNKNOWN: &str = r#"resourceVersionMatch: Unsupported value: "Exact": supported values: "NotOlderThan""#;
    const CONTINUE: &str =
        "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided";
    for (query, problems) in [
        ("watch=1&sendInitialEvents=1", vec![NEEDS]),
        ("watch=1&sendInitialEvents=0", vec![NEEDS]),
        ("watch=1&resourceVersionMatch=NotOlderThan", vec![ALONE]),
        ("watch=1&resourceVersionMatch=Exact", vec![ALONE, UNKNOWN]),
        ("watch=1&sendInitialEvents=1&resourceVersionMatch=Exact", vec![NEEDS, UNKNOWN]),
        ("watch=1&sendInitialEvents=1&resourceVersionMatch=NotOlderThan&continue=x", vec![CONTINUE]),
    ] {
        check_invalid(query, &problems);
    }
    check_invalid("watch=1&continue=x", &[CONTINUE]);
    assert!(Options::parse("watch=1&continue=x&limit=5&resourceVersion=5").is_ok());
}

fn check_invalid(query: &str, problems: &[&str]) {
    let status = refusal(query);
    assert_eq!((status.code, status.reason), (422, Reason::Invalid), "{query}");
    let list = match problems {
        [only] => (*only).to_owned(),
        several => format!("[{}]", several.join(", ")),
    };
    assert_eq!(status.message, format!("ListOptions.meta.k8s.io \"\" is invalid: {list}"), "{query}");
    let causes: Vec<_> = status.causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
    assert_eq!(causes, problems, "{query}");
}

#[test]
fn get_has_only_a_version() {
    let options = of("/api/v1/nodes/a", "resourceVersion=5&limit=x&resourceVersionMatch=foo&watch=1&pretty=1").unwrap();
    let expected = Options { resource_version: "5".into(), pretty: Some(true), ..Options::default() };
    assert_eq!(options, expected);
}

#[test]
fn watch_path_is_a_watch_of_the_object_it_names() {
    let options = of("/api/v1/watch/nodes", "limit=5").unwrap();
    assert!(options.watch && options.fields.is_empty());
    let options = of("/api/v1/watch/nodes/a", "").unwrap();
    assert_eq!(options.fields, FieldSelector::parse("metadata.name=a").unwrap());
    let options = of("/api/v1/watch/nodes/a", "fieldSelector=metadata.name%3Da").unwrap();
    assert_eq!(options.fields, FieldSelector::parse("metadata.name=a").unwrap());
    let refused = of("/api/v1/watch/nodes/a", "fieldSelector=metadata.name%3Db").unwrap_err();
    assert_eq!(refused, Status::bad_request("fieldSelector metadata.name doesn't match requested name"));
    assert_eq!(
        of("/api/v1/nodes", "fieldSelector=metadata.name%3Db").unwrap().fields.required("metadata.name"),
        Some("b")
    );
}

#[test]
fn included_part_of_table_rows_is_parsed_only_for_tables() {
    let table = |query: &str| parse(query).table_objects();
    assert_eq!(table(""), Ok(IncludeObject::Metadata));
    assert_eq!(table("includeObject=Metadata"), Ok(IncludeObject::Metadata));
    assert_eq!(table("includeObject=Object"), Ok(IncludeObject::Object));
    assert_eq!(table("includeObject=None"), Ok(IncludeObject::None));
    let message = "Unable to convert to Table as requested: includeObject: Invalid value: \"foo\": must be 'Metadata', \
                   'Object', 'None', or empty";
    assert_eq!(table("includeObject=foo"), Err(Status::bad_request(message)));
}

proptest! {
    #![proptest_config(informer_hub_testing::properties(256))]

    #[test]
    fn random_queries_are_parsed_or_refused_without_panic(
        pairs in prop::collection::vec(
            (
                "watch|limit|continue|resourceVersion|resourceVersionMatch|labelSelector|fieldSelector|sendInitialEvents|x",
                prop_oneof!["0|1|true|false|Exact|NotOlderThan|-9|99999999999999999999", r"\PC{0,6}", "[a-c=!,%();&+]{0,8}"],
            ),
            0..6,
        ),
    ) {
        let query: Vec<_> = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
        if let Err(status) = Options::parse(&query.join("&")) {
            prop_assert!(matches!(status.code, 400 | 422), "{}", status);
        }
    }
}
