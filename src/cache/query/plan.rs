//! Chooses the cheapest access path (lookups, key ranges or a scan) to the objects that may match a condition.

use std::borrow::Cow;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use smol_str::{SmolStr, ToSmolStr};

use super::owners::OWNER_INDEX;
use super::view::View;
use crate::snapshot::{Partition, Snapshot};
use crate::visible_ranges::{intersection, is_in};
use informer_hub_query::{Expr, Literal, Test, TextTest};
use informer_hub_types::{FieldPath, ObjectKey, Segment, StoredObject};

/// Lookup that finds objects without a scan.
#[derive(Clone, Debug)]
pub(super) enum Lookup {
    /// The object of a key.
    Key(ObjectKey),
    /// The objects with a value in an index: index name and value.
    Value(SmolStr, SmolStr),
    /// The objects whose keys have this prefix.
    Range(ObjectKey),
}

/// Way to find all objects that may match.
#[derive(Clone, Debug)]
pub(super) enum Access {
    /// All objects.
    Scan,
    /// All objects whose keys have one of these prefixes, in order. No prefix begins with another one.
    Ranges(Vec<ObjectKey>),
    /// Lookups; duplicate objects count once.
    Lookups(Vec<Lookup>),
}

/// An access path with its cost. The unit of cost is scanning one object.
#[derive(Clone, Debug)]
pub(super) struct AccessPath {
    pub(super) access: Access,
    cost: usize,
    /// Approximate number of objects that the path finds.
    pub(super) candidates: usize,
    /// Whether all found objects match, so that they need not be examined.
    pub(super) exact: bool,
}

/// Cost of a lookup, which descends a tree, relative to scanning one object.
const LOOKUP_COST: usize = 20;

/// Number of candidates up to which a query runs on the caller's thread: well under 1 ms.
pub(super) const SHORT: usize = 1_000;

/// Maximum number of keys that are looked up one by one. More are found by ranges or a scan.
const MAX_KEYS: usize = 4_096;

/// Maximum number of objects with an index value that are checked per informer, to count those that the reader may see.
const MAX_VISITED: usize = 16_384;

/// Maximum count of the visible objects with an index value. If the count reaches it, counting ends. The value is then
/// assumed to select half of all visible objects.
const MAX_COUNTED: usize = 2_048;

/// Chooses access paths in one snapshot, for the selected informers.
pub(super) struct Planner<'p, 's> {
    pub(super) snapshot: &'s Snapshot,
    pub(super) view: &'p View<'s>,
}

impl Planner<'_, '_> {
    /// Returns the cheapest access path.
    pub(super) fn best(&self, condition: &Expr) -> AccessPath {
        let way = self.way(condition);
        // A short path is not compared: computing the cost of a scan visits every informer.
        if let Some(way) = way.as_ref().filter(|way| way.candidates <= SHORT) {
            return way.clone();
        }
        let all = self.view.len();
        let scan =
            AccessPath { access: Access::Scan, cost: all, candidates: all, exact: matches!(condition, Expr::All) };
        way.filter(|way| way.cost < scan.cost).unwrap_or(scan)
    }

    fn way(&self, expr: &Expr) -> Option<AccessPath> {
        match expr {
            Expr::And(_) => self.all_of(expr),
            Expr::Or(any) => any.iter().map(|one| self.way(one)).collect::<Option<Vec<_>>>().map(union),
            Expr::Namespace(test) => self.by_key(Some(test), None),
            Expr::Name(test) => self.by_key(None, Some(test)),
            Expr::Field { path, test } => match (head_field(path)?, texts(test)?) {
                (KeyPart::Namespace, test) => self.by_key(Some(&test), None),
                (KeyPart::Name, test) => self.by_key(None, Some(&test)),
            },
            Expr::Index { index, values } => Some(self.by_values(index, values.iter().cloned())),
            Expr::OwnedBy(owner) => {
                self.snapshot.index_fn(OWNER_INDEX)?;
                Some(self.by_values(OWNER_INDEX, std::iter::once(owner.to_smolstr())))
            }
            Expr::All | Expr::Not(_) | Expr::Cluster(_) | Expr::Labels(_) | Expr::Uid(_) => None,
        }
    }

    /// Returns the cheapest access path that a part of an `And` condition allows. Namespace and name together are one
    /// part. `None` if no part has a path, so that a scan is needed.
    fn all_of(&self, expr: &Expr) -> Option<AccessPath> {
        let mut parts = Vec::new();
        flatten(expr, &mut parts);
        let (mut namespace, mut name) = (None, None);
        let mut ways = Vec::new();
        let mut other_parts = 0;
        for part in &parts {
            let key_part = match part {
                Expr::Namespace(test) => Some((KeyPart::Namespace, Cow::Borrowed(test))),
                Expr::Name(test) => Some((KeyPart::Name, Cow::Borrowed(test))),
                Expr::Field { path, test } => head_field(path).zip(texts(test).map(Cow::Owned)),
                _ => None,
            };
            match key_part {
                Some((KeyPart::Namespace, test)) if namespace.is_none() => namespace = Some(test),
                Some((KeyPart::Name, test)) if name.is_none() => name = Some(test),
                _ => {
                    other_parts += 1;
                    ways.extend(self.way(part));
                }
            }
        }
        let by_key = self.by_key(namespace.as_deref(), name.as_deref());
        let whole = |way: AccessPath, exact: bool| AccessPath { exact: way.exact && exact, ..way };
        let by_key = by_key.map(|way| whole(way, other_parts == 0));
        let rest = ways.into_iter().map(|way| whole(way, parts.len() == 1));
        by_key.into_iter().chain(rest).min_by_key(|way| way.cost)
    }

    fn by_values(&self, index: &str, values: impl Iterator<Item = SmolStr>) -> AccessPath {
        let mut candidates = 0;
        let lookups = values
            .inspect(|value| candidates += self.count(index, value))
            .map(|value| Lookup::Value(index.into(), value))
            .collect();
        AccessPath { access: Access::Lookups(lookups), cost: candidates * LOOKUP_COST, candidates, exact: true }
    }

    /// Returns the number of objects with an index value. If the reader may not see all objects, counts only visible
    /// ones, approximately.
    fn count(&self, index: &str, value: &str) -> usize {
        if self.view.sees_all {
            return self.snapshot.indices.count(index, value);
        }
        let Some(posting) = self.snapshot.indices.posting(index, value) else { return 0 };
        let mut counted = 0;
        for (_, member) in self.view.answering() {
            let is_visible = |key: &&ObjectKey| member.ranges.as_ref().is_none_or(|ranges| is_in(ranges, key));
            counted += posting.keys_in(member.id).take(MAX_VISITED).filter(is_visible).take(MAX_COUNTED).count();
            if counted >= MAX_COUNTED {
                return (self.view.len() / 2).max(MAX_COUNTED);
            }
        }
        counted
    }

    fn by_key(&self, namespace: Option<&TextTest>, name: Option<&TextTest>) -> Option<AccessPath> {
        let cluster_scoped = [SmolStr::default()];
        let (namespaces, name) = match (namespace, name) {
            (Some(TextTest::Prefix(prefix)), _) if prefix.is_empty() => return None,
            (Some(TextTest::Prefix(prefix)), _) => {
                // Not exact, because names of cluster-scoped objects may have this prefix too.
                return Some(self.by_ranges(vec![ObjectKey::new("", prefix)], false));
            }
            (Some(TextTest::In(namespaces)), name) => (namespaces.as_slice(), name),
            (None, Some(name)) if !self.snapshot.resource().namespaced => (&cluster_scoped[..], Some(name)),
            (None, _) => return None,
        };
        match name {
            Some(TextTest::In(names)) if namespaces.len() * names.len() <= MAX_KEYS => {
                let keys = namespaces.iter().flat_map(|namespace| names.iter().map(move |name| (namespace, name)));
                let lookups: Vec<_> =
                    keys.map(|(namespace, name)| Lookup::Key(ObjectKey::new(namespace, name))).collect();
                let cost = lookups.len() * LOOKUP_COST * self.view.members.len();
                let candidates = lookups.len() * self.view.members.len();
                Some(AccessPath { access: Access::Lookups(lookups), cost, candidates, exact: false })
            }
            Some(TextTest::In(_)) | None if namespaces.iter().any(SmolStr::is_empty) => None,
            Some(TextTest::In(_)) | None => {
                let ranges = namespaces.iter().map(|namespace| ObjectKey::new(namespace, "")).collect();
                Some(self.by_ranges(ranges, name.is_none()))
            }
            Some(TextTest::Prefix(prefix)) => {
                if prefix.is_empty() && namespaces.iter().any(SmolStr::is_empty) {
                    return None;
                }
                let ranges = namespaces.iter().map(|namespace| ObjectKey::new(namespace, prefix)).collect();
                // Not exact for cluster-scoped objects, because namespaces may begin with the prefix of a name.
                Some(self.by_ranges(ranges, !namespaces.iter().any(SmolStr::is_empty)))
            }
        }
    }

    fn by_ranges(&self, mut ranges: Vec<ObjectKey>, exact: bool) -> AccessPath {
        ranges.sort_unstable();
        ranges.dedup_by(|longer, shorter| longer.as_str().starts_with(shorter.as_str()));
        let mut counted = 0;
        for (_, member) in self.view.answering() {
            let visible = member.ranges.as_ref().map(|visible| intersection(visible, &ranges));
            for range in visible.as_ref().unwrap_or(&ranges) {
                counted += member.partition.len_in(std::slice::from_ref(range));
            }
        }
        AccessPath { access: Access::Ranges(ranges), cost: counted, candidates: counted, exact }
    }
}

/// Returns an access path to all objects that any of the given paths finds.
fn union(ways: Vec<AccessPath>) -> AccessPath {
    let (cost, candidates) = (ways.iter().map(|way| way.cost).sum(), ways.iter().map(|way| way.candidates).sum());
    let exact = ways.iter().all(|way| way.exact);
    let only_ranges = !ways.is_empty() && ways.iter().all(|way| matches!(way.access, Access::Ranges(_)));
    let mut lookups = Vec::new();
    for way in ways {
        match way.access {
            Access::Lookups(more) => lookups.extend(more),
            Access::Ranges(ranges) => lookups.extend(ranges.into_iter().map(Lookup::Range)),
            Access::Scan => unreachable!("a scan is never combined"),
        }
    }
    let access = if only_ranges {
        let range = |lookup| match lookup {
            Lookup::Range(range) => Some(range),
            Lookup::Key(_) | Lookup::Value(..) => None,
        };
        let mut ranges: Vec<_> = lookups.into_iter().filter_map(range).collect();
        ranges.sort_unstable();
        ranges.dedup_by(|longer, shorter| longer.as_str().starts_with(shorter.as_str()));
        Access::Ranges(ranges)
    } else {
        Access::Lookups(lookups)
    };
    AccessPath { access, cost, candidates, exact }
}

fn flatten<'q>(expr: &'q Expr, parts: &mut Vec<&'q Expr>) {
    match expr {
        Expr::And(all) => all.iter().for_each(|one| flatten(one, parts)),
        one => parts.push(one),
    }
}

enum KeyPart {
    Namespace,
    Name,
}

/// Returns the part of an object's key (namespace or name) that a path reads; `None` if the path reads another field.
fn head_field(path: &FieldPath) -> Option<KeyPart> {
    let [Segment::Field(metadata), Segment::Field(field)] = path.segments() else { return None };
    match (metadata.as_str(), field.as_str()) {
        ("metadata", "namespace") => Some(KeyPart::Namespace),
        ("metadata", "name") => Some(KeyPart::Name),
        _ => None,
    }
}

/// Converts a test of a field to a test of a key part. Returns `None` if the test is not an equality or prefix test
/// with non-empty texts.
fn texts(test: &Test) -> Option<TextTest> {
    let part = |literal: &Literal| match literal {
        Literal::Text(part) if !part.is_empty() => Some(part.clone()),
        _ => None,
    };
    match test {
        Test::Is(literal) => part(literal).map(|part| TextTest::In(vec![part])),
        Test::In(literals) => literals.iter().map(part).collect::<Option<_>>().map(TextTest::In),
        Test::Prefix(prefix) if !prefix.is_empty() => Some(TextTest::Prefix(prefix.clone())),
        _ => None,
    }
}

/// How an answer was, or would be, found: the result of [`super::Query::explain`], and part of each answer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// Sources of candidates (objects that may match). The candidates of all sources are examined.
    pub steps: Vec<Step>,
    /// Approximate number of candidates.
    pub candidates: usize,
    /// Parts of each candidate that are examined.
    pub examined: ExaminedParts,
    /// Whether bodies of matches are read for the answer: to sort, to group, or for columns.
    pub reads: bool,
}

/// One source of candidates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// All objects of the selected informers.
    Scan,
    /// Objects whose keys (`namespace/name`) have this prefix.
    Range(ObjectKey),
    /// The object of a key.
    Key(ObjectKey),
    /// Objects with an index value.
    Index {
        /// Name of the index.
        index: SmolStr,
        /// The value.
        value: SmolStr,
    },
}

/// Parts of a candidate that are examined to decide whether it matches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ExaminedParts {
    /// Nothing: every candidate matches.
    #[default]
    Nothing,
    /// The candidate's head (metadata and index values).
    Heads,
    /// The candidate's head and, if that does not decide, its decompressed body.
    Bodies,
}

/// Maximum number of steps that the text form of a plan shows.
const MAX_SHOWN_STEPS: usize = 8;

impl Plan {
    pub(super) fn new(way: &AccessPath, examined: ExaminedParts, reads: bool) -> Self {
        let steps = match &way.access {
            Access::Scan => vec![Step::Scan],
            Access::Ranges(ranges) => ranges.iter().cloned().map(Step::Range).collect(),
            Access::Lookups(lookups) => lookups.iter().map(Step::from).collect(),
        };
        Self { steps, candidates: way.candidates, examined, reads }
    }

    /// Returns whether all objects of the selected informers are examined.
    #[must_use]
    pub fn is_scan(&self) -> bool {
        self.steps.contains(&Step::Scan)
    }
}

impl From<&Lookup> for Step {
    fn from(lookup: &Lookup) -> Self {
        match lookup {
            Lookup::Key(key) => Self::Key(key.clone()),
            Lookup::Range(range) => Self::Range(range.clone()),
            Lookup::Value(index, value) => Self::Index { index: index.clone(), value: value.clone() },
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scan => f.write_str("all objects"),
            Self::Range(range) => write!(f, "key range {range}*"),
            Self::Key(key) => write!(f, "key {key}"),
            Self::Index { index, value } => write!(f, "index {index} = {value:?}"),
        }
    }
}

impl fmt::Display for Plan {
    /// One line, e.g. `index by-node = "n1": about 31 objects; matched on heads`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, step) in self.steps.iter().take(MAX_SHOWN_STEPS).enumerate() {
            write!(f, "{}{step}", if number > 0 { ", " } else { "" })?;
        }
        if self.steps.len() > MAX_SHOWN_STEPS {
            write!(f, " and {} more", self.steps.len() - MAX_SHOWN_STEPS)?;
        }
        if self.steps.is_empty() {
            f.write_str("nothing")?;
        }
        write!(f, ": about {} objects; ", self.candidates)?;
        f.write_str(match self.examined {
            ExaminedParts::Nothing => "all match",
            ExaminedParts::Heads => "matched on heads",
            ExaminedParts::Bodies => "matched on heads, or on decompressed bodies if needed",
        })?;
        if self.reads { f.write_str("; matches are decompressed for the answer") } else { Ok(()) }
    }
}

impl Partition {
    /// Returns the objects whose keys begin with `start`, in key order.
    pub(super) fn beginning_with<'s>(&'s self, start: &'s ObjectKey) -> impl Iterator<Item = &'s Arc<StoredObject>> {
        let begins = move |object: &&Arc<StoredObject>| object.key().as_str().starts_with(start.as_str());
        self.objects.range(Bound::Included(start), Bound::Unbounded).take_while(begins)
    }
}
