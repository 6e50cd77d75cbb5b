//! Tests of the helm chart: lint, rendered configuration, refused values.

use std::collections::BTreeMap;
use std::time::Duration;

use informer_hub_config::ClusterAccess;
use serde_json::Value;

use super::{Mounted, NAMESPACE, helm, objects, of_kind, one, overlay, template, template_of, text, values_files};

#[test]
fn chart_passes_helm_lint() {
    for file in values_files() {
        let mut arguments = vec!["lint", "--strict", "informer-hub"];
        arguments.extend(file.iter().flat_map(|file| ["--values", file.as_str()]));
        let output = helm(&arguments);
        assert!(output.status.success(), "{file:?}: {}{}", text(&output.stdout), text(&output.stderr));
    }
}

#[test]
fn rendered_configuration_is_valid_for_the_hub() {
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
        assert!(!config.hub.listen.ip().is_loopback(), "{file:?}: the kubelet cannot reach a loopback address");
        let is_in_lib = config.hub.state_dir.is_some_and(|dir| dir.ends_with("lib/state"));
        assert_ne!(is_in_lib, config.fleet.is_some(), "{file:?}: the state of a fleet is in its log");
        let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap();
        assert!(Duration::from_secs(grace) > config.hub.shutdown_deadline, "{file:?}: killed before its deadline");
        let uses_account = config.clusters.iter().any(|cluster| matches!(cluster.access, ClusterAccess::InCluster));
        assert_eq!(pod["automountServiceAccountToken"], uses_account, "{file:?}");
        let limit = config.hub.memory_limit.expect("a memory limit is configured");
        let allowed = container["resources"]["limits"]["memory"].as_str().unwrap();
        assert!(limit * 10 <= bytes(allowed) * 9, "{file:?}: {limit} of {allowed}");
    }
}

/// Returns a document's blocks of one language.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let parts = text.split("```").skip(1).step_by(2);
    parts.filter_map(|part| part.strip_prefix(language)?.strip_prefix('\n')).map(str::to_owned).collect()
}

#[test]
fn documented_values_render_a_valid_configuration() {
    let readme = blocks(include_str!("../../../deploy/helm/informer-hub/README.md"), "yaml");
    let application = blocks(include_str!("../../../docs/install.md"), "yaml");
    let application = application
        .iter()
        .find(|it| it.contains("kind: Application"))
        .expect("docs/install.md has an Argo CD Application");
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
    assert!(
        source["helm"]["valuesObject"]["auth"]["existingSecret"].is_string(),
        "with Argo CD, random tokens would change at each sync"
    );
}

fn bytes(quantity: &str) -> u64 {
    let (number, unit) = quantity.split_at(quantity.len() - 2);
    number.parse::<u64>().unwrap() << if unit == "Gi" { 30 } else { 20 }
}

#[test]
fn overlay_configuration_is_valid_for_the_hub() {
    for name in super::OVERLAYS {
        let objects = overlay(name);
        let config = Mounted::of(&objects).config().unwrap_or_else(|errors| panic!("{name}: {errors}"));
        let pod = &one(&objects, "StatefulSet")["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        assert_eq!(Some(u64::from(config.hub.listen.port())), container["ports"][0]["containerPort"].as_u64());
        let limit = config.hub.memory_limit.expect("a memory limit is configured");
        assert!(limit * 10 <= bytes(container["resources"]["limits"]["memory"].as_str().unwrap()) * 9, "{name}");
        assert!(pod["terminationGracePeriodSeconds"].as_u64() > Some(config.hub.shutdown_deadline.as_secs()));
    }
}

/// Verifies that values reach the hub unchanged.
#[test]
fn values_reach_the_configuration_unchanged() {
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
fn invalid_values_are_refused_with_a_helpful_message() {
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
        (&["resources.limits.memory=50Mi"], "set at least 128Mi"),
        (&["resources.limits.memory=1000m"], "has an unknown unit"),
        (&["inCluster.enabled=false"], "there is no cluster to watch"),
        (&["config.clusters.in-cluster.in_cluster=true"], "has the same name as inCluster.name"),
        (&["config.resources.widgets.resync=1m"], "write it with its group, as plural.group"),
        (&["configToml=x", "config.resources.pods.resync=1m"], "not from configToml and config.resources"),
        (
            &["existingConfig.secret=x", "existingConfig.configMap=y"],
            "existingConfig.configMap and existingConfig.secret",
        ),
        (&["auth.allowUnauthenticated=true", "auth.existingSecret=x"], "remove one of them"),
        (&["ha.enabled=true", "ha.replicas=1"], "/ha/replicas"),
        (&["config.ha.lease.namespace=a"], "additional properties 'ha' not allowed"),
        (&["ha.enabled=true", "persistence.existingClaim=x"], "needs a volume for each pod"),
        (&["fleet.enabled=true"], "fleet.enabled needs config.fleet with nats, name and roles"),
        (&["config.fleet.name=a"], "config.fleet needs fleet.enabled"),
        (&["fleet.enabled=true", "config.fleet.name=a", "ha.enabled=true"], "ha.enabled has no effect in a fleet"),
        (&["fleet.agent=true"], "fleet.agent needs fleet.enabled and inCluster.enabled"),
        (&["fleet.enabled=true", "config.fleet.roles={cook}"], "/config/fleet/roles"),
    ];
    for (settings, words) in cases {
        let arguments: Vec<_> = settings.iter().flat_map(|setting| ["--set", setting]).collect();
        let message = template("hub", NAMESPACE, &arguments).expect_err(&format!("{settings:?} is accepted"));
        assert!(message.contains(words), "{settings:?}: not {words:?} but\n{message}");
    }
}

#[test]
fn replicas_share_a_lease_and_prefer_different_nodes() {
    let objects = template_of(Some("informer-hub/ci/ha-values.yaml"));
    let lease = Mounted::of(&objects).config().unwrap().ha.expect("the configuration has [ha]").lease;
    assert_eq!((&*lease.namespace, lease.cluster), (NAMESPACE, None));
    let role = of_kind(&objects, "Role").into_iter().find(|role| role["metadata"]["namespace"] == NAMESPACE).unwrap();
    let rules = role["rules"].as_array().unwrap();
    let named = rules.iter().find(|rule| !rule["resourceNames"].is_null()).unwrap();
    assert_eq!((&named["resourceNames"][0], rules.len()), (&Value::from(lease.name), 2), "{role:#}");
    let set = &one(&objects, "StatefulSet")["spec"];
    assert_eq!((&set["replicas"], &set["volumeClaimTemplates"][0]["metadata"]["name"]), (&2.into(), &"state".into()));
    let affinity = &set["template"]["spec"]["affinity"]["podAntiAffinity"];
    let term = &affinity["preferredDuringSchedulingIgnoredDuringExecution"][0]["podAffinityTerm"];
    assert_eq!(term["labelSelector"]["matchLabels"], set["selector"]["matchLabels"], "{affinity:#}");
    let budget = &one(&objects, "PodDisruptionBudget")["spec"];
    assert_eq!((&budget["maxUnavailable"], &budget["selector"]), (&1.into(), &set["selector"]));
    assert!(template_of(None).iter().all(|object| object["kind"] != "PodDisruptionBudget"));
    assert_eq!(one(&template_of(None), "StatefulSet")["spec"]["replicas"], 1);
}

#[test]
fn processes_of_a_fleet_have_no_disk() {
    for (file, replicas, first) in
        [("informer-hub/ci/collectors-values.yaml", 3, "run"), ("informer-hub/ci/agent-values.yaml", 1, "agent")]
    {
        let objects = template_of(Some(file));
        let set = &one(&objects, "StatefulSet")["spec"];
        let pod = &set["template"]["spec"];
        assert_eq!((&set["replicas"], &set["volumeClaimTemplates"]), (&replicas.into(), &Value::Null), "{file}");
        let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
        let volumes = pod["volumes"].as_array().unwrap();
        assert!(mounts.iter().chain(volumes).all(|it| it["name"] != "state"), "{file}");
        assert_eq!(pod["containers"][0]["args"][0], first, "{file}");
        let budgets = of_kind(&objects, "PodDisruptionBudget").len();
        assert_eq!((budgets, pod["affinity"].is_null()), ((replicas > 1).into(), replicas == 1), "{file}");
    }
    let objects = template_of(Some("informer-hub/ci/agent-values.yaml"));
    let arguments = &one(&objects, "StatefulSet")["spec"]["template"]["spec"]["containers"][0]["args"];
    assert_eq!(arguments[3], "--cluster=edge-1", "{arguments}");
    let config = Mounted::of(&objects).config().unwrap();
    assert!(config.into_agent(None, Some(&"edge-1".parse().unwrap())).is_ok());
    assert!(!of_kind(&objects, "ClusterRole").is_empty(), "the agent reads its cluster");
    let replaced = |value: &str| {
        let set = format!("config.fleet.window.age={value}");
        let arguments = ["--values", "informer-hub/ci/agent-values.yaml", "--set", &set];
        let objects = super::objects(&template("hub", NAMESPACE, &arguments).unwrap());
        one(&objects, "StatefulSet")["spec"]["template"]["metadata"]["annotations"].clone()
    };
    assert_ne!(replaced("2h"), replaced("3h"), "[fleet] is read at startup");
}

/// Returns the pod's annotations with some settings.
fn annotations(settings: &[&str]) -> Value {
    let arguments: Vec<_> = settings.iter().flat_map(|setting| ["--set", setting]).collect();
    let objects = objects(&template("hub", NAMESPACE, &arguments).unwrap());
    one(&objects, "StatefulSet")["spec"]["template"]["metadata"]["annotations"].clone()
}

#[test]
fn pod_is_replaced_only_for_keys_read_at_startup() {
    let before = annotations(&[]);
    for applied_at_runtime in [
        "config.resources.nodes.metadata_only=true",
        "config.hub.shutdown_deadline=9s",
        "config.hub.memory_limit=90MiB",
    ] {
        assert_eq!(annotations(&[applied_at_runtime]), before, "{applied_at_runtime}");
    }
    for read_at_startup in ["config.hub.checkpoint=9s", "auth.metricsOpen=true", "tls.secretName=a", "ha.enabled=true"]
    {
        assert_ne!(annotations(&[read_at_startup]), before, "{read_at_startup}");
    }
}

#[test]
fn existing_configuration_is_mounted_unchanged() {
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
fn rendered_rules_and_dashboard_match_deploy_monitoring() {
    let objects = template_of(Some("informer-hub/ci/everything-values.yaml"));
    let rules: Value =
        serde_saphyr::from_str(include_str!("../../../deploy/monitoring/informer-hub.rules.yaml")).unwrap();
    assert_eq!(one(&objects, "PrometheusRule")["spec"], rules);
    let map = of_kind(&objects, "ConfigMap").into_iter().find_map(|map| map["data"]["informer-hub.json"].as_str());
    assert_eq!(map.unwrap().trim(), include_str!("../../../deploy/monitoring/dashboard.json").trim());
}
