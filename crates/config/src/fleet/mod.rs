//! Which clusters there are: those of tables and those that sources bring, merged; and the formats in which sources find
//! them. Pure: whoever has read a Secret, a ClusterProfile or a file asks here what it says.
//!
//! # Whom to believe
//! What lies in a management cluster is data: whoever may write a Secret there must not get the hub to run a command, to
//! read a file of its own, or to send a token without encryption. So a kubeconfig from there is taken apart, and of it only
//! addresses, certificates and secrets are put together again ([`Credentials`]). Commands come from the hub's own
//! configuration alone. A folder of kubeconfigs is the operator's, as those are that tables name.
//!
//! # Mistakes
//! What is wrong with one object is a [`Problem`] of that object, which names its key and never its value; other objects
//! are not concerned.

mod argocd;
mod cluster_api;
mod credentials;
mod folder;
mod kubeconfig;
mod name;
mod object;
mod profile;
mod roster;
mod said;

#[cfg(test)]
mod tests;

pub use argocd::{ARGOCD_SELECTOR, of_argocd};
pub use cluster_api::{CLUSTER_API_SELECTOR, of_cluster_api};
pub use credentials::Credentials;
pub use folder::{of_file, stem};
pub use name::name_for;
pub use profile::{PROFILE_SECRETS_SELECTOR, of_profiles};
pub use roster::{Conflict, Holder, Roster, merge};
pub use said::{Found, Problem, Said};
