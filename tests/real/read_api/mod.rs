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
