//! `informer-hub run` as an operator has it: the built binary as a child, simulated clusters, real receivers.
#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

mod clusters;
mod collector;
mod delivery;
mod durable;
mod manager;
mod metrics;
mod mistakes;
mod plugin;
mod port;
mod process;
mod receiver;
mod reload;
mod secrets;
mod shutdown;
mod state;
mod status;
mod traces;
mod waiting;
