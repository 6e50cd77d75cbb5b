//! Clients that hold all objects of a root, through random changes and restarts of the hub and of the apiservers.
//!
//! # Layout
//! - [`process`]: client-go (`tests/testbed/reader`) and the Python client (`tests/testbed/python`) as processes.
//! - [`kube_rs`]: kube-rs' watchers, in this process.
//! - [`expected`]: the objects that each reader must hold, from fresh lists of the apiservers.

mod convergence;
mod expected;
mod kube_rs;
mod process;
