//! Tests of readers whose rights are those of the clusters: the hub answers as the apiservers do.
//!
//! # Layout
//! - [`issuer`]: an OpenID Connect issuer over TLS, which hub and apiservers are configured for.
//! - [`fleet`]: two clusters with different rights, their users, and the hub in front of them.
//! - [`client`]: requests of a user to an apiserver and to the hub.
//! - `same_answers`: the same requests to both.
//! - `revoked`: rights that are withdrawn while streams are open.

mod client;
mod fleet;
mod issuer;
mod revoked;
mod same_answers;
