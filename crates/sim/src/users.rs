//! Users and tokens that reviews are about, as a test has set them.

use std::collections::{BTreeMap, BTreeSet};

/// Users and tokens.
#[derive(Debug, Default)]
pub(super) struct Users {
    /// Users, each with a resource and a namespace that it may read; an empty namespace is all.
    pub(super) allowed: BTreeSet<[String; 3]>,
    /// Users by token.
    pub(super) tokens: BTreeMap<String, String>,
    /// Whether reviews of users and tokens are never answered.
    pub(super) is_silent: bool,
}
