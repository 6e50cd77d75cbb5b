//! Tests of the Kubernetes read API with clients that were not written for it, and against the apiserver's own answers.
//!
//! # Layout
//! - [`endpoint`], [`hub`]: an apiserver or a root of the hub, and the hub as a process.
//! - [`resources`], [`objects`]: resources and random objects to read.
//! - `differential`: random requests, answered by the apiserver and by the hub, with every difference explained.
//! - `kubectl`: kubectl against both.
//! - `readers`: client-go, kube-rs and the Python client during changes and restarts.

mod differential;
mod endpoint;
mod hub;
mod kubectl;
mod objects;
mod readers;
mod resources;

/// Returns the seed of objects and requests. It is the same in each run, unless the environment sets another one.
fn seed() -> u64 {
    const FIXED: u64 = 20_261_123;
    if std::env::var_os(informer_hub_testing::SEED).is_some() { informer_hub_testing::seed() } else { FIXED }
}
