//! Audit log of requests, in the form of `audit.k8s.io/v1`.
//!
//! - [`Event`] is one line: the user, the request, and the decision. It has no field for a body.
//! - [`Policy`] decides by rules whether a request is logged.
//! - [`request_uri`] and [`user_agent`] remove credentials from what a client has sent.
//! - [`AuditLog`] queues lines, and writes them on a thread of its own. It never delays a request: if the output is slow or
//!   fails, lines are dropped and counted.
//!
//! This crate has no code for HTTP: the hub's HTTP server describes requests to it.

mod event;
mod ids;
mod log;
mod output;
mod policy;
mod queue;
mod redact;

pub use event::{Event, ObjectRef, Stage, User};
pub use ids::AuditIds;
pub use log::{AuditCounts, AuditLog, AuditLogOptions};
pub use output::{FileOutput, Output, StandardOutput};
pub use policy::{Facts, Level, Pattern, Policy, PolicyRule, ResourceName};
pub use redact::{decoded_path, request_uri, user_agent};
