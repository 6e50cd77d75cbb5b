//! Compression dictionaries for objects of common kinds, so that a first list needs no training.
//!
//! The dictionaries are trained on generated objects (`tests/generator`) with the members and usual values of real
//! ones. `make dictionaries` writes the files. Secrets and ConfigMaps have none, since their contents differ too much.

use std::sync::{Arc, OnceLock};

use informer_hub_types::{Dictionary, Gvr};

/// A resource with a built-in dictionary.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// API group.
    pub group: &'static str,
    /// Plural name of the resource.
    pub resource: &'static str,
    /// Size of the dictionary in bytes.
    pub size: usize,
    bytes: &'static [u8],
}

macro_rules! kinds {
    ($($group:literal $resource:literal $size:literal;)+) => {
        /// All resources with a built-in dictionary.
        pub const KINDS: &[Kind] = &[$(
            Kind {
                group: $group,
                resource: $resource,
                size: $size * 1024,
                bytes: include_bytes!(concat!("../data/", $resource, ".dictionary")),
            },
        )+];
    };
}

kinds! {
    "" "pods" 32;
    "apps" "deployments" 24;
    "apps" "replicasets" 24;
    "discovery.k8s.io" "endpointslices" 12;
    "" "nodes" 16;
    "" "services" 12;
    "" "events" 12;
}

static DICTIONARIES: [OnceLock<Arc<Dictionary>>; KINDS.len()] = [const { OnceLock::new() }; KINDS.len()];

/// Returns the built-in compression dictionary of a resource, for any API version; `None` if there is none. The first
/// call loads the dictionary, which all later calls share.
#[must_use]
pub fn builtin(gvr: &Gvr) -> Option<Arc<Dictionary>> {
    let at = KINDS.iter().position(|kind| *kind.group == *gvr.group && *kind.resource == *gvr.resource)?;
    let digest = || Arc::new(Dictionary::restore(KINDS[at].bytes.to_vec()).unwrap_or_else(Dictionary::none));
    Some(Arc::clone(DICTIONARIES[at].get_or_init(digest)))
}

/// Returns the bytes of a dictionary, as they are in the repository.
#[must_use]
pub fn builtin_bytes(kind: &Kind) -> &'static [u8] {
    kind.bytes
}
