//! End-to-end tests of the steps that README.md and docs/ describe, with the built program and real apiservers.
//!
//! Audit logs show what the steps cost the apiservers.
//!
//! # Layout
//! - `audit`: requests to an apiserver, by its audit log.
//! - `walkthrough`: from a kubeconfig to a hub whose configuration, clusters and resources change.
//! - `credentials`: rotation of a token file, a plugin's token and a client certificate.
//! - `queries`: the queries of dashboard and alerts, evaluated over the hub's metrics.

pub(crate) mod audit;
mod credentials;
mod queries;
mod walkthrough;
