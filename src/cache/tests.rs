//! The contract of the module, clause by clause, and as properties of random histories.

mod builds;
mod churn;
mod controller;
mod fifo;
mod fifo_model;
mod index_model;
mod indexer;
mod listener;
mod listener_model;
mod lister;
mod packing;
mod query;
mod query_engine;
mod query_fields;
mod query_model;
mod query_owners;
mod query_plan;
mod query_questions;
mod restore;
mod resync;
mod store;
mod store_model;
mod trees;
mod watermark;
mod world;
mod world_model;
