//! Compression dictionaries for objects of common kinds, so that a hub need not train dictionaries on its first lists.
//!
//! The dictionaries are trained on generated objects (`tests/generator`) with the members and usual values of real
//! objects. `make dictionaries` writes the files. There are no dictionaries for Secrets and ConfigMaps, since their
//! contents differ too much.

use std::sync::{Arc, OnceLock};

use informer_hub_types::{Dictionary, Gvr};

/// Encoding of the objects that a dictionary is made for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encoding {
    /// Kubernetes protobuf.
    Protobuf,
    /// JSON.
    Json,
}

/// A resource with built-in dictionaries, one for each encoding.
#[derive(Debug)]
pub struct Kind {
    /// API group.
    pub group: &'static str,
    /// Plural name of the resource.
    pub resource: &'static str,
    /// Size of a dictionary in bytes.
    pub size: usize,
    bytes: [&'static [u8]; 2],
    /// Dictionaries by [`Encoding`], each loaded at its first use.
    loaded: [OnceLock<Arc<Dictionary>>; 2],
}

macro_rules! kinds {
    ($($group:literal $resource:literal $size:literal;)+) => {
        [$(
            Kind {
                group: $group,
                resource: $resource,
                size: $size * 1024,
                bytes: [
                    include_bytes!(concat!("../data/", $resource, ".protobuf.dictionary")),
                    include_bytes!(concat!("../data/", $resource, ".json.dictionary")),
                ],
                loaded: [const { OnceLock::new() }; 2],
            },
        )+]
    };
}

/// All resources with built-in dictionaries.
pub static KINDS: [Kind; 7] = kinds! {
    "" "pods" 32;
    "apps" "deployments" 24;
    "apps" "replicasets" 24;
    "discovery.k8s.io" "endpointslices" 12;
    "" "nodes" 16;
    "" "services" 12;
    "" "events" 12;
};

impl Kind {
    /// Returns the kind of a resource, for any API version; `None` if it has no built-in dictionaries.
    #[must_use]
    pub fn of(gvr: &Gvr) -> Option<&'static Self> {
        KINDS.iter().find(|kind| *kind.group == *gvr.group && *kind.resource == *gvr.resource)
    }

    /// Returns the dictionary for an encoding. The first call loads it; later calls return the same one.
    #[must_use]
    pub fn dictionary(&self, encoding: Encoding) -> Arc<Dictionary> {
        let restore = || Arc::new(Dictionary::restore(self.bytes(encoding).to_vec()).unwrap_or_else(Dictionary::none));
        Arc::clone(self.loaded[encoding as usize].get_or_init(restore))
    }

    /// Returns the bytes of the dictionary for an encoding: the content of its file in this crate.
    #[must_use]
    pub fn bytes(&self, encoding: Encoding) -> &'static [u8] {
        self.bytes[encoding as usize]
    }
}
