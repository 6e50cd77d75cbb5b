//! Tests of paths: kube-apiserver's forms and refusals below each root.

use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;
use crate::Reason;

/// Parses a path below `/clusters/prod`.
fn below(path: &str) -> Result<Target, Status> {
    let parsed = parse_path(&format!("/clusters/prod{path}"))?;
    let (root, target) = parsed.expect("the path is below a root");
    assert_eq!(root, Root::Cluster(ClusterName::new("prod").unwrap()));
    Ok(target)
}

fn root(text: &str) -> Root {
    let parsed = parse_path(&format!("{text}/version")).unwrap_or_else(|status| panic!("{text}: {status}"));
    parsed.expect("the path is below a root").0
}

fn selector(text: &str) -> LabelSelector {
    text.parse().unwrap()
}

/// Returns a resource path as text, such as `apps/v1/deployments ns=a name=b sub=status watch`, without the parts that
/// the path lacks.
fn shown(path: &str) -> String {
    let Target::Resource(found) = below(path).unwrap_or_else(|status| panic!("{path}: {status}")) else {
        panic!("{path} is a document");
    };
    let mut text = format!("{}/{}/{}", found.group, found.version, found.resource);
    for (label, part) in [("ns", found.namespace), ("name", found.name), ("sub", found.subresource)] {
        text.extend(part.map(|part| format!(" {label}={part}")));
    }
    if found.is_watch { text + " watch" } else { text }
}

#[test]
fn paths_outside_the_roots_are_left_to_others() {
    for path in
        ["", "/", "/metrics", "/api/v1/pods", "/clustersx/a/api", "/uniques/*/api", "clusters/a/api", "/v1/query"]
    {
        assert_eq!(parse_path(path), Ok(None), "{path}");
    }
}

#[test]
fn slash_of_a_label_key_may_be_encoded_or_not() {
    for (path, text) in [
        ("example.com%2Ftier=prod", "example.com/tier=prod"),
        ("example.com/tier=prod", "example.com/tier=prod"),
        ("a.b/c=d,e.f/g%20in%20(h,i),!j", "a.b/c=d,e.f/g in (h,i),!j"),
        ("!a.b/c", "!a.b/c"),
    ] {
        assert_eq!(root(&format!("/clusters/{path}")), Root::Fleet(selector(text)), "{path}");
        assert_eq!(root(&format!("/unique/{path}")), Root::Unique(selector(text)), "{path}");
        let parsed = parse_path(&format!("/clusters/{path}/api/v1/namespaces/a/pods/b")).unwrap().unwrap();
        assert_eq!(parsed.0, Root::Fleet(selector(text)), "{path}");
    }
    // Without an operator of selectors, the first segment is a cluster name, so `x` is an unknown path.
    assert_eq!(parse_path("/clusters/prod/x/api/v1/pods").unwrap_err().code, 404);
    assert_eq!(root("/clusters/prod"), Root::Cluster(ClusterName::new("prod").unwrap()));
}

#[test]
fn root_is_one_cluster_all_clusters_or_a_selection() {
    let all = LabelSelector::everything;
    assert_eq!(root("/clusters/prod-eu.1_A"), Root::Cluster(ClusterName::new("prod-eu.1_A").unwrap()));
    assert_eq!(root("/clusters/tier"), Root::Cluster(ClusterName::new("tier").unwrap()));
    assert_eq!(root("/clusters/*"), Root::Fleet(all()));
    assert_eq!(root("/clusters/%2A"), Root::Fleet(all()));
    assert_eq!(root("/clusters/%2a"), Root::Fleet(all()));
    assert_eq!(root("/unique/*"), Root::Unique(all()));
    assert_eq!(root("/unique/tier"), Root::Unique(selector("tier")));
    assert_eq!(root("/unique/tier=prod"), Root::Unique(selector("tier=prod")));
    for (path, text) in [
        ("tier=prod", "tier=prod"),
        ("tier%3Dprod", "tier=prod"),
        ("tier=prod,region%20in%20(eu,us)", "tier=prod,region in (eu,us)"),
        ("!tier", "!tier"),
        ("tier,", "tier,"),
        ("example.com%2Ftier=prod", "example.com/tier=prod"),
        ("cores%3E4", "cores>4"),
        ("tier%20", "tier"),
    ] {
        match text.parse() {
            Ok(selector) => assert_eq!(root(&format!("/clusters/{path}")), Root::Fleet(selector), "{path}"),
            Err(_) => assert_eq!(parse_path(&format!("/clusters/{path}/api")).unwrap_err().code, 400, "{path}"),
        }
    }
}

#[test]
fn wrong_root_is_refused_with_the_problem_of_its_selector() {
    let status = |path: &str| parse_path(path).unwrap_err();
    for path in
        ["/clusters", "/clusters/", "/clusters//api", "/unique/", "/clusters/%20/api", "/clusters/a", "/clusters/*/"]
    {
        assert_eq!(status(path), Status::path_not_found(), "{path}");
    }
    for name in ["-a", ".a", &"a".repeat(64)] {
        assert_eq!(status(&format!("/clusters/{name}/api")), Status::cluster_not_found(name), "{name}");
    }
    let wrong = status("/clusters/tier=prod%20x/api");
    assert_eq!((wrong.code, wrong.reason), (400, Reason::BadRequest));
    assert_eq!(
        wrong.message,
        "unable to select clusters: \"tier=prod x\" is not a label selector: expected a comma or the end, found \"x\" \
         at position 11"
    );
    assert_eq!(status("/unique/-a/api").code, 400);
    assert_eq!(status("/clusters/%E9=a/api").message, "the path of the request is not UTF-8");
}

#[test]
fn documents_are_recognized_with_and_without_a_slash_at_the_end() {
    let resources = |group: &str, version: &str| Document::Resources { group: group.into(), version: version.into() };
    for (path, document) in [
        ("/version", Document::Version),
        ("/livez", Document::Health),
        ("/readyz", Document::Health),
        ("/healthz", Document::Health),
        ("/api", Document::CoreVersions),
        ("/apis", Document::Groups),
        ("/apis/apps", Document::Group("apps".into())),
        ("/api/v1", resources("", "v1")),
        ("/apis/apps/v1", resources("apps", "v1")),
        ("/openapi/v2", Document::OpenApiV2),
        ("/openapi/v3", Document::OpenApiV3("".into())),
        ("/openapi/v3/apis/apps/v1", Document::OpenApiV3("apis/apps/v1".into())),
    ] {
        assert_eq!(below(path), Ok(Target::Document(document.clone())), "{path}");
        assert_eq!(below(&format!("{path}/")), Ok(Target::Document(document)), "{path}/");
    }
}

#[test]
fn resources_are_recognized_in_all_their_forms() {
    for (path, parts) in [
        ("/api/v1/pods", "/v1/pods"),
        ("/api/v1/pods/", "/v1/pods"),
        ("/api/v1/nodes/a", "/v1/nodes name=a"),
        ("/api/v1/namespaces/x/pods", "/v1/pods ns=x"),
        ("/api/v1/namespaces/x/pods/a", "/v1/pods ns=x name=a"),
        ("/api/v1/namespaces/x/pods/a/log", "/v1/pods ns=x name=a sub=log"),
        ("/apis/apps/v1/deployments", "apps/v1/deployments"),
        ("/apis/apps/v1/namespaces/x/deployments/a/status", "apps/v1/deployments ns=x name=a sub=status"),
        ("/api/v1/nodes/a%3Ab%20c", "/v1/nodes name=a:b c"),
        ("/api/v1/watch/pods", "/v1/pods watch"),
        ("/api/v1/watch/namespaces/x/pods/a", "/v1/pods ns=x name=a watch"),
        ("/apis/apps/v1/watch/deployments", "apps/v1/deployments watch"),
    ] {
        assert_eq!(shown(path), parts, "{path}");
    }
}

#[test]
fn namespaces_are_objects_and_have_subresources() {
    for (path, parts) in [
        ("/api/v1/namespaces", "/v1/namespaces"),
        ("/api/v1/namespaces/x", "/v1/namespaces name=x"),
        ("/api/v1/namespaces/x/status", "/v1/namespaces name=x sub=status"),
        ("/api/v1/namespaces/x/finalize", "/v1/namespaces name=x sub=finalize"),
        ("/api/v1/namespaces/x/statuses", "/v1/statuses ns=x"),
        ("/api/v1/watch/namespaces/x", "/v1/namespaces name=x watch"),
        ("/api/v1/namespaces/namespaces", "/v1/namespaces name=namespaces"),
        ("/api/v1/namespaces/namespaces/pods", "/v1/pods ns=namespaces"),
    ] {
        assert_eq!(shown(path), parts, "{path}");
    }
}

#[test]
fn unserved_paths_are_not_found() {
    for path in [
        "/api//pods",
        "/api/v1//pods",
        "//api",
        "/api/v1/pods//",
        "/api/v1/namespaces//pods",
        "/api/v1/pods/a/log/b",
        "/api/v1/namespaces/x/status/y",
        "/api/v1/watch",
        "/foo",
        "/livez/ping",
        "/version/x",
        "/openapi",
        "/openapi/v4",
        "/openapi/v3/../x",
        "/../api",
        "/api/..",
        "/api/../pods",
        "/apis/../v1/pods",
        "/api/v1/..",
        "/api/v1/pods%2Fa",
        "/api/v1/po%20ds",
        "/apis/a%00b/v1",
    ] {
        assert_eq!(below(path), Err(Status::path_not_found()), "{path}");
    }
}

#[test]
fn names_that_no_object_can_have_are_refused_as_by_kube_apiserver() {
    for (path, message) in [
        ("/api/v1/nodes/..", r#"Name parameter invalid: "..": may not be '..'"#),
        ("/api/v1/nodes/%2e", r#"Name parameter invalid: ".": may not be '.'"#),
        ("/api/v1/nodes/a%2Fb", r#"Name parameter invalid: "a/b": may not contain '/'"#),
        ("/api/v1/nodes/a%25b", r#"Name parameter invalid: "a%b": may not contain '%'"#),
        ("/api/v1/nodes/%25%2F", r#"Name parameter invalid: "%/": may not contain '/';may not contain '%'"#),
        ("/api/v1/namespaces/../pods", r#"Namespace parameter invalid: "..": may not be '..'"#),
        ("/api/v1/nodes/%zz", r#"invalid URL escape "%zz""#),
        ("/api/v1/nodes/%ff", "the path of the request is not UTF-8"),
    ] {
        let wrong = Status::bad_request(message);
        assert_eq!(below(path), Err(wrong), "{path}");
    }
}

#[test]
fn long_names_are_not_found_and_long_paths_are_refused() {
    let name = "x".repeat(253);
    assert_eq!(shown(&format!("/api/v1/namespaces/{name}/pods/{name}")), format!("/v1/pods ns={name} name={name}"));
    let long = "x".repeat(254);
    let not_found = |resource| Err(Status::object_not_found("", resource, &long));
    assert_eq!(below(&format!("/api/v1/namespaces/y/pods/{long}")), not_found("pods"));
    assert_eq!(below(&format!("/api/v1/namespaces/{long}/pods")), not_found("namespaces"));
    assert_eq!(below(&format!("/apis/{long}/v1")), Err(Status::path_not_found()));

    let unique = format!("{}:{name}", "c".repeat(63));
    assert!(parse_path(&format!("/unique/*/api/v1/nodes/{unique}")).is_ok());
    assert_eq!(parse_path(&format!("/unique/*/api/v1/nodes/x{unique}")).unwrap_err().code, 404);

    let status = below(&format!("/{}", "x".repeat(16 << 10))).unwrap_err();
    assert_eq!(status.code, 400);
    assert_eq!(status.message, "the path of the request has 16399 bytes: at most 16384 are allowed");
}

proptest! {
    #![proptest_config(informer_hub_testing::properties(512))]

    #[test]
    fn random_paths_are_parsed_or_refused_without_panic(
        root in "/clusters/|/unique/|/clusters|",
        parts in prop::collection::vec(
            prop_oneof![
                "api|apis|v1|watch|namespaces|pods|status|x|openapi|v3",
                r"\*|\.\.|\.||%|%2|%2F|%2e%2E|%ff|%00|a%zz",
                "[a-z=!,()%*]{0,6}",
                r"\PC{0,4}",
            ],
            0..9,
        ),
    ) {
        let path = format!("{root}{}", parts.join("/"));
        match parse_path(&path) {
            Ok(None) => prop_assert!(!path.starts_with("/clusters/") && !path.starts_with("/unique/")),
            Ok(Some((_, Target::Resource(found)))) => {
                for text in [Some(&found.resource), found.namespace.as_ref(), found.name.as_ref()].into_iter().flatten() {
                    prop_assert!(!text.is_empty() && !text.contains(['/', '%']) && *text != ".." && text.len() <= 317);
                }
            }
            Ok(Some((_, Target::Document(_)))) => {}
            Err(status) => prop_assert!(matches!(status.code, 400 | 404), "{}", status),
        }
    }

    #[test]
    fn encoded_names_are_found_as_they_are(name in r"[^/%]{1,60}") {
        prop_assume!(name != "." && name != "..");
        let mut encoded = String::new();
        for byte in name.bytes() {
            write!(encoded, "%{byte:02X}").unwrap();
        }
        let target = below(&format!("/api/v1/nodes/{encoded}"));
        let found = match target {
            Ok(Target::Resource(found)) => found.name,
            other => return Err(TestCaseError::fail(format!("{other:?}"))),
        };
        prop_assert_eq!(found.as_deref(), Some(name.as_str()));
    }
}
