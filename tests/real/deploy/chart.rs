//! The chart: what helm says of it, what its values become, and which values it refuses.

use std::collections::BTreeMap;
use std::time::Duration;

use informer_hub_config::ClusterAccess;
use serde_json::Value;

use super::{Mounted, NAMESPACE, helm, objects, of_kind, one, overlay, template, template_of, text, values_files};

#[test]
fn helm_finds_nothing_to_say_about_the_chart() {
    for file in values_files() {
        let mut arguments = vec!["lint", "--strict", "informer-hub"];
        arguments.extend(file.iter().flat_map(|file| ["--values", file.as_str()]));
        let output = helm(&arguments);
        assert!(output.status.success(), "{file:?}: {}{}", text(&output.stdout), text(&output.stderr));
    }
}

#[test]
fn the_hub_reads_what_the_chart_writes() {
    for file in values_files() {
        let objects = template_of(file.as_deref());
        let config = Mounted::of(&objects).config().unwrap_or_else(|errors| panic!("{file:?}: {errors}"));
        let set = one(&objects, "StatefulSet");
        let pod = &set["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        assert_eq!(
            Some(u64::from(config.hub.listen.port())),
            container["ports"][0]["containerPort"].as_u64(),
            "{file:?}"
        );
        assert!(!config.hub.listen.ip().is_loopback(), "{file:?}: the kubelet does not reach it");
        assert!(config.hub.state_dir.is_some_and(|dir| dir.ends_with("lib/state")), "{file:?}");
        let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap();
        assert!(Duration::from_secs(grace) > config.hub.shutdown_deadline, "{file:?}: killed before its deadline");
        let is_inside = config.clusters.iter().any(|cluster| matches!(cluster.access, ClusterAccess::InCluster));
        assert_eq!(pod["automountServiceAccountToken"], is_inside, "{file:?}");
        let limit = config.hub.memory_limit.expect("it has a limit");
        let allowed = container["resources"]["limits"]["memory"].as_str().unwrap();
        assert!(limit * 10 <= bytes(allowed) * 9, "{file:?}: {limit} of {allowed}");
    }
}

/// The blocks of a document in a language.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let parts = text.split("```").skip(1).step_by(2);
    parts.filter_map(|part| part.strip_prefix(language)?.strip_prefix('\n')).map(str::to_owned).collect()
}

#[test]
fn values_in_the_documents_are_good_ones() {
    let readme = blocks(include_str!("../../../deploy/helm/informer-hub/README.md"), "yaml");
    let application = blocks(include_str!("../../../docs/install.md"), "yaml");
    let application = application.iter().find(|it| it.contains("kind: Application")).expect("it shows one for Argo CD");
    let application: Value = serde_saphyr::from_str(application).unwrap();
    let source = &application["spec"]["source"];
    assert!(super::path(source["path"].as_str().unwrap()).join("Chart.yaml").exists());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("values.yaml");
    for values in readme.iter().cloned().chain([source["helm"]["valuesObject"].to_string()]) {
        std::fs::write(&file, &values).unwrap();
        let rendered = template("hub", NAMESPACE, &["--values", file.to_str().unwrap()]);
        let rendered = objects(&rendered.unwrap_or_else(|error| panic!("{values}: {error}")));
        Mounted::of(&rendered).config().unwrap_or_else(|errors| panic!("{values}: {errors}"));
    }
    assert_eq!(readme.len(), 1, "one example");
    assert!(source["helm"]["valuesObject"]["auth"]["existingSecret"].is_string(), "random tokens never settle there");
}

fn bytes(quantity: &str) -> u64 {
    let (number, unit) = quantity.split_at(quantity.len() - 2);
    number.parse::<u64>().unwrap() << if unit == "Gi" { 30 } else { 20 }
}

#[test]
fn overlays_have_a_configuration_that_the_hub_reads() {
    for name in super::OVERLAYS {
        let objects = overlay(name);
        let config = Mounted::of(&objects).config().unwrap_or_else(|errors| panic!("{name}: {errors}"));
        let pod = &one(&objects, "StatefulSet")["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        assert_eq!(Some(u64::from(config.hub.listen.port())), container["ports"][0]["containerPort"].as_u64());
        let limit = config.hub.memory_limit.expect("it has a limit");
        assert!(limit * 10 <= bytes(container["resources"]["limits"]["memory"].as_str().unwrap()) * 9, "{name}");
        assert!(pod["terminationGracePeriodSeconds"].as_u64() > Some(config.hub.shutdown_deadline.as_secs()));
    }
}

/// What the same values give without the chart's help.
#[test]
fn values_arrive_as_they_were_written() {
    let objects = template_of(Some("informer-hub/ci/production-values.yaml"));
    let config = Mounted::of(&objects).config().unwrap();
    let names: Vec<_> = config.clusters.iter().map(|cluster| cluster.name.as_str()).collect();
    assert_eq!(names, ["platform", "prod-eu", "prod-us"]);
    assert_eq!(config.hub.shutdown_deadline, Duration::from_secs(40));
    let map = of_kind(&objects, "ConfigMap").into_iter().find_map(|map| map["data"]["hub.toml"].as_str()).unwrap();
    let toml: toml_edit::DocumentMut = map.parse().unwrap();
    let sink = &toml["sinks"]["audit"];
    assert_eq!(sink["batch"]["max_events"].as_integer(), Some(500), "not 500.0");
    let filter = "object.status.phase == 'Failed' &&\nobject.metadata.namespace != \"kube-system\"\n";
    assert_eq!(sink["filter"].as_str(), Some(filter));
}

#[test]
fn bad_values_are_refused_in_words_that_help() {
    let cases: &[(&[&str], &str)] = &[
        (&["replicas=2"], "additional properties 'replicas' not allowed"),
        (&["port=80"], "/port"),
        (&["image.digest=sha256:12"], "/image/digest"),
        (&["config.hub.listen=0.0.0.0:1"], "/config/hub"),
        (&["config.hub.auth.token.env=A"], "/config/hub"),
        (&["config.clusters.a.in_clustr=true"], "additional properties 'in_clustr' not allowed"),
        (&["config.resources.pods.resync=10x"], "/config/resources/pods/resync"),
        (&["config.resources.all-of-it.colour=red"], "/config/resources/all-of-it"),
        (&["config.sinks.a.type=carrier-pigeon"], "/config/sinks/a"),
        (&["persistence.accessModes={ReadWriteMany}"], "/persistence/accessModes"),
        (&["memoryLimit=lots"], "/memoryLimit"),
        (&["podDisruptionBudget.maxUnavailable=2"], "/podDisruptionBudget/maxUnavailable"),
        (&["resources.limits.memory=50Mi"], "give it 128Mi"),
        (&["resources.limits.memory=1000m"], "has a unit that the chart does not know"),
        (&["inCluster.enabled=false"], "there is no cluster to watch"),
        (&["config.clusters.in-cluster.in_cluster=true"], "inCluster is called so too"),
        (&["config.resources.widgets.resync=1m"], "write it with its group, as plural.group"),
        (&["configToml=x", "config.resources.pods.resync=1m"], "not from configToml and config.resources"),
        (
            &["existingConfig.secret=x", "existingConfig.configMap=y"],
            "existingConfig.configMap and existingConfig.secret",
        ),
        (&["auth.allowUnauthenticated=true", "auth.existingSecret=x"], "leave one of them out"),
    ];
    for (settings, words) in cases {
        let arguments: Vec<_> = settings.iter().flat_map(|setting| ["--set", setting]).collect();
        let said = template("hub", NAMESPACE, &arguments).expect_err(&format!("{settings:?} is accepted"));
        assert!(said.contains(words), "{settings:?}: not {words:?} but\n{said}");
    }
}

/// The pod's annotations with some settings.
fn annotations(settings: &[&str]) -> Value {
    let arguments: Vec<_> = settings.iter().flat_map(|setting| ["--set", setting]).collect();
    let objects = objects(&template("hub", NAMESPACE, &arguments).unwrap());
    one(&objects, "StatefulSet")["spec"]["template"]["metadata"]["annotations"].clone()
}

#[test]
fn only_what_is_read_at_the_start_alone_replaces_the_pod() {
    let before = annotations(&[]);
    for taken_up in [
        "config.resources.nodes.metadata_only=true",
        "config.hub.shutdown_deadline=9s",
        "config.hub.memory_limit=90MiB",
    ] {
        assert_eq!(annotations(&[taken_up]), before, "{taken_up}");
    }
    for at_the_start in ["config.hub.checkpoint=9s", "auth.metricsOpen=true", "tls.secretName=a"] {
        assert_ne!(annotations(&[at_the_start]), before, "{at_the_start}");
    }
}

#[test]
fn a_configuration_of_ones_own_is_not_touched() {
    let objects = objects(
        &template("hub", NAMESPACE, &["--set", "existingConfig.secret=mine,existingConfig.key=a.toml"]).unwrap(),
    );
    let pod = &one(&objects, "StatefulSet")["spec"]["template"]["spec"];
    assert!(of_kind(&objects, "ConfigMap").is_empty());
    let volume = pod["volumes"].as_array().unwrap().iter().find(|it| it["name"] == "config").unwrap();
    assert_eq!(volume["secret"]["secretName"], "mine");
    assert_eq!(pod["containers"][0]["args"][1], "--config=/etc/informer-hub/config/a.toml");
    let variables = pod["containers"][0]["env"].as_array().unwrap();
    let variables: BTreeMap<_, _> = variables.iter().map(|it| (it["name"].as_str().unwrap(), &it["value"])).collect();
    assert_eq!(variables["INFORMER_HUB_HUB__LISTEN"], "0.0.0.0:7080");
    assert_eq!(variables["INFORMER_HUB_HUB__AUTH__TOKEN__FILE"], "/etc/informer-hub/auth/token");
}

#[test]
fn rules_and_dashboard_are_those_of_the_monitoring_folder() {
    let objects = template_of(Some("informer-hub/ci/everything-values.yaml"));
    let rules: Value =
        serde_saphyr::from_str(include_str!("../../../deploy/monitoring/informer-hub.rules.yaml")).unwrap();
    assert_eq!(one(&objects, "PrometheusRule")["spec"], rules);
    let map = of_kind(&objects, "ConfigMap").into_iter().find_map(|map| map["data"]["informer-hub.json"].as_str());
    assert_eq!(map.unwrap().trim(), include_str!("../../../deploy/monitoring/dashboard.json").trim());
}
