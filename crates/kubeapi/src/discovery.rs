//! Discovery documents, plain and aggregated.

use informer_hub_types::ApiResource;
use smol_str::SmolStr;

use crate::{Document, Form};

/// A resource that is served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Served {
    /// Group, version, plural name, kind, scope.
    pub resource: ApiResource,
    /// Singular name.
    pub singular: SmolStr,
    /// Short names.
    pub short_names: Vec<SmolStr>,
    /// Categories, such as `all`.
    pub categories: Vec<SmolStr>,
}

/// Version of a server, for `/version`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServedVersion {
    /// Such as `v1.36.3`.
    pub git_version: String,
    /// Such as `1`.
    pub major: String,
    /// Such as `36`.
    pub minor: String,
}

/// Returns the JSON of a discovery document: [`Document::CoreVersions`], [`Document::Groups`], [`Document::Group`] or
/// [`Document::Resources`]. `None` if nothing of the group or version is served. Within a group, versions come in
/// Kubernetes' order of priority, the preferred first.
#[must_use]
pub fn discovery_document(document: &Document, form: Form, served: &[Served]) -> Option<Vec<u8>> {
    let _ = (document, form, served);
    None
}

/// Returns the JSON of `/version`.
#[must_use]
pub fn version_document(version: &ServedVersion) -> Vec<u8> {
    let _ = version;
    Vec::new()
}

impl Served {
    /// Returns a resource with the names that Kubernetes gives it. A resource that is not built in has its lowercase
    /// kind as singular name, no short names and no categories.
    #[must_use]
    pub fn of(resource: &ApiResource) -> Self {
        let singular = SmolStr::new(resource.kind.to_lowercase());
        Self { resource: resource.clone(), singular, short_names: Vec::new(), categories: Vec::new() }
    }
}
