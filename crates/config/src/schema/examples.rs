//! Examples of keys whose default is not a useful example, for editors and the reference.

use serde_json::{Value, json};

/// Keys with their examples in JSON. `*` stands for a user-defined name. If a type follows it, as in `sinks.*.nats.url`,
/// only that type gets the example.
pub(super) const EXAMPLES: &[(&str, &str)] = &[
    ("cluster_sources.*.ca_file", r#""prod-us-ca.pem""#),
    ("cluster_sources.*.context", r#""management""#),
    ("cluster_sources.*.in_cluster", "true"),
    ("cluster_sources.*.kubeconfig", r#""~/.kube/config""#),
    ("cluster_sources.*.label_prefix", r#""argocd/""#),
    ("cluster_sources.*.label_selector", r#""env=prod""#),
    ("cluster_sources.*.labels", r#"{ "tier": "edge" }"#),
    ("cluster_sources.*.namespaces", r#"["argocd"]"#),
    ("cluster_sources.*.path", r#""/etc/informer-hub/clusters""#),
    ("cluster_sources.*.providers.*.api_version", r#""client.authentication.k8s.io/v1beta1""#),
    ("cluster_sources.*.providers.*.args", r#"["get-token"]"#),
    ("cluster_sources.*.providers.*.command", r#""cloud-credentials""#),
    ("cluster_sources.*.providers.*.env", r#"{ "REGION": "eu" }"#),
    ("cluster_sources.*.server", r#""https://management.example.com:6443""#),
    ("cluster_sources.*.take_properties", r#"["region"]"#),
    ("cluster_sources.*.token", r#"{ "file": "prod-us-token" }"#),
    ("clusters.*.agent", "true"),
    ("clusters.*.ca_file", r#""prod-us-ca.pem""#),
    ("clusters.*.context", r#""prod-eu""#),
    ("clusters.*.in_cluster", "true"),
    ("clusters.*.kubeconfig", r#""~/.kube/config""#),
    ("clusters.*.labels", r#"{ "region": "eu", "tier": "prod" }"#),
    ("clusters.*.server", r#""https://us.k8s.example.com:6443""#),
    ("clusters.*.token", r#"{ "file": "prod-us-token" }"#),
    ("fleet.credentials", r#"{ "file": "hub.creds" }"#),
    ("fleet.name", r#""prod""#),
    ("fleet.nats", r#"["nats://nats-0:4222", "nats://nats-1:4222"]"#),
    ("fleet.prefer", r#"{ "region": "eu" }"#),
    ("fleet.roles", r#"["collect"]"#),
    ("fleet.shards.*.clusters", r#"["prod-*"]"#),
    ("fleet.shards.*.namespaces", r#"["shop"]"#),
    ("fleet.shards.*.resources", r#"["pods"]"#),
    ("fleet.zone", r#""eu-west""#),
    ("ha.identity", r#""hub-0""#),
    ("ha.lease.cluster", r#""prod-eu""#),
    ("ha.lease.namespace", r#""informer-hub""#),
    ("hub.allowed_hosts", r#"["hub.example.com", "*.monitoring.svc"]"#),
    ("hub.audit.path", r#""audit.log""#),
    ("hub.audit.rules", r#"[{ "level": "None", "readers": ["grafana"], "verbs": ["get", "list"] }]"#),
    ("hub.auth.read_token", r#"{ "file": "hub-read-token" }"#),
    ("hub.auth.token", r#"{ "env": "API_TOKEN" }"#),
    ("hub.authorization.kubernetes.mode", r#""subject-access-review""#),
    ("hub.authorization.token_review.audience", r#""informer-hub""#),
    ("hub.authorization.token_review.clusters", r#"["prod-eu"]"#),
    ("hub.memory_limit", r#""2GiB""#),
    ("hub.state_dir", r#""/var/lib/informer-hub""#),
    ("hub.tls.cert_file", r#""hub-cert.pem""#),
    ("hub.tls.client_ca_file", r#""operators-ca.pem""#),
    ("hub.tls.key_file", r#""hub-key.pem""#),
    ("oidc.audience", r#""informer-hub""#),
    ("oidc.ca_file", r#""login-ca.pem""#),
    ("oidc.groups_prefix", r#""oidc:""#),
    ("oidc.issuer", r#""https://login.example.com""#),
    ("oidc.username_claim", r#""email""#),
    ("oidc.username_prefix", r#""oidc:""#),
    (
        "readers.*.allow",
        r#"[{ "clusters": { "tier": "prod" }, "namespaces": ["shop", "team-*"], "resources": ["*"], "except": ["configmaps"] }]"#,
    ),
    ("readers.*.certificate.common_name", r#""jane""#),
    ("readers.*.certificate.organization", r#""sre""#),
    ("readers.*.limits.bytes_per_second", r#""10MiB""#),
    ("readers.*.limits.requests", "8"),
    ("readers.*.limits.scans", "2"),
    ("readers.*.limits.watches", "100"),
    ("readers.*.oidc_group", r#""sre""#),
    ("readers.*.oidc_user", r#""jane@example.com""#),
    ("readers.*.service_account.cluster", r#""prod-eu""#),
    ("readers.*.service_account.name", r#""grafana""#),
    ("readers.*.service_account.namespace", r#""tools""#),
    ("readers.*.token", r#"{ "file": "dashboard-token" }"#),
    ("resources.*.clusters", r#"{ "tier": "prod" }"#),
    ("resources.*.exclude", r#"["events.example.com"]"#),
    ("resources.*.field_selector", r#""status.phase=Running""#),
    ("resources.*.indexes", r#"{ "by-node": "spec.nodeName" }"#),
    ("resources.*.keep", r#"["metadata.labels", "spec.replicas", "status"]"#),
    ("resources.*.label_selector", r#""app,tier notin (cache)""#),
    ("resources.*.limit", "20"),
    ("resources.*.namespaces", r#"["shop", "pay"]"#),
    ("resources.*.resource", r#""deployments.apps""#),
    ("resources.*.resync", r#""10m""#),
    ("sinks.*.ca_file", r#""receiver-ca.pem""#),
    ("sinks.*.changed", r#"["spec", "status.phase"]"#),
    ("sinks.*.client_cert_file", r#""hub-client.pem""#),
    ("sinks.*.client_key_file", r#""hub-client-key.pem""#),
    ("sinks.*.compression", r#""gzip""#),
    ("sinks.*.creds_file", r#""hub.creds""#),
    ("sinks.*.filter", r#""object.status.phase == 'Failed'""#),
    ("sinks.*.headers", r#"{ "x-team": "platform", "x-api-key": { "env": "AUDIT_API_KEY" } }"#),
    ("sinks.*.match.clusters", r#"["prod-eu", "prod-us"]"#),
    ("sinks.*.match.namespaces", r#"["shop"]"#),
    ("sinks.*.match.resources", r#"["pods"]"#),
    ("sinks.*.nats.url", r#""nats://nats.example.com:4222""#),
    ("sinks.*.nkey", r#"{ "file": "hub.nkey" }"#),
    ("sinks.*.password", r#"{ "env": "NATS_PASSWORD" }"#),
    ("sinks.*.path", r#""events.jsonl""#),
    ("sinks.*.preset", r#""slack""#),
    ("sinks.*.rate_limit.burst", "200"),
    ("sinks.*.rate_limit.events_per_second", "100"),
    ("sinks.*.redact", r#"["spec.containers[*].env[*].value"]"#),
    ("sinks.*.signing_secret", r#"{ "env": "AUDIT_SECRET" }"#),
    ("sinks.*.stream", r#""K8S""#),
    ("sinks.*.template", r#""{ \"text\": {{ name }} }""#),
    ("sinks.*.template_file", r#""message.j2""#),
    ("sinks.*.token", r#"{ "env": "NATS_TOKEN" }"#),
    ("sinks.*.user", r#""hub""#),
    ("sinks.*.webhook.url", r#""https://audit.example.com/k8s""#),
];

/// Adds the examples to the schema, as `examples` of their keys.
pub(super) fn put_into(schema: &mut Value) {
    for (path, example) in EXAMPLES {
        let steps: Vec<_> = path.split('.').collect();
        let example = serde_json::from_str(example).unwrap_or_default();
        put(schema, &steps, &example);
    }
}

fn put(node: &mut Value, steps: &[&str], example: &Value) {
    if let Some(shapes) = node.get_mut("oneOf").and_then(Value::as_array_mut) {
        for shape in shapes {
            let kind = shape["properties"]["type"]["const"].as_str();
            let rest = steps.split_first().filter(|(first, _)| Some(**first) == kind).map(|(_, rest)| rest);
            put(shape, rest.unwrap_or(steps), example);
        }
    }
    match steps {
        ["*", rest @ ..] => {
            if let Some(each) = node.get_mut("additionalProperties") {
                put(each, rest, example);
            }
        }
        [key, rest @ ..] => {
            if let Some(next) = node.get_mut("properties").and_then(|known| known.get_mut(*key)) {
                put(next, rest, example);
            }
        }
        [] => node["examples"] = json!([example]),
    }
}
