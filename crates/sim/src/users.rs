//! Users and tokens that a test has set, by which access and token reviews are answered.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub(super) struct Users {
    /// Users, each with a resource and a namespace that it may read. An empty namespace means all namespaces.
    pub(super) allowed: BTreeSet<[String; 3]>,
    pub(super) tokens: BTreeMap<String, String>,
    /// Whether access reviews of users and token reviews get no answer.
    pub(super) is_silent: bool,
}
