//! Fields that a field selector may name, by resource.
//!
//! The tables are those of kube-apiserver: each kind has a few fields, with the value of objects that lack them.

use informer_hub_types::{FieldPath, Gvr};

/// A field that objects can be selected by.
#[derive(Debug, PartialEq)]
pub(super) enum Field {
    /// `metadata.name`.
    Name,
    /// `metadata.namespace`.
    Namespace,
    /// `metadata.cluster`, at roots of several clusters.
    Cluster,
    /// Paths in the object, of which the first with a value counts, and the value of objects without any.
    Paths(Vec<FieldPath>, &'static str),
}

/// Group, resource, and fields: `field`, `field=default`, `field@path`, `field@path|path`.
const FIELDS: &[(&str, &str, &str)] = &[
    (
        "",
        "pods",
        "spec.nodeName spec.restartPolicy spec.schedulerName spec.serviceAccountName spec.hostNetwork=false \
         status.phase status.podIP status.podIPs@status.podIPs[*].ip status.nominatedNodeName",
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
        "involvedObject.kind@regarding.kind involvedObject.namespace@regarding.namespace \
         involvedObject.name@regarding.name involvedObject.uid@regarding.uid \
         involvedObject.apiVersion@regarding.apiVersion \
         involvedObject.resourceVersion@regarding.resourceVersion \
         involvedObject.fieldPath@regarding.fieldPath regarding.kind regarding.namespace regarding.name \
         regarding.uid regarding.apiVersion regarding.resourceVersion regarding.fieldPath reason \
         reportingComponent@reportingController reportingController \
         source@deprecatedSource.component|reportingController type",
    ),
    ("", "nodes", "spec.unschedulable=false"),
    ("", "secrets", "type"),
    ("", "namespaces", "status.phase"),
    ("", "replicationcontrollers", "status.replicas=0"),
    ("", "services", "spec.clusterIP spec.type"),
    ("apps", "replicasets", "status.replicas=0"),
    ("batch", "jobs", "status.successful@status.succeeded=0"),
    ("certificates.k8s.io", "certificatesigningrequests", "spec.signerName"),
    ("certificates.k8s.io", "clustertrustbundles", "spec.signerName"),
    ("resource.k8s.io", "resourceslices", "spec.nodeName spec.driver"),
];

/// Returns a field of a resource. `selectable` are the `selectableFields` of a custom resource.
pub(super) fn field_of(gvr: &Gvr, field: &str, selectable: &[String], is_fleet: bool) -> Option<Field> {
    match field {
        "metadata.name" => return Some(Field::Name),
        "metadata.namespace" => return Some(Field::Namespace),
        "metadata.cluster" if is_fleet => return Some(Field::Cluster),
        _ => {}
    }
    if selectable.iter().any(|path| path.strip_prefix('.').unwrap_or(path) == field) {
        return paths(field).map(|paths| Field::Paths(paths, ""));
    }
    let (.., words) = FIELDS.iter().find(|(group, resource, _)| gvr.group == *group && gvr.resource == *resource)?;
    words.split_whitespace().find_map(|word| {
        let (word, default) = word.split_once('=').unwrap_or((word, ""));
        let (name, at) = word.split_once('@').unwrap_or((word, word));
        (name == field).then(|| paths(at).map(|paths| Field::Paths(paths, default)))?
    })
}

fn paths(words: &str) -> Option<Vec<FieldPath>> {
    words.split('|').map(|path| path.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_the_table_has_a_valid_path() {
        for (group, resource, words) in FIELDS {
            let gvr = Gvr::new(group, "v1", resource);
            for word in words.split_whitespace() {
                let name = word.split(['=', '@']).next().unwrap();
                assert!(matches!(field_of(&gvr, name, &[], false), Some(Field::Paths(..))), "{resource} {word}");
            }
        }
    }

    #[test]
    fn fields_depend_on_resource_root_and_definition() {
        let pods = Gvr::new("", "v1", "pods");
        assert_eq!(field_of(&pods, "metadata.name", &[], false), Some(Field::Name));
        assert_eq!(field_of(&pods, "metadata.cluster", &[], false), None);
        assert_eq!(field_of(&pods, "metadata.cluster", &[], true), Some(Field::Cluster));
        assert_eq!(field_of(&pods, "spec.replicas", &[], true), None);
        assert_eq!(field_of(&Gvr::new("apps", "v1", "pods"), "spec.nodeName", &[], true), None);
        let widgets = Gvr::new("example.com", "v1", "widgets");
        let color = field_of(&widgets, "spec.color", &[".spec.color".to_owned()], false);
        assert_eq!(color, Some(Field::Paths(vec!["spec.color".parse().unwrap()], "")));
        let jobs = Gvr::new("batch", "v1", "jobs");
        let successful = field_of(&jobs, "status.successful", &[], false);
        assert_eq!(successful, Some(Field::Paths(vec!["status.succeeded".parse().unwrap()], "0")));
    }
}
