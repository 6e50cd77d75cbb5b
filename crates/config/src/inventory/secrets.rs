//! Formats of cluster Secrets: which Secrets are read, and which of their fields.

use super::argocd::{ARGOCD_SELECTOR, report_from_argocd};
use super::cluster_api::{CLUSTER_API_SELECTOR, report_from_cluster_api};
use super::source_report::SourceReport;
use crate::{ClusterSourceConfig, Management, SecretFormat};

impl SecretFormat {
    /// Returns the label selector of the cluster Secrets in this format.
    #[must_use]
    pub fn selector(self) -> &'static str {
        match self {
            Self::ArgoCd => ARGOCD_SELECTOR,
            Self::ClusterApi => CLUSTER_API_SELECTOR,
        }
    }

    /// Returns the fields that are read from a Secret, besides its name and namespace.
    #[must_use]
    pub fn paths(self) -> &'static [&'static str] {
        match self {
            Self::ArgoCd => &["metadata.labels", "data.name", "data.server", "data.config"],
            Self::ClusterApi => &["metadata.labels", "type", "data.value"],
        }
    }
}

/// Reads the clusters that Secrets of this format describe. Each Secret is given as JSON.
pub fn report_from_secrets<J: AsRef<[u8]>>(
    source: &ClusterSourceConfig,
    management: &Management,
    format: SecretFormat,
    secrets: impl IntoIterator<Item = J>,
) -> SourceReport {
    match format {
        SecretFormat::ArgoCd => report_from_argocd(source, management, secrets),
        SecretFormat::ClusterApi => report_from_cluster_api(source, secrets),
    }
}
