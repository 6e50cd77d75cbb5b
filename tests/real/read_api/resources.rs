//! Resources that are compared.

/// A resource, as paths, configuration and objects name it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Resource {
    pub(super) group: &'static str,
    pub(super) version: &'static str,
    pub(super) plural: &'static str,
    pub(super) kind: &'static str,
    pub(super) is_namespaced: bool,
    /// Fields that a field selector may name, besides `metadata.name` and `metadata.namespace`, and values to compare
    /// with.
    pub(super) fields: &'static [(&'static str, &'static [&'static str])],
}

impl Resource {
    /// Returns `apiVersion`.
    pub(super) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Returns the path of the group and version.
    pub(super) fn version_path(&self) -> String {
        if self.group.is_empty() { format!("/api/{}", self.version) } else { format!("/apis/{}", self.api_version()) }
    }

    /// Returns the name in the hub's configuration.
    pub(super) fn config_name(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }
}

type Fields = &'static [(&'static str, &'static [&'static str])];

const fn namespaced(
    (group, version): (&'static str, &'static str),
    plural: &'static str,
    kind: &'static str,
    fields: Fields,
) -> Resource {
    Resource { group, version, plural, kind, is_namespaced: true, fields }
}

const fn cluster(
    (group, version): (&'static str, &'static str),
    plural: &'static str,
    kind: &'static str,
    fields: Fields,
) -> Resource {
    Resource { group, version, plural, kind, is_namespaced: false, fields }
}

const CORE: (&str, &str) = ("", "v1");
const APPS: (&str, &str) = ("apps", "v1");
const BATCH: (&str, &str) = ("batch", "v1");
const NETWORK: (&str, &str) = ("networking.k8s.io", "v1");
const RBAC: (&str, &str) = ("rbac.authorization.k8s.io", "v1");
const STORAGE: (&str, &str) = ("storage.k8s.io", "v1");
const WEBHOOKS: (&str, &str) = ("admissionregistration.k8s.io", "v1");

/// Custom resource with printer columns, selectable fields and a status.
pub(super) const GADGETS: Resource = namespaced(
    ("read.example.com", "v1"),
    "gadgets",
    "Gadget",
    &[("spec.size", &["1", "7", "42"]), ("spec.color", &["red", "blue", ""])],
);

/// All resources. The first ones have most of the requests.
pub(super) const RESOURCES: &[Resource] = &[
    namespaced(
        CORE,
        "pods",
        "Pod",
        &[
            ("spec.nodeName", &["node-0", "node-1", ""]),
            ("spec.host", &["node-0", ""]),
            ("status.phase", &["Running", "Pending", "Failed", ""]),
            ("spec.restartPolicy", &["Always", "Never"]),
            ("spec.schedulerName", &["default-scheduler", "other"]),
            ("spec.serviceAccountName", &["default", ""]),
            ("spec.hostNetwork", &["true", "false"]),
            ("status.podIP", &["10.1.0.1", ""]),
            ("status.podIPs", &["10.1.0.1", ""]),
            ("status.nominatedNodeName", &["node-2", ""]),
        ],
    ),
    namespaced(APPS, "deployments", "Deployment", &[]),
    namespaced(
        CORE,
        "services",
        "Service",
        &[("spec.type", &["ClusterIP", "NodePort", "LoadBalancer"]), ("spec.clusterIP", &["None", "10.0.0.1"])],
    ),
    namespaced(CORE, "configmaps", "ConfigMap", &[]),
    cluster(CORE, "nodes", "Node", &[("spec.unschedulable", &["true", "false"])]),
    cluster(CORE, "namespaces", "Namespace", &[("status.phase", &["Active", "Terminating"]), ("name", &["shop"])]),
    GADGETS,
    namespaced(
        CORE,
        "events",
        "Event",
        &[
            ("involvedObject.kind", &["Pod", "Node"]),
            ("involvedObject.name", &["web-1", "node-0"]),
            ("involvedObject.namespace", &["shop", ""]),
            ("involvedObject.uid", &[""]),
            ("involvedObject.apiVersion", &["v1"]),
            ("involvedObject.resourceVersion", &[""]),
            ("involvedObject.fieldPath", &["spec.containers{main}", ""]),
            ("reason", &["Started", "Failed"]),
            ("reportingComponent", &["kubelet", ""]),
            ("source", &["kubelet", "scheduler"]),
            ("type", &["Warning", "Normal"]),
        ],
    ),
    namespaced(CORE, "secrets", "Secret", &[("type", &["Opaque", "kubernetes.io/tls"])]),
    namespaced(APPS, "replicasets", "ReplicaSet", &[("status.replicas", &["0", "3"])]),
    namespaced(APPS, "statefulsets", "StatefulSet", &[]),
    namespaced(APPS, "daemonsets", "DaemonSet", &[]),
    namespaced(APPS, "controllerrevisions", "ControllerRevision", &[]),
    namespaced(CORE, "replicationcontrollers", "ReplicationController", &[("status.replicas", &["0", "2"])]),
    namespaced(BATCH, "jobs", "Job", &[("status.successful", &["0", "1"])]),
    namespaced(BATCH, "cronjobs", "CronJob", &[]),
    namespaced(CORE, "endpoints", "Endpoints", &[]),
    namespaced(("discovery.k8s.io", "v1"), "endpointslices", "EndpointSlice", &[]),
    namespaced(NETWORK, "ingresses", "Ingress", &[]),
    namespaced(NETWORK, "networkpolicies", "NetworkPolicy", &[]),
    cluster(NETWORK, "ingressclasses", "IngressClass", &[]),
    cluster(CORE, "persistentvolumes", "PersistentVolume", &[]),
    namespaced(CORE, "persistentvolumeclaims", "PersistentVolumeClaim", &[]),
    cluster(STORAGE, "storageclasses", "StorageClass", &[]),
    cluster(STORAGE, "csidrivers", "CSIDriver", &[]),
    cluster(STORAGE, "csinodes", "CSINode", &[]),
    cluster(STORAGE, "volumeattachments", "VolumeAttachment", &[]),
    namespaced(("autoscaling", "v2"), "horizontalpodautoscalers", "HorizontalPodAutoscaler", &[]),
    namespaced(CORE, "serviceaccounts", "ServiceAccount", &[]),
    namespaced(CORE, "resourcequotas", "ResourceQuota", &[]),
    namespaced(CORE, "limitranges", "LimitRange", &[]),
    namespaced(("policy", "v1"), "poddisruptionbudgets", "PodDisruptionBudget", &[]),
    namespaced(("coordination.k8s.io", "v1"), "leases", "Lease", &[]),
    namespaced(RBAC, "roles", "Role", &[]),
    namespaced(RBAC, "rolebindings", "RoleBinding", &[]),
    cluster(RBAC, "clusterroles", "ClusterRole", &[]),
    cluster(RBAC, "clusterrolebindings", "ClusterRoleBinding", &[]),
    cluster(("scheduling.k8s.io", "v1"), "priorityclasses", "PriorityClass", &[]),
    cluster(("node.k8s.io", "v1"), "runtimeclasses", "RuntimeClass", &[]),
    cluster(WEBHOOKS, "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", &[]),
    cluster(WEBHOOKS, "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", &[]),
    cluster(("apiextensions.k8s.io", "v1"), "customresourcedefinitions", "CustomResourceDefinition", &[]),
    cluster(("apiregistration.k8s.io", "v1"), "apiservices", "APIService", &[]),
    cluster(("flowcontrol.apiserver.k8s.io", "v1"), "flowschemas", "FlowSchema", &[]),
];

/// Number of resources at the start of [`RESOURCES`] whose objects change while the hub watches.
pub(super) const CHANGING: usize = 9;
