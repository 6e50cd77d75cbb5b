//! Selection of objects by namespace, name, labels and fields.

use smol_str::SmolStr;

use super::fields::{Field, field_of};
use super::objects::Candidates;
use crate::cache::Snapshot;
use informer_hub_kubeapi::{CLUSTER_KEY, FieldSelector, Reason, Status};
use informer_hub_query::Extractor;
use informer_hub_types::{
    ClusterName, FieldPath, LabelNeeds, LabelSelector, MAX_QUOTED, Members, ObjectKey, Requirement, StoredObject,
    shortened,
};

/// Conditions of a request on objects, prepared for evaluation.
#[derive(Debug)]
pub(super) struct Selection {
    namespace: Option<SmolStr>,
    name: Option<SmolStr>,
    labels: LabelSelector,
    needs: LabelNeeds,
    /// Whether label selectors also match the name of an object's cluster, as if it were a label of the object.
    is_fleet: bool,
    terms: Vec<Term>,
    extractor: Extractor,
    members: Members,
    paths: Vec<FieldPath>,
}

/// A condition on a field.
#[derive(Debug)]
struct Term {
    source: Source,
    value: SmolStr,
    is_equal: bool,
}

/// Where the value of a field is read.
#[derive(Debug)]
enum Source {
    Name,
    Namespace,
    Cluster,
    /// Index of the first path in `Selection::paths`, number of paths, and default value. The field's value is the
    /// first value found at these paths, or else the default.
    Paths(usize, usize, &'static str),
}

/// Conditions of a request on objects, before they are prepared.
#[derive(Clone, Copy, Debug)]
pub(super) struct SelectionRequest<'a> {
    pub(super) namespace: Option<&'a SmolStr>,
    pub(super) name: Option<&'a SmolStr>,
    pub(super) labels: &'a LabelSelector,
    pub(super) fields: &'a FieldSelector,
    /// Whether the URL root covers several clusters. Field selectors may then name `metadata.cluster`.
    pub(super) is_fleet: bool,
    /// `selectableFields` of a custom resource.
    pub(super) selectable: &'a [String],
}

impl Selection {
    /// Prepares a selection.
    ///
    /// # Errors
    /// [`Status`] of code 400 for a field that the resource cannot be selected by.
    pub(super) fn new(wanted: SelectionRequest<'_>, snapshot: &Snapshot) -> Result<Self, Status> {
        let (mut terms, mut paths) = (Vec::new(), Vec::new());
        for term in &wanted.fields.terms {
            let field = field_of(snapshot.resource(), &term.field, wanted.selectable, wanted.is_fleet)
                .or_else(|| indexed(snapshot, &term.field))
                .ok_or_else(|| unknown_field(&term.field))?;
            let source = match field {
                Field::Name => Source::Name,
                Field::Namespace => Source::Namespace,
                Field::Cluster => Source::Cluster,
                Field::Paths(of, default) => {
                    let first = paths.len();
                    paths.extend(of);
                    Source::Paths(first, paths.len() - first, default)
                }
            };
            terms.push(Term { source, value: term.value.clone(), is_equal: term.is_equal });
        }
        Ok(Self {
            namespace: wanted.namespace.cloned(),
            name: wanted.name.cloned(),
            labels: wanted.labels.clone(),
            needs: needs_of(wanted.labels, wanted.is_fleet),
            is_fleet: wanted.is_fleet,
            terms,
            extractor: Extractor::new(&paths),
            members: Members::new(&paths),
            paths,
        })
    }

    /// Returns whether every object is selected.
    pub(super) fn is_everything(&self) -> bool {
        self.namespace.is_none() && self.name.is_none() && !self.has_selectors()
    }

    /// Returns whether the selection has conditions on labels or fields.
    pub(super) fn has_selectors(&self) -> bool {
        !self.labels.is_empty() || !self.terms.is_empty()
    }

    /// Returns the namespace of the selected objects; `None` if the selection is not limited to one namespace.
    fn namespace(&self) -> Option<&str> {
        // An empty value selects objects without a namespace.
        let by_field = || self.equal(|source| matches!(source, Source::Namespace)).filter(|value| !value.is_empty());
        self.namespace.as_deref().or_else(by_field)
    }

    /// Returns whether no object of a namespace is selected.
    pub(super) fn excludes_namespace(&self, namespace: &str) -> bool {
        self.namespace().is_some_and(|wanted| wanted != namespace)
    }

    /// Returns conditions that all selected objects meet, so that other objects can be skipped before they are decoded.
    pub(super) fn candidates(&self) -> Candidates<'_> {
        let field = self.terms.iter().find_map(|term| match term.source {
            Source::Paths(first, 1, default) if term.is_equal && term.value != default => {
                is_index_form(&term.value).then_some((self.paths.get(first)?, term.value.as_str()))
            }
            _ => None,
        });
        Candidates { namespace: self.namespace(), needs: &self.needs, field }
    }

    /// Returns the key of the only object per cluster that can be selected. `None` unless the selection names an object
    /// and, for namespaced resources, its namespace.
    pub(super) fn key(&self, namespaced: bool, cluster_prefix: Option<&ClusterName>) -> Option<ObjectKey> {
        let name = self.name.as_deref().or_else(|| self.equal(|source| matches!(source, Source::Name)))?;
        let name = match cluster_prefix {
            Some(cluster) => name.strip_prefix(cluster.as_str())?.strip_prefix(':')?,
            None => name,
        };
        if namespaced { Some(ObjectKey::new(self.namespace()?, name)) } else { Some(ObjectKey::new("", name)) }
    }

    fn equal(&self, is_of: impl Fn(&Source) -> bool) -> Option<&str> {
        self.terms.iter().find(|term| term.is_equal && is_of(&term.source)).map(|term| term.value.as_str())
    }

    /// Returns whether an object is selected. An object whose stored JSON (body) is not in memory has the default
    /// values of all fields but name, namespace and cluster. `is_unique` is set if names include the cluster.
    pub(super) fn matches(&self, object: &StoredObject, cluster: &ClusterName, is_unique: bool) -> bool {
        let key = object.key();
        if self.namespace.as_ref().is_some_and(|wanted| key.namespace() != Some(wanted.as_str())) {
            return false;
        }
        let is_named = |wanted: &str| {
            if !is_unique {
                return key.name() == wanted;
            }
            let rest = wanted.strip_prefix(cluster.as_str()).and_then(|rest| rest.strip_prefix(':'));
            rest == Some(key.name())
        };
        if self.name.as_ref().is_some_and(|wanted| !is_named(wanted)) {
            return false;
        }
        let label = |label: &str| match label {
            CLUSTER_KEY if self.is_fleet => Some(cluster.as_str()),
            _ => object.labels().get(label),
        };
        if !self.labels.is_empty() && !self.labels.matches(label) {
            return false;
        }
        let of_head = |term: &Term| match term.source {
            Source::Name => Some(is_named(&term.value) == term.is_equal),
            Source::Namespace => Some((key.namespace().unwrap_or_default() == term.value) == term.is_equal),
            Source::Cluster => Some((cluster.as_str() == term.value) == term.is_equal),
            Source::Paths(..) => None,
        };
        if self.terms.iter().any(|term| of_head(term) == Some(false)) {
            return false;
        }
        self.paths.is_empty() || self.matches_body(object)
    }

    fn matches_body(&self, object: &StoredObject) -> bool {
        let values = object.json_with(&self.members).ok().and_then(|json| self.extractor.extract(&json).ok());
        let text_at = |first: usize, count: usize, default: &'static str| {
            let values = values.as_ref()?;
            let found = values.get(first..first + count)?.iter().find_map(|values| values.first().map(text));
            Some(found.filter(|text| !text.is_empty()).unwrap_or_else(|| default.to_owned()))
        };
        self.terms.iter().all(|term| match term.source {
            Source::Paths(first, count, default) => {
                let value = text_at(first, count, default).unwrap_or_else(|| default.to_owned());
                (value == term.value.as_str()) == term.is_equal
            }
            Source::Name | Source::Namespace | Source::Cluster => true,
        })
    }
}

/// Returns the bits that the label filter (a Bloom filter) of each selected object must have. Ignores the label with
/// the cluster's name, which is added at URL roots of several clusters and is not in the filter.
fn needs_of(labels: &LabelSelector, is_fleet: bool) -> LabelNeeds {
    let is_stored = |requirement: &&Requirement| !(is_fleet && requirement.key == CLUSTER_KEY);
    LabelNeeds::of(&labels.requirements().iter().filter(is_stored).cloned().collect())
}

/// Returns the text that a field selector compares: strings as they are, numbers and booleans as JSON.
fn text(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// Returns whether the index of a field finds all objects with this value.
///
/// False for numbers that an object may store in another notation than [`text`] writes. Also false for an empty text,
/// arrays and objects.
fn is_index_form(value: &str) -> bool {
    let is_plain_integer = value.len() < 16 && !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let is_number = || value.parse::<f64>().is_ok();
    !value.is_empty() && !value.starts_with(['[', '{']) && (is_plain_integer || !is_number())
}

/// Returns the field with the path `field`; `None` unless the cache has an index of it. Indexed fields can be used in
/// field selectors in addition to the fields that kube-apiserver allows.
fn indexed(snapshot: &Snapshot, field: &str) -> Option<Field> {
    let path: FieldPath = field.parse().ok()?;
    snapshot.has_index_of(&path).then(|| Field::Paths(vec![path], ""))
}

fn unknown_field(field: &str) -> Status {
    Status::new(400, Reason::BadRequest, format!("field label not supported: {}", shortened(field, MAX_QUOTED)))
}
