//! Inventory: the set of clusters from tables and cluster sources, and the formats that sources read. No I/O: the caller
//! passes in the content of Secrets, ClusterProfiles and files.
//!
//! # Trust
//! Objects of a management cluster are untrusted data. An author of a Secret must not make the hub run a command, read a
//! local file, or send a token unencrypted. So only addresses, certificates and secrets are copied from such a kubeconfig
//! ([`Credentials`]). Commands are taken only from the hub's own configuration. A directory of kubeconfigs belongs to the
//! operator and is trusted, like kubeconfigs in tables.
//!
//! # Mistakes
//! A problem with one object is a [`Problem`] of that object, which names the key and never its value. Other objects are
//! not affected.

mod argocd;
mod cluster_api;
mod credentials;
mod folder;
mod kubeconfig;
mod merge;
mod name;
mod object;
mod profile;
mod secrets;
mod source_report;

#[cfg(test)]
mod tests;

pub use argocd::{ARGOCD_SELECTOR, report_from_argocd};
pub use cluster_api::{CLUSTER_API_SELECTOR, report_from_cluster_api};
pub use credentials::Credentials;
pub use folder::{report_from_file, stem};
pub use merge::{Conflict, Holder, Roster, merge};
pub use name::name_for;
pub use profile::{PROFILE_SECRETS_SELECTOR, report_from_profiles};
pub use secrets::report_from_secrets;
pub use source_report::{FoundCluster, Problem, SourceReport};
