//! Names, labels and metadata of invented workloads.

use super::random::Random;

const APPS: [&str; 24] = [
    "web",
    "api",
    "frontend",
    "backend",
    "worker",
    "auth",
    "gateway",
    "payments",
    "orders",
    "catalog",
    "search",
    "cart",
    "checkout",
    "notifications",
    "scheduler",
    "redis",
    "postgresql",
    "kafka",
    "nginx",
    "prometheus",
    "grafana",
    "coredns",
    "metrics-server",
    "cert-manager",
];
pub(crate) const NAMESPACES: [&str; 12] = [
    "default",
    "kube-system",
    "monitoring",
    "ingress-nginx",
    "cert-manager",
    "argocd",
    "prod",
    "staging",
    "dev",
    "shop",
    "platform",
    "data",
];
const REGISTRIES: [&str; 7] = [
    "docker.io/library",
    "registry.k8s.io",
    "quay.io/prometheus",
    "ghcr.io/example",
    "gcr.io/example",
    "registry.example.com/platform",
    "123456789012.dkr.ecr.eu-west-1.amazonaws.com",
];

/// An invented workload.
pub(crate) struct App {
    pub(crate) name: String,
    pub(crate) namespace: &'static str,
    pub(crate) image: String,
    /// Labels of the workload's pods, as JSON members, without those that controllers add.
    pub(crate) labels: String,
}

impl App {
    pub(crate) fn new(random: &mut Random) -> Self {
        let app = random.pick(&APPS);
        let name = match random.below(3) {
            0 => app.to_owned(),
            1 => format!("{app}-{}", random.pick(&["v1", "v2", "canary", "primary", "internal", "public"])),
            _ => format!("{}-{app}", random.pick(&["shop", "team-a", "prod", "core", "release"])),
        };
        let version = format!("{}.{}.{}", random.below(5), random.below(30), random.below(20));
        let image = format!("{}/{app}:v{version}", random.pick(&REGISTRIES));
        let labels = match random.below(3) {
            0 => format!(r#""app":"{name}""#),
            1 => format!(r#""app":"{name}","tier":"{app}","version":"v{version}""#),
            _ => format!(
                r#""app.kubernetes.io/component":"{app}","app.kubernetes.io/instance":"{name}","app.kubernetes.io/managed-by":"Helm","app.kubernetes.io/name":"{app}","app.kubernetes.io/part-of":"{name}","app.kubernetes.io/version":"{version}","helm.sh/chart":"{app}-{version}""#
            ),
        };
        Self { name, namespace: random.pick(&NAMESPACES), image, labels }
    }
}

/// Parts of an object's metadata.
pub(crate) struct Metadata<'t> {
    pub(crate) name: &'t str,
    pub(crate) generate_name: Option<String>,
    pub(crate) namespace: Option<&'t str>,
    pub(crate) has_generation: bool,
    pub(crate) labels: &'t str,
    pub(crate) annotations: &'t str,
    /// API version, kind and name of the owner.
    pub(crate) owner: Option<(&'t str, &'t str, &'t str)>,
}

impl Metadata<'_> {
    /// Returns three texts: the member `metadata` as JSON, without managed fields; the UID; the resource version.
    pub(crate) fn write(&self, random: &mut Random) -> (String, String, String) {
        let (uid, version) = (random.uid(), (100_000 + random.below(900_000_000)).to_string());
        let generate = self.generate_name.as_ref().map(|name| format!(r#""generateName":"{name}","#));
        let namespace = self.namespace.map(|namespace| format!(r#""namespace":"{namespace}","#));
        let generation = self.has_generation.then(|| format!(r#""generation":{},"#, 1 + random.below(40)));
        let map = |key: &str, members: &str| {
            if members.is_empty() { String::new() } else { format!(r#","{key}":{{{members}}}"#) }
        };
        let owner = self.owner.map(|(api_version, kind, name)| {
            format!(
                r#","ownerReferences":[{{"apiVersion":"{api_version}","kind":"{kind}","name":"{name}","uid":"{}","controller":true,"blockOwnerDeletion":true}}]"#,
                random.uid()
            )
        });
        let json = format!(
            r#""metadata":{{"name":"{}",{}{}"uid":"{uid}","resourceVersion":"{version}",{}"creationTimestamp":"{}"{}{}{}}}"#,
            self.name,
            generate.unwrap_or_default(),
            namespace.unwrap_or_default(),
            generation.unwrap_or_default(),
            random.time(),
            map("labels", self.labels),
            map("annotations", self.annotations),
            owner.unwrap_or_default(),
        );
        (json, uid, version)
    }
}

/// Joins the non-empty members with commas.
pub(crate) fn joined(members: &[String]) -> String {
    members.iter().filter(|member| !member.is_empty()).map(String::as_str).collect::<Vec<_>>().join(",")
}
