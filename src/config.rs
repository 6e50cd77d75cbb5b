//! The configuration: read from a TOML file by [`Config::from_file`], or built as a value.

pub use informer_hub_config::fleet::{Conflict, Holder, Problem};
pub use informer_hub_config::{
    AuthConfig, BatchConfig, BodyConfig, ByteSize, ClientCertConfig, ClusterAccess, ClusterConfig, ClusterSourceConfig,
    ClusterSourceKind, Config, ConfigErrors, Contexts, FileConfig, HeaderConfig, HeaderText, HubConfig, HumanDuration,
    InlineKubeconfig, InvalidUnit, LabelPattern, Management, Mistake, NamePattern, NatsAuth, NatsConfig, Probes,
    Projection, ProviderConfig, RateLimitConfig, ReadApiConfig, ResourceConfig, RetryConfig, Secret, SecretFormat,
    ServiceConfig, SinkConfig, SinkMatch, StdoutConfig, TemplateText, TlsConfig, TransportConfig, WebhookConfig,
    WrongKubeconfig,
};
