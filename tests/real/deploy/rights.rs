//! Tests that chart and overlays grant the rights that `informer-hub rbac` prints.

use std::collections::BTreeSet;
use std::fmt::Write;

use informer_hub_config::ClusterAccess;
use serde_json::Value;

use super::{Mounted, NAMESPACE, OVERLAYS, list, objects, overlay, path, rights, template, template_of, values_files};

/// Returns the roles that the hub needs in the clusters that it reaches by its service account.
fn needed(mounted: &Mounted) -> Vec<Value> {
    let config = mounted.config().unwrap_or_else(|errors| panic!("{errors}"));
    let inside = config.clusters.iter().filter(|cluster| matches!(cluster.access, ClusterAccess::InCluster));
    inside.flat_map(|cluster| mounted.rbac(cluster.name.as_str())).collect()
}

#[test]
fn chart_grants_the_rights_that_the_command_prints() {
    for file in values_files() {
        let objects = template_of(file.as_deref());
        let mut given = rights(&objects);
        // Granted by `rbac.extraRules` of a values file, not needed by the configuration.
        given.retain(|[_, group, ..]| group != "example.com");
        assert_eq!(given, rights(&needed(&Mounted::of(&objects))), "{file:?}");
    }
}

#[test]
fn overlays_grant_the_rights_that_the_command_prints() {
    for name in OVERLAYS {
        let objects = overlay(name);
        let given = rights(&objects);
        assert!(!given.is_empty());
        assert_eq!(given, rights(&needed(&Mounted::of(&objects))), "{name}");
    }
}

#[test]
fn chart_and_command_resolve_the_same_resource_names() {
    let file = std::fs::read_to_string(path("deploy/helm/informer-hub/files/resources.yaml")).unwrap();
    let known: Value = serde_saphyr::from_str(&file).unwrap();
    let mut names = Vec::new();
    for group in list(&known["resources"]) {
        for (plural, others) in group["names"].as_object().unwrap() {
            let others = list(others).into_iter().map(|it| it.as_str().unwrap().to_owned());
            let full = format!("{plural}.v1.{}", group["group"].as_str().unwrap());
            let full = full.trim_end_matches('.').to_owned();
            names.push([plural.clone(), full].into_iter().chain(others).collect::<Vec<_>>());
        }
    }
    assert!(names.len() > 50, "{}", names.len());
    let folder = tempfile::tempdir().unwrap();
    for turn in 0.. {
        // One name per resource in each turn. A name that two groups share means one of them.
        let turn: BTreeSet<_> = names.iter().filter_map(|names| names.get(turn)).collect();
        if turn.is_empty() {
            break;
        }
        let mut values = "config:\n  resources:\n".to_owned();
        for (number, name) in turn.iter().enumerate() {
            let places = if number % 2 == 0 { "" } else { ", namespaces: [shop]" };
            writeln!(values, "    entry-{number}: {{resource: {name:?}{places}}}").unwrap();
        }
        let file = folder.path().join("values.yaml");
        std::fs::write(&file, values).unwrap();
        let objects = objects(&template("hub", NAMESPACE, &["--values", file.to_str().unwrap()]).unwrap());
        let given = rights(&objects);
        assert_eq!(given.len(), turn.len() * 2, "{turn:?}");
        assert_eq!(given, rights(&needed(&Mounted::of(&objects))), "{turn:?}");
    }
}
