//! The way of a new user, with the built program on real apiservers, as README.md and docs/ have it; and what that costs the
//! apiservers, by their audit logs.
//!
//! # Layout
//! - `desk`: a user's folder, the commands run in it, and the hub.
//! - `audit`: what an apiserver was asked.
//! - `way`: from a kubeconfig to a hub whose file, clusters and resources change.
//! - `credentials`: a token file, a plugin and a client certificate that rotate.
//! - `queries`: the dashboard's and the alerts' queries over what the hub shows.

mod audit;
mod credentials;
mod desk;
mod queries;
mod way;
