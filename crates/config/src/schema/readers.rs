//! Schema of readers, of the OIDC issuer, and of access and token reviews in clusters.

use serde_json::{Value, json};

use super::node::{
    boolean, choice, default, duration, human, list, named, node, pattern, secret, size, table, text, whole,
};
use super::{NAME, NAMESPACE, RESOURCE, URL_FOR_TOKENS, selector};
use crate::authorization::{CACHE, MODES};
use crate::listen::{REQUESTS, WATCHES};
use crate::readers::{BYTES, IDENTITIES, SCANS};
use crate::{AccessReviewConfig, OidcConfig, TokenReviewConfig};

pub(super) fn readers() -> Value {
    let mut certificate = table(
        "Client certificate, by one of its names.",
        vec![
            ("organization", text("Organization (O), of which a certificate may have several.")),
            ("common_name", text("Common name (CN).")),
        ],
    );
    certificate["oneOf"] = json!([{ "required": ["organization"] }, { "required": ["common_name"] }]);
    let mut account = table(
        "Kubernetes service account, of a cluster in hub.authorization.token_review.",
        vec![
            ("cluster", pattern("Cluster of the service account.", NAME)),
            ("namespace", pattern("Namespace of the service account.", NAMESPACE)),
            ("name", text("Name of the service account.")),
        ],
    );
    account["required"] = json!(["cluster", "namespace", "name"]);
    let mut reader = table(
        "Reader of the HTTP port, by exactly one of token, certificate, oidc_group, oidc_user, service_account.",
        vec![
            ("token", secret("Bearer token.")),
            ("certificate", certificate),
            ("oidc_group", text("Group in OIDC tokens, with its prefix.")),
            ("oidc_user", text("User of OIDC tokens, with its prefix.")),
            ("service_account", account),
            ("allow", list("Rules. One of them has to allow what is read. Unset: nothing.", 0, &rule())),
            (
                "change",
                default(boolean("Whether it may reload the configuration, and replay and purge dead letters."), false),
            ),
            ("limits", limits()),
        ],
    );
    let ways: Vec<_> = IDENTITIES.iter().map(|key| json!({ "required": [key] })).collect();
    reader["oneOf"] = json!(ways);
    named("Readers of the HTTP port, by names of your choice.", NAME, &reader)
}

fn rule() -> Value {
    let resource = json!({ "type": "string", "pattern": RESOURCE });
    table(
        "Allows what all of its keys select.",
        vec![
            ("clusters", selector("Clusters, by name or by label. Unset: all.")),
            (
                "namespaces",
                list(
                    "Namespaces and patterns. Unset or *: all, and objects without a namespace.",
                    1,
                    &json!({ "type": "string", "pattern": "^[a-z0-9*-]{1,63}$" }),
                ),
            ),
            ("resources", list("Resources and patterns. Unset or *: all except Secrets.", 1, &resource)),
            ("except", list("Resources and patterns that are not allowed.", 0, &resource)),
        ],
    )
}

fn limits() -> Value {
    table(
        "Limits of each user of the reader.",
        vec![
            ("requests", whole("Maximum number of requests in progress, without watches.", &REQUESTS)),
            ("scans", whole("Maximum number of queries in progress that scan a cache.", &SCANS)),
            ("watches", whole("Maximum number of watches and event streams.", &WATCHES)),
            (
                "bytes_per_second",
                size("Size of the answers of a second, over a longer time. Lists and watches are delayed.", &BYTES),
            ),
        ],
    )
}

pub(super) fn oidc() -> Value {
    let is = OidcConfig::new("", "");
    let claim = "Claim with the user's";
    let mut oidc = table(
        "Issuer of JSON Web Tokens (OpenID Connect).",
        vec![
            ("issuer", pattern("Address of the issuer, exactly as in the claim iss.", URL_FOR_TOKENS)),
            ("audience", text("Value that the claim aud has to contain.")),
            ("ca_file", text("PEM file with the CA of the issuer. Unset: the system's.")),
            ("username_claim", default(text(&format!("{claim} name.")), is.username_claim)),
            ("groups_claim", default(text(&format!("{claim} groups.")), is.groups_claim)),
            ("username_prefix", text("Prefix of user names.")),
            ("groups_prefix", text("Prefix of groups.")),
        ],
    );
    oidc["required"] = json!(["issuer", "audience"]);
    oidc
}

pub(super) fn authorization() -> Value {
    let (access, token) = (AccessReviewConfig::default(), TokenReviewConfig::new(Vec::new()));
    let modes = MODES.map(|(mode, ())| mode);
    let mut kubernetes = table(
        "Rights of users by the SubjectAccessReview of each object's cluster.",
        vec![
            ("mode", choice("How the clusters are asked.", &modes)),
            ("cache", default(duration("How long an answer is used.", &CACHE), human(access.cache))),
        ],
    );
    kubernetes["required"] = json!(["mode"]);
    let mut token_review = table(
        "Kubernetes service accounts by TokenReview.",
        vec![
            (
                "clusters",
                list("Clusters whose service accounts are accepted.", 1, &json!({ "type": "string", "pattern": NAME })),
            ),
            ("audience", text("Audience that tokens need. Unset: that of the apiserver.")),
            ("cache", default(duration("How long an answer is used.", &CACHE), human(token.cache))),
        ],
    );
    token_review["required"] = json!(["clusters"]);
    node(
        "Questions to the clusters about users.",
        table("", vec![("kubernetes", kubernetes), ("token_review", token_review)]),
    )
}
