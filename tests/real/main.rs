//! The suite against real apiservers: each test starts clusters of its own on loopback (`tests/testbed`).
//!
//! Run by `cargo test --features real-tests --test real`. It needs Go, and builds the test bed when that is out of date.
//!
//! # Layout
//! - [`bed`]: clusters, the objects in them, random changes, and what is true by a fresh list.
//! - [`proxy`]: a TCP proxy between a client and an apiserver that misbehaves when told to.
//! - [`fleet`], [`receiver`]: a hub over such clusters, a subscriber and a webhook's receiver that judge what they are told.
//! - `hub`: tests of the hub; `cluster_sources`: of clusters, `comings`: of resources that come, change and go.
//! - `oracle`: the hub and client-go through the same faults, and what each told of every object.
//! - `newcomer`: the way of a new user, command by command, with what it costs the apiservers.
//! - `nats`: a sink and a real `nats-server`, which `tests/testbed/nats/build.sh` builds.
//! - `promtool`: metrics, alert rules and their tests, before Prometheus' own checker, which
//!   `tests/testbed/promtool/build.sh` builds.
//! - `deploy`: chart, overlays and image, before helm, kustomize, BuildKit's rules and an apiserver, with the rights that
//!   they give; `tests/testbed/{helm,kustomize,containerfile,operator}/build.sh` build and fetch what that takes.
//! - `controllers`: tests of the examples that are controllers, which are compiled into this.
//! - `testbed`: tests of the above, without which no other result here would mean anything.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]
mod bed;
mod cluster_sources;
mod comings;
mod controllers;
mod deploy;
#[path = "../../examples/deployment_controller/main.rs"]
#[allow(
    dead_code,
    clippy::duplicate_mod,
    reason = "an example is a program: main is not used, and each has its own common"
)]
mod deployment_controller;
mod fleet;
mod hub;
mod kill;
mod nats;
mod newcomer;
mod oracle;
mod promtool;
mod proxy;
mod rbac;
mod receiver;
#[path = "../../examples/sample_controller/main.rs"]
#[allow(
    dead_code,
    clippy::duplicate_mod,
    reason = "an example is a program: main is not used, and each has its own common"
)]
mod sample_controller;
mod testbed;
