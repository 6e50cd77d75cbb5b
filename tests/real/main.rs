//! Test suite against real apiservers. Each test starts its own clusters on loopback (`tests/testbed`).
//!
//! Run it with `cargo test --test real`. It needs Go, and builds the test bed when out of date.
//!
//! # Layout
//! - [`bed`]: clusters, their objects, random changes, and the ground truth by a fresh list.
//! - [`proxy`]: a fault-injecting TCP proxy between a client and an apiserver.
//! - [`fixture`], [`receiver`]: a hub over such clusters, with a subscriber and a webhook receiver that check
//!   notifications.
//! - `hub`: tests of the hub.
//! - `connections`: connections over HTTP/2, with GOAWAYs and a restart.
//! - `cluster_sources`: clusters that Secrets of a management cluster define.
//! - `resource_lifecycle`: custom resources that are defined, changed, deleted and redefined.
//! - `kill`: the hub process, killed repeatedly.
//! - `rbac`: the rights that `informer-hub rbac` prints.
//! - `rights`: readers whose rights are those of the clusters, by service accounts and an OpenID Connect issuer.
//! - `oracle`: the hub and client-go under the same faults, with their notifications compared.
//! - [`workdir`]: a user's folder, in which commands and the hub run as processes.
//! - `new_user`: the documented first steps of a new user, and their cost for the apiservers.
//! - `read_api`: clients of the Kubernetes read API, and its comparison with the apiserver's answers.
//! - `protobuf`: the schema of built-in types, and conversion of many objects that apimachinery wrote.
//! - `nats`: the NATS sink with a real `nats-server`, which `tests/testbed/nats/build.sh` builds ([`nats_server`]).
//! - `fleet`: hub processes that share clusters through a real `nats-server`.
//! - `deliver`: hub processes of such a fleet of which one delivers, and is killed.
//! - `chaos`: such a fleet on a cluster of NATS servers ([`nats_servers`]), under a random schedule of faults.
//! - `promtool`: metrics, alert rules and rule tests, checked by `promtool`, which `tests/testbed/promtool/build.sh`
//!   builds.
//! - `deploy`: chart, overlays and image, checked with helm, kustomize, BuildKit's linter and an apiserver, and their
//!   rights. `tests/testbed/{helm,kustomize,containerfile,operator}/build.sh` build or fetch the tools.
//! - `controllers`: tests of the example controllers, which are compiled into this suite.
//! - `testbed`: tests of the test bed itself.

#![allow(clippy::unwrap_used, reason = "a test may panic")]
mod bed;
mod chaos;
mod cluster_sources;
mod connections;
mod controllers;
mod deliver;
mod deploy;
#[path = "../../examples/deployment_controller/main.rs"]
#[allow(
    dead_code,
    clippy::duplicate_mod,
    reason = "an example is a program: main is not used, and each has its own common"
)]
mod deployment_controller;
mod fixture;
mod fleet;
mod hub;
mod kill;
mod nats;
mod nats_server;
#[path = "../../crates/fleet/tests/nats/server.rs"]
#[allow(dead_code, reason = "the tests of the log use more of it")]
mod nats_servers;
mod new_user;
mod oracle;
mod promtool;
mod protobuf;
mod proxy;
mod rbac;
mod read_api;
mod receiver;
mod resource_lifecycle;
mod rights;
#[path = "../../examples/sample_controller/main.rs"]
#[allow(
    dead_code,
    clippy::duplicate_mod,
    reason = "an example is a program: main is not used, and each has its own common"
)]
mod sample_controller;
mod shards;
mod testbed;
mod workdir;
