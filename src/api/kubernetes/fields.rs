//! Fields that a field selector may name, by resource.
//!
//! The table `FIELDS` has the same fields and default values as kube-apiserver. A selector compares the default value
//! if an object lacks the field.

use informer_hub_types::{ApiResource, FieldPath, is_built_in};

/// A field that objects can be selected by.
#[derive(Debug, PartialEq)]
pub(super) enum Field {
    /// `metadata.name`.
    Name,
    /// `metadata.namespace`.
    Namespace,
    /// `metadata.cluster`, the name of the object's cluster; only at URL roots of several clusters.
    Cluster,
    /// Paths in the object, and a default value. The field's value is the first value found at these paths, or else the
    /// default.
    Paths(Vec<FieldPath>, &'static str),
}

/// Group, resource, and its selectable fields, separated by spaces. A field is written as its path, `field`, or as
/// `field@path` with another path. `field@path|path` uses the first path that has a value, `field@` never has a value,
/// and `=default` sets the default.
const FIELDS: &[(&str, &str, &str)] = &[
    (
        "",
        "pods",
        "spec.nodeName spec.host@spec.nodeName spec.restartPolicy spec.schedulerName spec.serviceAccountName \
         spec.hostNetwork=false status.phase status.podIP status.podIPs@ status.nominatedNodeName",
    ),
    (
        "",
        "events",
        "involvedObject.kind involvedObject.namespace involvedObject.name involvedObject.uid \
         involvedObject.apiVersion involvedObject.resourceVersion involvedObject.fieldPath reason \
         reportingComponent source@source.component|reportingComponent type",
    ),
    (
        "events.k8s.io",
        "events",
        "regarding.kind regarding.namespace regarding.name regarding.uid regarding.apiVersion \
         regarding.resourceVersion regarding.fieldPath reason reportingController \
         source@deprecatedSource.component|reportingController type",
    ),
    ("", "nodes", "spec.unschedulable=false"),
    ("", "secrets", "type"),
    ("", "namespaces", "status.phase"),
    ("", "replicationcontrollers", "status.replicas=0"),
    ("", "services", "spec.clusterIP spec.type"),
    ("batch", "jobs", "status.successful@status.succeeded=0"),
    ("certificates.k8s.io", "certificatesigningrequests", "spec.signerName"),
    ("certificates.k8s.io", "clustertrustbundles", "spec.signerName"),
    ("certificates.k8s.io", "podcertificaterequests", "spec.signerName spec.podName spec.nodeName"),
    ("resource.k8s.io", "resourceslices", "spec.nodeName spec.driver spec.pool.name"),
];

/// Returns the field of a resource by its name; `None` if objects cannot be selected by it. `selectable` are the
/// `selectableFields` of a custom resource.
pub(super) fn field_of(resource: &ApiResource, field: &str, selectable: &[String], is_fleet: bool) -> Option<Field> {
    let gvr = &resource.gvr;
    let known = FIELDS.iter().find(|(group, plural, _)| gvr.group == *group && gvr.resource == *plural);
    // As in kube-apiserver, built-in cluster-scoped kinds that are not in the table accept a namespace too.
    let has_namespace = resource.namespaced || known.is_none() && is_built_in(&gvr.group, &gvr.resource);
    match field {
        "metadata.name" => return Some(Field::Name),
        "metadata.namespace" if has_namespace => return Some(Field::Namespace),
        "metadata.cluster" if is_fleet => return Some(Field::Cluster),
        _ => {}
    }
    if selectable.iter().any(|path| path.strip_prefix('.').unwrap_or(path) == field) {
        return paths(field).map(|paths| Field::Paths(paths, ""));
    }
    let (.., words) = known?;
    words.split_whitespace().find_map(|word| {
        let (word, default) = word.split_once('=').unwrap_or((word, ""));
        let (name, at) = word.split_once('@').unwrap_or((word, word));
        (name == field).then(|| paths(at).map(|paths| Field::Paths(paths, default)))?
    })
}

fn paths(words: &str) -> Option<Vec<FieldPath>> {
    words.split('|').filter(|path| !path.is_empty()).map(|path| path.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use informer_hub_types::Gvr;

    use super::*;

    fn resource(group: &str, plural: &str, namespaced: bool) -> ApiResource {
        ApiResource { gvr: Gvr::new(group, "v1", plural), kind: "Kind".into(), namespaced }
    }

    #[test]
    fn every_field_of_the_table_has_a_valid_path() {
        for (group, plural, words) in FIELDS {
            let resource = self::resource(group, plural, true);
            for word in words.split_whitespace() {
                let name = word.split(['=', '@']).next().unwrap();
                assert!(matches!(field_of(&resource, name, &[], false), Some(Field::Paths(..))), "{plural} {word}");
            }
        }
    }

    #[test]
    fn fields_depend_on_resource_root_and_definition() {
        let pods = resource("", "pods", true);
        assert_eq!(field_of(&pods, "metadata.name", &[], false), Some(Field::Name));
        assert_eq!(field_of(&pods, "metadata.cluster", &[], false), None);
        assert_eq!(field_of(&pods, "metadata.cluster", &[], true), Some(Field::Cluster));
        assert_eq!(field_of(&pods, "spec.replicas", &[], true), None);
        assert_eq!(field_of(&resource("apps", "pods", true), "spec.nodeName", &[], true), None);
        let widgets = resource("example.com", "widgets", true);
        let color = field_of(&widgets, "spec.color", &[".spec.color".to_owned()], false);
        assert_eq!(color, Some(Field::Paths(vec!["spec.color".parse().unwrap()], "")));
        let jobs = resource("batch", "jobs", true);
        let successful = field_of(&jobs, "status.successful", &[], false);
        assert_eq!(successful, Some(Field::Paths(vec!["status.succeeded".parse().unwrap()], "0")));
    }

    #[test]
    fn fields_are_those_of_kube_apiserver() {
        let (pods, events) = (resource("", "pods", true), resource("events.k8s.io", "events", true));
        let path = |text: &str| vec![text.parse().unwrap()];
        assert_eq!(field_of(&pods, "spec.host", &[], false), Some(Field::Paths(path("spec.nodeName"), "")));
        // Accepted, and empty in all pods.
        assert_eq!(field_of(&pods, "status.podIPs", &[], false), Some(Field::Paths(Vec::new(), "")));
        assert_eq!(field_of(&events, "regarding.kind", &[], false), Some(Field::Paths(path("regarding.kind"), "")));
        for core in ["involvedObject.kind", "reportingComponent"] {
            assert_eq!(field_of(&events, core, &[], false), None);
        }
    }

    #[test]
    fn only_some_cluster_scoped_kinds_are_selected_by_namespace() {
        let has_namespace = |resource| field_of(&resource, "metadata.namespace", &[], false) == Some(Field::Namespace);
        assert!(has_namespace(resource("", "pods", true)));
        assert!(has_namespace(resource("storage.k8s.io", "csinodes", false)));
        assert!(!has_namespace(resource("", "nodes", false)));
        assert!(!has_namespace(resource("example.com", "planets", false)));
    }
}
