//! Queries and their answers, snapshots, listers and indexers of the cache of one resource in all clusters.

pub use crate::cache::{
    AddIndexersError, Answer, Group, IndexError, IndexFn, IndexReader, Indexer, IndexerConflict, Indexers, Lister,
    NamespaceLister, NotFound, ObjectError, OwnerChain, Partition, Plan, Query, QueryError, Snapshot,
};
