//! Tests of discovery documents. The expected texts are those of a kube-apiserver with the same resources.

use informer_hub_types::Gvr;
use serde_json::{Value, json};

use super::*;

fn served(group: &str, version: &str, plural: &str, kind: &str, namespaced: bool) -> Served {
    let gvr = Gvr::new(group, version, plural);
    Served::of(&ApiResource { gvr, kind: kind.into(), namespaced })
}

fn some() -> Vec<Served> {
    vec![
        served("example.com", "v1alpha1", "widgets", "Widget", true),
        served("example.com", "v1", "widgets", "Widget", true),
        served("", "v1", "pods", "Pod", true),
        served("batch", "v1", "jobs", "Job", true),
        served("batch", "v1", "cronjobs", "CronJob", true),
        served("", "v1", "nodes", "Node", false),
        served("another.com", "v1", "gadgets", "Gadget", false),
        served("apps", "v1", "deployments", "Deployment", true),
    ]
}

fn text(document: &Document, form: Form) -> String {
    String::from_utf8(discovery_document(document, form, &some()).expect("the document is served")).unwrap()
}

fn parsed(document: &Document, form: Form) -> Value {
    serde_json::from_str(&text(document, form)).unwrap()
}

fn resources(group: &str, version: &str) -> Document {
    Document::Resources { group: group.into(), version: version.into() }
}

#[test]
fn core_versions_are_those_of_kube_apiserver() {
    let expected = r#"{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[]}"#;
    assert_eq!(text(&Document::CoreVersions, Form::Object), expected);
}

#[test]
fn group_names_its_versions_the_preferred_first() {
    let version = |version: &str| format!(r#"{{"groupVersion":"example.com/{version}","version":"{version}"}}"#);
    let (v1, v1alpha1) = (version("v1"), version("v1alpha1"));
    let expected = format!(
        r#"{{"kind":"APIGroup","apiVersion":"v1","name":"example.com","versions":[{v1},{v1alpha1}],"preferredVersion":{v1}}}"#
    );
    assert_eq!(text(&Document::Group("example.com".into()), Form::Object), expected);
}

#[test]
fn group_list_has_built_in_groups_first_and_not_the_core_group() {
    let list = parsed(&Document::Groups, Form::Object);
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("APIGroupList"), &json!("v1")));
    let names: Vec<_> =
        list["groups"].as_array().unwrap().iter().map(|group| group["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["apps", "batch", "another.com", "example.com"]);
    let batch = json!({"groupVersion": "batch/v1", "version": "v1"});
    assert_eq!(list["groups"][1], json!({"name": "batch", "versions": [batch], "preferredVersion": batch}));
}

#[test]
fn resource_list_is_that_of_kube_apiserver_with_the_verbs_of_a_reader() {
    let expected = r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"batch/v1","resources":[{"name":"cronjobs","singularName":"cronjob","namespaced":true,"kind":"CronJob","verbs":["get","list","watch"],"shortNames":["cj"],"categories":["all"]},{"name":"jobs","singularName":"job","namespaced":true,"kind":"Job","verbs":["get","list","watch"],"categories":["all"]}]}"#;
    assert_eq!(text(&resources("batch", "v1"), Form::Object), expected);
    let core = r#"{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"nodes","singularName":"node","namespaced":false,"kind":"Node","verbs":["get","list","watch"],"shortNames":["no"]},{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["get","list","watch"],"shortNames":["po"],"categories":["all"]}]}"#;
    assert_eq!(text(&resources("", "v1"), Form::Object), core);
    assert_eq!(text(&resources("", "v1"), Form::AggregatedDiscovery), core);
}

#[test]
fn aggregated_core_group_has_no_name() {
    let expected = r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[{"metadata":{},"versions":[{"version":"v1","resources":[{"resource":"nodes","responseKind":{"group":"","version":"","kind":"Node"},"scope":"Cluster","singularResource":"node","verbs":["get","list","watch"],"shortNames":["no"]},{"resource":"pods","responseKind":{"group":"","version":"","kind":"Pod"},"scope":"Namespaced","singularResource":"pod","verbs":["get","list","watch"],"shortNames":["po"],"categories":["all"]}],"freshness":"Current"}]}]}"#;
    assert_eq!(text(&Document::CoreVersions, Form::AggregatedDiscovery), expected);
}

#[test]
fn aggregated_groups_have_all_versions_and_full_kinds_of_custom_resources() {
    let list = parsed(&Document::Groups, Form::AggregatedDiscovery);
    let items = list["items"].as_array().unwrap();
    let names: Vec<_> = items.iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["apps", "batch", "another.com", "example.com"]);
    let widgets = items[3]["versions"].as_array().unwrap();
    let versions: Vec<_> = widgets.iter().map(|version| version["version"].as_str().unwrap()).collect();
    assert_eq!(versions, ["v1", "v1alpha1"]);
    let kind = json!({"group": "example.com", "version": "v1alpha1", "kind": "Widget"});
    assert_eq!(widgets[1]["resources"][0]["responseKind"], kind);
    assert!(widgets.iter().all(|version| version["freshness"] == "Current"));
}

#[test]
fn groups_and_versions_that_are_not_served_have_no_document() {
    let document = |document: &Document| discovery_document(document, Form::Object, &some());
    for missing in [
        Document::Group("foo".into()),
        Document::Group("".into()),
        resources("apps", "v2"),
        resources("foo", "v1"),
        Document::Version,
        Document::Health,
        Document::OpenApiV2,
        Document::OpenApiV3("".into()),
    ] {
        assert_eq!(document(&missing), None, "{missing:?}");
    }
}

#[test]
fn roots_are_served_even_if_nothing_is_cached() {
    let empty =
        |document: &Document, form| String::from_utf8(discovery_document(document, form, &[]).unwrap()).unwrap();
    assert!(empty(&Document::CoreVersions, Form::Object).contains(r#""versions":[]"#));
    assert!(empty(&Document::Groups, Form::Object).contains(r#""groups":[]"#));
    for root in [Document::CoreVersions, Document::Groups] {
        assert!(empty(&root, Form::AggregatedDiscovery).contains(r#""items":[]"#));
    }
}

#[test]
fn resource_that_is_given_twice_is_listed_once() {
    let twice = [served("", "v1", "pods", "Pod", true), served("", "v1", "pods", "Pod", true)];
    let list = discovery_document(&resources("", "v1"), Form::Object, &twice).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&list).unwrap()["resources"].as_array().unwrap().len(), 1);
}

#[test]
fn built_in_resources_have_the_names_and_categories_of_kubernetes() {
    for (group, plural, kind, singular, short_names, categories) in [
        ("", "pods", "Pod", "pod", "po", "all"),
        ("", "endpoints", "Endpoints", "endpoints", "ep", ""),
        ("", "services", "Service", "service", "svc", "all"),
        ("", "secrets", "Secret", "secret", "", ""),
        ("apps", "controllerrevisions", "ControllerRevision", "controllerrevision", "", ""),
        ("autoscaling", "horizontalpodautoscalers", "HorizontalPodAutoscaler", "horizontalpodautoscaler", "hpa", "all"),
        ("networking.k8s.io", "ingresses", "Ingress", "ingress", "ing", ""),
        (
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            "CustomResourceDefinition",
            "customresourcedefinition",
            "crd,crds",
            "api-extensions",
        ),
        (
            "admissionregistration.k8s.io",
            "mutatingadmissionpolicies",
            "MutatingAdmissionPolicy",
            "mutatingadmissionpolicy",
            "",
            "api-extensions",
        ),
        ("example.com", "pods", "Pod", "pod", "", ""),
        ("example.com", "widgets", "MyWidget", "mywidget", "", ""),
    ] {
        let found = served(group, "v1", plural, kind, true);
        assert_eq!(found.singular, singular);
        assert_eq!(found.short_names.join(","), short_names, "{plural}");
        assert_eq!(found.categories.join(","), categories, "{plural}");
    }
}

#[test]
fn version_document_has_the_members_of_kube_apiserver() {
    let version = ServedVersion { git_version: "v1.36.3".into(), major: "1".into(), minor: "36".into() };
    let expected = r#"{"major":"1","minor":"36","gitVersion":"v1.36.3","gitCommit":"","gitTreeState":"","buildDate":"","goVersion":"","compiler":"","platform":""}"#;
    assert_eq!(String::from_utf8(version_document(&version)).unwrap(), expected);
}
