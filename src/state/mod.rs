//! What a hub keeps on disk over its restarts.

pub mod caches;
