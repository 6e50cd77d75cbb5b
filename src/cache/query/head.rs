//! An object's head (identity, labels, index values), from which conditions and columns read.

use std::cell::RefCell;

use smol_str::{SmolStr, ToSmolStr};

use super::memo::LabelMemo;
use super::owners::OWNER_INDEX;
use super::view::Member;
use crate::snapshot::Snapshot;
use informer_hub_query::Head;
use informer_hub_types::{ClusterLabels, ClusterName, LabelSelector, StoredObject, Uid};

/// An object's head (metadata and index values), on which a condition is tested without reading the object's body.
#[derive(Clone, Copy)]
pub(super) struct HeadOf<'o, 's> {
    pub(super) snapshot: &'s Snapshot,
    pub(super) member: &'o Member<'s>,
    pub(super) stored: &'o StoredObject,
    pub(super) memo: &'o RefCell<LabelMemo>,
}

impl Head for HeadOf<'_, '_> {
    fn cluster(&self) -> &ClusterName {
        &self.member.partition.origin().cluster
    }

    fn cluster_labels(&self) -> &ClusterLabels {
        &self.member.partition.origin().cluster_labels
    }

    fn namespace(&self) -> &str {
        self.stored.key().namespace().unwrap_or_default()
    }

    fn name(&self) -> &str {
        self.stored.key().name()
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.stored.labels().get(key)
    }

    fn matches_labels(&self, selector: &LabelSelector) -> bool {
        self.memo.borrow_mut().matches(selector, self.stored.labels())
    }

    fn uid(&self) -> &Uid {
        self.stored.uid()
    }

    fn in_index(&self, index: &str, values: &[SmolStr]) -> bool {
        self.snapshot.indices.carries(index, values, self.member.id, self.stored)
    }

    fn owned_by(&self, owner: &Uid) -> Option<bool> {
        self.snapshot.index_fn(OWNER_INDEX)?;
        Some(self.in_index(OWNER_INDEX, &[owner.to_smolstr()]))
    }
}
