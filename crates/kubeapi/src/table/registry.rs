//! Registry of table columns, by group and resource.

use super::kind::Kind;
use super::{access, autoscaler, batch, control, core, definition, endpoint, event, network, pod, storage, workload};

/// Returns the columns and the printer of a resource. Unknown resources get the default columns of custom resources.
pub(super) fn kind(group: &str, resource: &str) -> Kind {
    match group {
        "" => core_group(resource),
        "apps" | "autoscaling" | "batch" | "policy" => workloads(resource),
        "discovery.k8s.io" | "networking.k8s.io" => networking(resource),
        "storage.k8s.io" => storage_group(resource),
        "events.k8s.io" if resource == "events" => Some(event::EVENTS),
        "rbac.authorization.k8s.io"
        | "admissionregistration.k8s.io"
        | "certificates.k8s.io"
        | "apiregistration.k8s.io"
        | "apiextensions.k8s.io" => access_groups(resource),
        "coordination.k8s.io"
        | "scheduling.k8s.io"
        | "node.k8s.io"
        | "flowcontrol.apiserver.k8s.io"
        | "internal.apiserver.k8s.io"
        | "storagemigration.k8s.io"
        | "resource.k8s.io" => control_groups(resource),
        _ => None,
    }
    .unwrap_or(core::CUSTOM_DEFAULT)
}

fn core_group(resource: &str) -> Option<Kind> {
    Some(match resource {
        "pods" => pod::PODS,
        "services" => network::SERVICES,
        "endpoints" => endpoint::ENDPOINTS,
        "nodes" => core::NODES,
        "namespaces" => core::NAMESPACES,
        "configmaps" => core::CONFIG_MAPS,
        "secrets" => core::SECRETS,
        "events" => event::EVENTS,
        "persistentvolumes" => storage::PERSISTENT_VOLUMES,
        "persistentvolumeclaims" => storage::PERSISTENT_VOLUME_CLAIMS,
        "serviceaccounts" => core::NAME_AND_AGE,
        "replicationcontrollers" => workload::REPLICATION_CONTROLLERS,
        "resourcequotas" => core::RESOURCE_QUOTAS,
        "limitranges" => core::NAME_AND_CREATION,
        "podtemplates" => workload::POD_TEMPLATES,
        "componentstatuses" => core::COMPONENT_STATUSES,
        _ => return None,
    })
}

fn workloads(resource: &str) -> Option<Kind> {
    Some(match resource {
        "deployments" => workload::DEPLOYMENTS,
        "replicasets" => workload::REPLICA_SETS,
        "statefulsets" => workload::STATEFUL_SETS,
        "daemonsets" => workload::DAEMON_SETS,
        "controllerrevisions" => workload::CONTROLLER_REVISIONS,
        "horizontalpodautoscalers" => autoscaler::HORIZONTAL_POD_AUTOSCALERS,
        "jobs" => batch::JOBS,
        "cronjobs" => batch::CRON_JOBS,
        "poddisruptionbudgets" => workload::POD_DISRUPTION_BUDGETS,
        _ => return None,
    })
}

fn networking(resource: &str) -> Option<Kind> {
    Some(match resource {
        "endpointslices" => endpoint::ENDPOINT_SLICES,
        "ingresses" => network::INGRESSES,
        "ingressclasses" => network::INGRESS_CLASSES,
        "networkpolicies" => network::NETWORK_POLICIES,
        "servicecidrs" => network::SERVICE_CIDRS,
        "ipaddresses" => network::IP_ADDRESSES,
        _ => return None,
    })
}

fn storage_group(resource: &str) -> Option<Kind> {
    Some(match resource {
        "storageclasses" => storage::STORAGE_CLASSES,
        "volumeattributesclasses" => storage::VOLUME_ATTRIBUTES_CLASSES,
        "volumeattachments" => storage::VOLUME_ATTACHMENTS,
        "csinodes" => storage::CSI_NODES,
        "csidrivers" => storage::CSI_DRIVERS,
        "csistoragecapacities" => core::NAME_AND_CREATION,
        _ => return None,
    })
}

fn access_groups(resource: &str) -> Option<Kind> {
    Some(match resource {
        "rolebindings" | "clusterrolebindings" => access::ROLE_BINDINGS,
        "roles" | "clusterroles" => core::NAME_AND_CREATION,
        "customresourcedefinitions" => definition::CUSTOM_RESOURCE_DEFINITIONS,
        "validatingwebhookconfigurations" | "mutatingwebhookconfigurations" => access::WEBHOOK_CONFIGURATIONS,
        "validatingadmissionpolicies" => access::VALIDATING_POLICIES,
        "mutatingadmissionpolicies" => access::MUTATING_POLICIES,
        "validatingadmissionpolicybindings" | "mutatingadmissionpolicybindings" => access::POLICY_BINDINGS,
        "certificatesigningrequests" => access::CERTIFICATE_SIGNING_REQUESTS,
        "clustertrustbundles" => access::CLUSTER_TRUST_BUNDLES,
        "podcertificaterequests" => access::POD_CERTIFICATE_REQUESTS,
        "apiservices" => access::API_SERVICES,
        _ => return None,
    })
}

fn control_groups(resource: &str) -> Option<Kind> {
    Some(match resource {
        "leases" => control::LEASES,
        "leasecandidates" => control::LEASE_CANDIDATES,
        "priorityclasses" => control::PRIORITY_CLASSES,
        "runtimeclasses" => control::RUNTIME_CLASSES,
        "flowschemas" => control::FLOW_SCHEMAS,
        "prioritylevelconfigurations" => control::PRIORITY_LEVELS,
        "storageversions" => control::STORAGE_VERSIONS,
        "storageversionmigrations" => control::STORAGE_VERSION_MIGRATIONS,
        "resourceclaims" => control::RESOURCE_CLAIMS,
        "resourceclaimtemplates" | "deviceclasses" => core::NAME_AND_AGE,
        "resourceslices" => control::RESOURCE_SLICES,
        "devicetaintrules" => control::DEVICE_TAINT_RULES,
        _ => return None,
    })
}
