//! Resources to watch: group, version, resource, and the scope of a watch.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use smol_str::SmolStr;

/// Group, version and plural resource. The core group is empty.
///
/// Displayed without its version, as kubectl prints it (`pods`, `deployments.apps`); [`Self::long`] includes all three.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Gvr {
    /// API group; empty for the core group.
    pub group: SmolStr,
    /// API version, e.g. `v1`.
    pub version: SmolStr,
    /// Plural resource name, e.g. `pods`.
    pub resource: SmolStr,
}

impl Gvr {
    /// Creates a GVR from its parts.
    #[must_use]
    pub fn new(group: &str, version: &str, resource: &str) -> Self {
        Self { group: group.into(), version: version.into(), resource: resource.into() }
    }

    /// Returns the value of `apiVersion`: `group/version`, or `version` for the core group.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_string() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Returns `resource.version.group`, kubectl's full form (`pods.v1.`, `deployments.v1.apps`).
    #[must_use]
    pub fn long(&self) -> String {
        format!("{}.{}.{}", self.resource, self.version, self.group)
    }
}

impl fmt::Display for Gvr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() { f.pad(&self.resource) } else { f.pad(&format!("{}.{}", self.resource, self.group)) }
    }
}

impl Serialize for Gvr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A resource as discovery describes it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ApiResource {
    /// Group, version, resource.
    pub gvr: Gvr,
    /// Kind of one object, e.g. `Pod`.
    pub kind: SmolStr,
    /// Whether objects of the resource are namespaced.
    pub namespaced: bool,
}

/// Reference to a resource as typed by a user, `plural[.version].group`, before discovery.
///
/// Examples: `pods`, `deployments.apps`, `deployments.v1.apps`, `widgets.v1alpha1.example.com`. As in kubectl, the
/// second part is a version if it looks like one (`v1`, `v1beta2`).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ResourceRef {
    /// Plural name (discovery also accepts the singular and the short names).
    pub resource: SmolStr,
    /// Version, if given; otherwise discovery's preferred version applies.
    pub version: Option<SmolStr>,
    /// Group, if given; otherwise the first group with the resource applies, the core group first.
    pub group: Option<SmolStr>,
}

/// Error for text that is not a resource; the caller's input is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a resource: write it as kubectl does, e.g. \"pods\", \"deployments.apps\" or \"widgets.v1.example.com\""
)]
pub struct InvalidResource(
    /// The invalid text.
    pub String,
);

impl ResourceRef {
    /// Returns a reference with the plural, version and group of `gvr`.
    #[must_use]
    pub fn exact(gvr: &Gvr) -> Self {
        Self { resource: gvr.resource.clone(), version: Some(gvr.version.clone()), group: Some(gvr.group.clone()) }
    }
}

impl FromStr for ResourceRef {
    type Err = InvalidResource;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || InvalidResource(text.to_owned());
        let label = |part: &str| {
            !part.is_empty()
                && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
                && !part.starts_with('-')
                && !part.ends_with('-')
        };
        let (resource, rest) = text.split_once('.').map_or((text, None), |(a, b)| (a, Some(b)));
        if !label(resource) {
            return Err(wrong());
        }
        let Some(rest) = rest else {
            return Ok(Self { resource: resource.into(), version: None, group: None });
        };
        let (first, tail) = rest.split_once('.').map_or((rest, None), |(a, b)| (a, Some(b)));
        let (version, group) = match (is_version(first), tail) {
            (true, Some(group)) => (Some(first.into()), group),
            (true, None) => (Some(first.into()), ""),
            (false, _) => (None, rest),
        };
        if !group.is_empty() && !group.split('.').all(label) {
            return Err(wrong());
        }
        Ok(Self { resource: resource.into(), version, group: Some(group.into()) })
    }
}

/// Returns whether the text has Kubernetes' form of a version: `v1`, `v2beta1`, `v1alpha3`.
fn is_version(text: &str) -> bool {
    let Some(rest) = text.strip_prefix('v') else { return false };
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 {
        return false;
    }
    let stage = &rest[digits..];
    let number = stage.strip_prefix("alpha").or_else(|| stage.strip_prefix("beta"));
    stage.is_empty() || number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

impl fmt::Display for ResourceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.resource)?;
        if let Some(version) = &self.version {
            write!(f, ".{version}")?;
        }
        match &self.group {
            Some(group) if !group.is_empty() => write!(f, ".{group}"),
            _ => Ok(()),
        }
    }
}

/// Form in which an informer keeps objects.
///
/// Informers with different views share nothing and have separate caches, so that a reader of whole objects never finds
/// a partial one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum View {
    /// Objects with the fields that the configuration keeps, by default all. Shared by all subscribers that request no
    /// other view.
    #[default]
    Shared,
    /// Whole objects, even if the configuration keeps only a part of each object.
    Whole,
    /// `metadata` only, requested from the apiserver as PartialObjectMetadata.
    Metadata,
    /// The result of one subscriber's transform function, under a unique name.
    Private(SmolStr),
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shared => f.write_str("shared"),
            Self::Whole => f.write_str("whole"),
            Self::Metadata => f.write_str("metadata"),
            Self::Private(name) => f.write_str(name),
        }
    }
}

/// Part of a resource that an informer watches. Informers of the same resource differ in their scope.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Scope {
    /// One namespace; `None` for all, and for cluster-scoped resources.
    pub namespace: Option<SmolStr>,
    /// Label selector sent to the apiserver, in kubectl's syntax.
    pub label_selector: Option<Arc<str>>,
    /// Field selector sent to the apiserver, in kubectl's syntax.
    pub field_selector: Option<Arc<str>>,
    /// Form in which the objects are kept.
    pub view: View,
}

impl Scope {
    /// Returns the scope of all objects of the resource.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// Returns the scope of all objects in one namespace.
    #[must_use]
    pub fn namespace(namespace: &str) -> Self {
        Self { namespace: Some(namespace.into()), ..Self::default() }
    }

    /// Returns the same scope with another view (form in which the objects are kept).
    #[must_use]
    pub fn with_view(self, view: View) -> Self {
        Self { view, ..self }
    }

    /// Returns whether this scope certainly includes all objects of `other` in the same form. Selectors are compared as
    /// text.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let namespace = self.namespace.is_none() || self.namespace == other.namespace;
        let labels = self.label_selector.is_none() || self.label_selector == other.label_selector;
        let fields = self.field_selector.is_none() || self.field_selector == other.field_selector;
        namespace && labels && fields && self.view == other.view
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.namespace.as_deref().unwrap_or("*"))?;
        if let Some(selector) = &self.label_selector {
            write!(f, " -l {selector}")?;
        }
        if let Some(selector) = &self.field_selector {
            write!(f, " --field-selector {selector}")?;
        }
        if self.view != View::Shared {
            write!(f, " ({})", self.view)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_ref_parses_like_kubectl() {
        let parts = |text: &str| {
            let r: ResourceRef = text.parse().unwrap();
            (r.resource.to_string(), r.version.map(|v| v.to_string()), r.group.map(|g| g.to_string()))
        };
        let some = |s: &str| Some(s.to_owned());
        assert_eq!(parts("pods"), ("pods".into(), None, None));
        assert_eq!(parts("pods.v1"), ("pods".into(), some("v1"), some("")));
        assert_eq!(parts("deployments.apps"), ("deployments".into(), None, some("apps")));
        assert_eq!(parts("deployments.v1.apps"), ("deployments".into(), some("v1"), some("apps")));
        assert_eq!(parts("ws.v1alpha1.example.com"), ("ws".into(), some("v1alpha1"), some("example.com")));
        assert_eq!(parts("ws.vendor.example.com"), ("ws".into(), None, some("vendor.example.com")));
        for bad in ["", ".", "Pods", "a b", "pods.apps.", "-a"] {
            assert!(bad.parse::<ResourceRef>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn wider_scope_covers_a_narrower_one() {
        let shop = Scope::namespace("shop");
        assert!(Scope::all().covers(&shop));
        assert!(shop.covers(&shop));
        assert!(!shop.covers(&Scope::all()));
        let web = Scope { label_selector: Some("app=web".into()), ..Scope::all() };
        assert!(Scope::all().covers(&web) && !web.covers(&Scope::all()));
    }
}
