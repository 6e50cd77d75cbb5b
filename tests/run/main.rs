//! Tests of `informer-hub run`: the built binary as a child process, with simulated clusters and real receivers.
#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

mod audit;
mod client;
mod clusters;
mod completion;
mod credential_plugin;
mod delivery;
mod durable;
mod fleet_watch;
mod get;
mod http_port;
mod invalid_config;
mod kubeconfig;
mod metrics;
mod otlp_collector;
mod process;
mod query;
mod reader_rules;
mod readers;
mod receiver;
mod reload;
mod screens;
mod secrets;
mod service_manager;
mod shutdown;
mod state;
mod status;
mod terminal;
mod traces;
mod wait;
mod watch;
mod ways_out;
