//! Table columns of roles, admission, certificates and aggregated APIs.

use serde::Deserialize;

use super::Row;
use super::age::human_duration;
use super::fields::{Condition, Count, Labels, List, Meta, Selector, Text, join};
use super::kind::{AGE, Kind, NAME, cells, decode, integer, text, wide};

pub(super) const ROLE_BINDINGS: Kind = Kind {
    columns: &[
        NAME,
        text("Role", "Role that the subjects have"),
        AGE,
        wide("Users", "Users that have the role"),
        wide("Groups", "Groups that have the role"),
        wide("ServiceAccounts", "Service accounts that have the role"),
    ],
    print: role_binding,
};

pub(super) const WEBHOOK_CONFIGURATIONS: Kind =
    Kind { columns: &[NAME, integer("Webhooks", "Number of webhooks"), AGE], print: webhook_configuration };

pub(super) const VALIDATING_POLICIES: Kind = Kind {
    columns: &[
        NAME,
        integer("Validations", "Number of validation rules"),
        text("ParamKind", "Kind of the parameters of the policy"),
        AGE,
    ],
    print: validating_policy,
};

pub(super) const MUTATING_POLICIES: Kind = Kind {
    columns: &[
        NAME,
        integer("Mutations", "Number of mutation rules"),
        text("ParamKind", "Kind of the parameters of the policy"),
        AGE,
    ],
    print: mutating_policy,
};

pub(super) const POLICY_BINDINGS: Kind = Kind {
    columns: &[
        NAME,
        text("PolicyName", "Policy that is bound"),
        text("ParamRef", "Object with the parameters of the policy"),
        AGE,
    ],
    print: policy_binding,
};

pub(super) const CERTIFICATE_SIGNING_REQUESTS: Kind = Kind {
    columns: &[
        NAME,
        AGE,
        text("SignerName", "Signer that should issue the certificate"),
        text("Requestor", "User that made the request"),
        text("RequestedDuration", "Requested validity of the certificate"),
        text("Condition", "State of the request"),
    ],
    print: certificate_signing_request,
};

pub(super) const CLUSTER_TRUST_BUNDLES: Kind =
    Kind { columns: &[NAME, text("SignerName", "Signer that the bundle belongs to")], print: cluster_trust_bundle };

pub(super) const POD_CERTIFICATE_REQUESTS: Kind = Kind {
    columns: &[
        NAME,
        text("PodName", "Pod that the certificate is for"),
        text("ServiceAccountName", "Service account of the pod"),
        text("NodeName", "Node of the pod"),
        text("SignerName", "Signer that should issue the certificate"),
        text("State", "State of the request"),
        text("UnverifiedUserAnnotations", "Annotations that the user gave to the signer"),
    ],
    print: pod_certificate_request,
};

pub(super) const API_SERVICES: Kind = Kind {
    columns: &[
        NAME,
        text("Service", "Service that serves the API"),
        text("Available", "Whether the API is available"),
        AGE,
    ],
    print: api_service,
};

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct RoleBinding<'j> {
    #[serde(borrow)]
    metadata: Meta<'j>,
    #[serde(borrow)]
    role_ref: Subject<'j>,
    #[serde(borrow)]
    subjects: List<Subject<'j>>,
}

/// A role, or a user, group or service account that a binding names.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Subject<'j> {
    #[serde(borrow)]
    kind: Text<'j>,
    #[serde(borrow)]
    namespace: Text<'j>,
    #[serde(borrow)]
    name: Text<'j>,
}

fn role_binding(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let RoleBinding { metadata, role_ref, subjects } = decode(json)?;
    let of = |kind: &'static str| subjects.iter().filter(move |subject| *subject.kind == *kind);
    let accounts = of("ServiceAccount").map(|subject| format!("{}/{}", subject.namespace, subject.name));
    cells![
        &metadata.name,
        format!("{}/{}", role_ref.kind, role_ref.name),
        metadata.creation_timestamp.age(now),
        join(of("User").map(|subject| &subject.name), ", "),
        join(of("Group").map(|subject| &subject.name), ", "),
        join(accounts, ", "),
    ]
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WebhookConfiguration<'j> {
    #[serde(borrow)]
    metadata: Meta<'j>,
    webhooks: Count,
}

fn webhook_configuration(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let WebhookConfiguration { metadata, webhooks } = decode(json)?;
    cells![&metadata.name, webhooks.0, metadata.creation_timestamp.age(now)]
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Policy<'j> {
    #[serde(borrow)]
    metadata: Meta<'j>,
    #[serde(borrow)]
    spec: PolicySpec<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct PolicySpec<'j> {
    validations: Count,
    mutations: Count,
    #[serde(borrow)]
    param_kind: Option<ParamKind<'j>>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct ParamKind<'j> {
    #[serde(borrow)]
    api_version: Text<'j>,
    #[serde(borrow)]
    kind: Text<'j>,
}

fn policy(policy: &Policy<'_>, rules: Count, now: i64) -> serde_json::Result<Row> {
    let Policy { metadata, spec } = policy;
    let param_kind = spec.param_kind.as_ref().map(|param| format!("{}/{}", param.api_version, param.kind));
    cells![
        &metadata.name,
        rules.0,
        param_kind.unwrap_or_else(|| "<unset>".to_owned()),
        metadata.creation_timestamp.age(now),
    ]
}

fn validating_policy(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let decoded: Policy<'_> = decode(json)?;
    policy(&decoded, decoded.spec.validations, now)
}

fn mutating_policy(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let decoded: Policy<'_> = decode(json)?;
    policy(&decoded, decoded.spec.mutations, now)
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct PolicyBinding<'j> {
    #[serde(borrow)]
    metadata: Meta<'j>,
    #[serde(borrow)]
    spec: PolicyBindingSpec<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct PolicyBindingSpec<'j> {
    #[serde(borrow)]
    policy_name: Text<'j>,
    #[serde(borrow)]
    param_ref: Option<ParamRef<'j>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ParamRef<'j> {
    #[serde(borrow)]
    namespace: Text<'j>,
    #[serde(borrow)]
    name: Text<'j>,
    #[serde(borrow)]
    selector: Option<Selector<'j>>,
}

impl ParamRef<'_> {
    fn text(&self) -> Option<String> {
        if self.name.is_empty() {
            return self.selector.as_ref().map(Selector::debug);
        }
        Some(format!("{}/{}", self.namespace.or("*"), self.name))
    }
}

fn policy_binding(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let PolicyBinding { metadata, spec } = decode(json)?;
    let param = spec.param_ref.as_ref().and_then(ParamRef::text);
    cells![
        &metadata.name,
        &spec.policy_name,
        param.unwrap_or_else(|| "<unset>".to_owned()),
        metadata.creation_timestamp.age(now),
    ]
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct CertificateRequest<'j> {
    #[serde(borrow)]
    metadata: Meta<'j>,
    #[serde(borrow)]
    spec: CertificateRequestSpec<'j>,
    #[serde(borrow)]
    status: CertificateRequestStatus<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct CertificateRequestSpec<'j> {
    #[serde(borrow)]
    signer_name: Text<'j>,
    #[serde(borrow)]
    username: Text<'j>,
    expiration_seconds: Option<i64>,
    #[serde(borrow)]
    pod_name: Text<'j>,
    #[serde(borrow)]
    service_account_name: Text<'j>,
    #[serde(borrow)]
    node_name: Text<'j>,
    #[serde(borrow)]
    unverified_user_annotations: Labels<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct CertificateRequestStatus<'j> {
    #[serde(borrow)]
    conditions: List<Condition<'j>>,
    #[serde(borrow)]
    certificate: Text<'j>,
}

impl CertificateRequestStatus<'_> {
    fn text(&self) -> String {
        let has = |kind: &str| self.conditions.iter().any(|condition| *condition.kind == *kind);
        let decision = match (has("Denied"), has("Approved")) {
            (true, _) => "Denied",
            (false, true) => "Approved",
            (false, false) => "Pending",
        };
        let failed = if has("Failed") { ",Failed" } else { "" };
        let issued = if self.certificate.is_empty() { "" } else { ",Issued" };
        format!("{decision}{failed}{issued}")
    }
}

fn certificate_signing_request(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let CertificateRequest { metadata, spec, status } = decode(json)?;
    cells![
        &metadata.name,
        metadata.creation_timestamp.age(now),
        spec.signer_name.or("<none>"),
        &spec.username,
        spec.expiration_seconds.map_or_else(|| "<none>".to_owned(), human_duration),
        status.text(),
    ]
}

fn cluster_trust_bundle(json: &[u8], _now: i64) -> serde_json::Result<Row> {
    let CertificateRequest { metadata, spec, .. } = decode(json)?;
    cells![&metadata.name, spec.signer_name.or("<none>")]
}

fn pod_certificate_request(json: &[u8], _now: i64) -> serde_json::Result<Row> {
    let CertificateRequest { metadata, spec, status } = decode(json)?;
    let mut outcomes = status.conditions.iter().map(|condition| &*condition.kind);
    let state = outcomes.rfind(|kind| matches!(*kind, "Issued" | "Denied" | "Failed"));
    cells![
        &metadata.name,
        &spec.pod_name,
        &spec.service_account_name,
        &spec.node_name,
        &spec.signer_name,
        state.unwrap_or("Pending"),
        spec.unverified_user_annotations.format(),
    ]
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ApiService<'j> {
    #[serde(borrow)]
    metadata: Meta<'j>,
    #[serde(borrow)]
    spec: ApiServiceSpec<'j>,
    #[serde(borrow)]
    status: CertificateRequestStatus<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ApiServiceSpec<'j> {
    #[serde(borrow)]
    service: Option<Subject<'j>>,
}

fn api_service(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let ApiService { metadata, spec, status } = decode(json)?;
    let service = spec.service.map(|service| format!("{}/{}", service.namespace, service.name));
    let available = status.conditions.iter().find(|condition| *condition.kind == *"Available");
    let status = match available {
        None => "Unknown".to_owned(),
        Some(condition) if condition.is_true() || condition.reason.is_empty() => condition.status.to_string(),
        Some(condition) => format!("{} ({})", condition.status, condition.reason),
    };
    cells![&metadata.name, service.unwrap_or_else(|| "Local".to_owned()), status, metadata.creation_timestamp.age(now),]
}
