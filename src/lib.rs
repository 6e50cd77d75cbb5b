//! informer-hub: one process that watches many Kubernetes clusters so that nothing else has to.

pub mod actors;
pub mod app;
pub mod cache;
pub mod config;
pub mod reflector;
pub mod sim;
pub mod sink;
pub mod source;
pub mod types;
