//! Tests of the whole hub over simulated clusters, with real HTTP, real actors and scripted faults.
#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

mod bad_input;
mod bad_protobuf;
mod basics;
mod cluster_removal;
mod cluster_sources;
mod collect;
mod concurrent_users;
mod definitions;
mod deliver;
mod deliver_shares;
mod durable;
mod faults;
mod fleet;
mod http2;
mod informers;
mod invalid_responses;
mod memory;
mod metrics;
mod parity;
mod queries;
mod refused_events;
mod relist;
mod reload;
mod restart;
mod serve;
mod shards;
mod standby;
mod subscriptions;
mod unavailable;
