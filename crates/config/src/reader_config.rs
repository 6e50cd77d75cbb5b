//! Types of `[readers.<name>]`, `[oidc]` and `[hub.authorization]`: identities of readers, and their rights.

use std::path::PathBuf;
use std::time::Duration;

use super::Secret;
use informer_hub_types::{ClusterName, ClusterSelector, Exclusion, Selected};

/// `[readers.<name>]`: an identity and its rights.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReaderConfig {
    /// Name: the key of the table `[readers.<name>]`.
    pub name: String,
    /// How the reader's requests are recognized.
    pub identity: ReaderIdentity,
    /// Rules. The reader may read an object if one of the rules allows it; an empty list allows nothing.
    pub allow: Vec<RuleConfig>,
    /// Whether the reader may also reload the configuration, and replay and purge dead letters. Default false.
    pub change: bool,
    /// Limits of the reader's requests.
    pub limits: ReaderLimitsConfig,
}

impl ReaderConfig {
    /// Creates a reader without rights and without limits of its own.
    #[must_use]
    pub fn new(name: impl Into<String>, identity: ReaderIdentity) -> Self {
        let limits = ReaderLimitsConfig::default();
        Self { name: name.into(), identity, allow: Vec::new(), change: false, limits }
    }
}

/// How the requests of a reader are recognized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReaderIdentity {
    /// Bearer token.
    Token(Secret),
    /// Client certificate with this common name (CN).
    CommonName(String),
    /// Client certificate with this organization (O).
    Organization(String),
    /// OIDC token of a member of this group.
    OidcGroup(String),
    /// OIDC token of this user.
    OidcUser(String),
    /// Token of a Kubernetes service account.
    ServiceAccount(ServiceAccountConfig),
}

/// `service_account` of a reader: the Kubernetes service account that identifies it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAccountConfig {
    /// Cluster of the service account.
    pub cluster: ClusterName,
    /// Namespace of the service account.
    pub namespace: String,
    /// Name of the service account.
    pub name: String,
}

/// Entry of `allow`. It allows the objects that all of its keys select.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuleConfig {
    /// Clusters of the allowed objects. Default all.
    pub clusters: ClusterSelector,
    /// Namespaces of the allowed objects, or patterns with `*`. Empty allows all namespaces, and objects without one.
    pub namespaces: Vec<String>,
    /// Allowed resources and patterns, without versions. Default all except Secrets, which have to be named.
    pub resources: Vec<Selected>,
    /// Resources and patterns that are excluded from `resources`.
    pub except: Vec<Exclusion>,
}

/// `limits` of a reader, in addition to the limits in `[hub]`. A field that is `None` adds no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReaderLimitsConfig {
    /// Maximum number of requests in progress, not counting watches.
    pub requests: Option<usize>,
    /// Maximum number of queries in progress that scan a cache.
    pub scans: Option<usize>,
    /// Maximum number of watches and event streams.
    pub watches: Option<usize>,
    /// Average bytes of answers per second. Beyond it, answers are delayed.
    pub bytes_per_second: Option<usize>,
}

/// `[oidc]`: the issuer of JSON Web Tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OidcConfig {
    /// Address of the issuer, exactly as in the claim `iss`.
    pub issuer: String,
    /// Value that the claim `aud` has to contain.
    pub audience: String,
    /// PEM file with the CA of the issuer; `None` is the system's roots.
    pub ca_file: Option<PathBuf>,
    /// Claim with the user's name. Default `sub`.
    pub username_claim: String,
    /// Claim with the user's groups. Default `groups`.
    pub groups_claim: String,
    /// Prefix that the hub adds to user names. Default none.
    pub username_prefix: String,
    /// Prefix that the hub adds to groups. Default none.
    pub groups_prefix: String,
}

impl OidcConfig {
    /// Creates an issuer with default claims and without prefixes.
    #[must_use]
    pub fn new(issuer: impl Into<String>, audience: impl Into<String>) -> Self {
        Self {
            issuer: issuer.into(),
            audience: audience.into(),
            ca_file: None,
            username_claim: "sub".to_owned(),
            groups_claim: "groups".to_owned(),
            username_prefix: String::new(),
            groups_prefix: String::new(),
        }
    }
}

/// `[hub.authorization]`: sends review requests to clusters, to check the rights and the tokens of users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuthorizationConfig {
    /// Checks rights with a `SubjectAccessReview` in the cluster of each object; `None` disables this check.
    pub kubernetes: Option<AccessReviewConfig>,
    /// Authenticates service accounts with a `TokenReview`; `None` accepts no service accounts.
    pub token_review: Option<TokenReviewConfig>,
}

/// `kubernetes` of `[hub.authorization]`, with the mode `subject-access-review`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AccessReviewConfig {
    /// How long a cluster's answer about a user's right is cached. Default 1 min.
    pub cache: Duration,
}

impl Default for AccessReviewConfig {
    fn default() -> Self {
        Self { cache: Duration::from_secs(60) }
    }
}

/// `token_review` of `[hub.authorization]`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TokenReviewConfig {
    /// Clusters whose service accounts are accepted. If several accept a token, the token belongs to the first of them
    /// in this order.
    pub clusters: Vec<ClusterName>,
    /// Audience that tokens must have; `None` is the audience of the apiserver.
    pub audience: Option<String>,
    /// How long a cluster's answer about a token is cached. Default 1 min.
    pub cache: Duration,
}

impl TokenReviewConfig {
    /// Creates settings for token reviews by these clusters. Tokens must be issued for the audience of the apiserver.
    #[must_use]
    pub fn new(clusters: Vec<ClusterName>) -> Self {
        Self { clusters, audience: None, cache: Duration::from_secs(60) }
    }
}
