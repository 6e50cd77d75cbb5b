//! The configuration: read from a TOML file by [`Config::from_file`], or built as a value.

pub use informer_hub_config::inventory::{Conflict, Holder, Problem};
pub use informer_hub_config::{
    AccessReviewConfig, AuditConfig, AuditLevel, AuditOutputConfig, AuditRuleConfig, AuthConfig, AuthorizationConfig,
    BatchConfig, BodyConfig, ByteSize, ClientCertConfig, ClusterAccess, ClusterConfig, ClusterSourceConfig,
    ClusterSourceKind, Config, ConfigErrors, Contexts, Encodings, FileConfig, FleetConfig, FleetRole, HaConfig,
    HeaderConfig, HeaderText, HttpVersions, HubConfig, HumanDuration, InlineKubeconfig, InvalidUnit, LabelPattern,
    LeaseConfig, Management, Mistake, NamePattern, NatsAuth, NatsConfig, OidcConfig, Probes, Projection,
    ProviderConfig, RateLimitConfig, ReadApiConfig, ReaderConfig, ReaderIdentity, ReaderLimitsConfig, ResourceConfig,
    RetryConfig, RuleConfig, Secret, SecretFormat, ServiceAccountConfig, ServiceConfig, SinkConfig, SinkMatch,
    StdoutConfig, TemplateText, TlsConfig, TokenReviewConfig, TransportConfig, WebhookConfig, WrongKubeconfig,
};
