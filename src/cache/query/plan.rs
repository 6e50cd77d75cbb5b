//! Where to look for the objects that a condition may hold for.

use std::borrow::Cow;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use smol_str::{SmolStr, ToSmolStr};

use super::OWNER_INDEX;
use super::job::SHORT;
use super::view::View;
use crate::cache::snapshot::{Partition, Snapshot};
use informer_hub_query::{Expr, Literal, Test, TextTest};
use informer_hub_types::{FieldPath, ObjectKey, Segment, StoredObject};

/// One way to some objects.
#[derive(Clone, Debug)]
pub(super) enum Lookup {
    /// The object of this key.
    Key(ObjectKey),
    /// The objects that carry a value in an index.
    Value(SmolStr, SmolStr),
    /// The objects whose keys begin with this one.
    Range(ObjectKey),
}

/// All that a condition may hold for.
#[derive(Clone, Debug)]
pub(super) enum Access {
    /// Every object.
    Scan,
    /// Keys that begin so, in order; none begins with another.
    Ranges(Vec<ObjectKey>),
    /// These, by key; what is found twice counts once.
    Lookups(Vec<Lookup>),
}

/// A way, and what it costs: in objects that are walked over.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub(super) access: Access,
    cost: usize,
    /// About how many objects lie on it.
    pub(super) candidates: usize,
    /// Whether the condition holds for all that lie on it.
    pub(super) exact: bool,
}

/// What a look-up costs more than the next object of a walk: a path down a tree.
const LOOKUP: usize = 20;

/// More keys than this are not looked up one by one.
const MAX_KEYS: usize = 4_096;

/// Up to how many objects of a range are counted to know what it costs; a larger one is taken to be half of everything.
const COUNTED: usize = 2_048;

/// Finds ways in one snapshot, among the informers that are asked.
pub(super) struct Planner<'p, 's> {
    pub(super) snapshot: &'s Snapshot,
    pub(super) view: &'p View<'s>,
}

impl Planner<'_, '_> {
    /// The cheapest way.
    pub(super) fn best(&self, condition: &Expr) -> Way {
        let way = self.way(condition);
        // What is short is not compared: to know what a scan costs is a look at every informer.
        if let Some(way) = way.as_ref().filter(|way| way.candidates <= SHORT) {
            return way.clone();
        }
        let all = self.view.len();
        let scan = Way { access: Access::Scan, cost: all, candidates: all, exact: matches!(condition, Expr::All) };
        way.filter(|way| way.cost < scan.cost).unwrap_or(scan)
    }

    fn way(&self, expr: &Expr) -> Option<Way> {
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

    /// The cheapest of the parts; namespace and name are one.
    fn all_of(&self, expr: &Expr) -> Option<Way> {
        let mut parts = Vec::new();
        flatten(expr, &mut parts);
        let (mut namespace, mut name) = (None, None);
        let mut ways = Vec::new();
        let mut others = 0;
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
                    others += 1;
                    ways.extend(self.way(part));
                }
            }
        }
        let by_key = self.by_key(namespace.as_deref(), name.as_deref());
        let whole = |way: Way, exact: bool| Way { exact: way.exact && exact, ..way };
        let by_key = by_key.map(|way| whole(way, others == 0));
        let rest = ways.into_iter().map(|way| whole(way, parts.len() == 1));
        by_key.into_iter().chain(rest).min_by_key(|way| way.cost)
    }

    fn by_values(&self, index: &str, values: impl Iterator<Item = SmolStr>) -> Way {
        let mut candidates = 0;
        let lookups = values
            .inspect(|value| candidates += self.snapshot.indices.count(index, value))
            .map(|value| Lookup::Value(index.into(), value))
            .collect();
        Way { access: Access::Lookups(lookups), cost: candidates * LOOKUP, candidates, exact: true }
    }

    fn by_key(&self, namespace: Option<&TextTest>, name: Option<&TextTest>) -> Option<Way> {
        let cluster_scoped = [SmolStr::default()];
        let (namespaces, name) = match (namespace, name) {
            (Some(TextTest::Prefix(prefix)), _) if prefix.is_empty() => return None,
            (Some(TextTest::Prefix(prefix)), _) => {
                // Names of objects without a namespace may begin so too.
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
                let cost = lookups.len() * LOOKUP * self.view.members.len();
                let candidates = lookups.len() * self.view.members.len();
                Some(Way { access: Access::Lookups(lookups), cost, candidates, exact: false })
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
                // A cluster-scoped prefix also begins namespaces.
                Some(self.by_ranges(ranges, !namespaces.iter().any(SmolStr::is_empty)))
            }
        }
    }

    fn by_ranges(&self, mut ranges: Vec<ObjectKey>, exact: bool) -> Way {
        ranges.sort_unstable();
        ranges.dedup_by(|longer, shorter| longer.as_str().starts_with(shorter.as_str()));
        let mut counted = 0;
        for (_, member) in self.view.speakers() {
            for range in &ranges {
                counted += member.partition.beginning_with(range).take(COUNTED - counted).count();
            }
            if counted == COUNTED {
                counted = (self.view.len() / 2).max(COUNTED);
                break;
            }
        }
        Way { access: Access::Ranges(ranges), cost: counted, candidates: counted, exact }
    }
}

/// All that lies on any of the ways.
fn union(ways: Vec<Way>) -> Way {
    let (cost, candidates) = (ways.iter().map(|way| way.cost).sum(), ways.iter().map(|way| way.candidates).sum());
    let exact = ways.iter().all(|way| way.exact);
    let only_ranges = !ways.is_empty() && ways.iter().all(|way| matches!(way.access, Access::Ranges(_)));
    let mut lookups = Vec::new();
    for way in ways {
        match way.access {
            Access::Lookups(more) => lookups.extend(more),
            Access::Ranges(ranges) => lookups.extend(ranges.into_iter().map(Lookup::Range)),
            Access::Scan => unreachable!("a scan is no way: it is what is left without one"),
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
    Way { access, cost, candidates, exact }
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

/// Which part of a key a path leads to.
fn head_field(path: &FieldPath) -> Option<KeyPart> {
    let [Segment::Field(metadata), Segment::Field(field)] = path.segments() else { return None };
    match (metadata.as_str(), field.as_str()) {
        ("metadata", "namespace") => Some(KeyPart::Namespace),
        ("metadata", "name") => Some(KeyPart::Name),
        _ => None,
    }
}

/// A test of a text that is not empty, where it is one of [`TextTest`]'s.
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

/// How an answer was found, or would be: what [`super::Query::explain`] gives, and each answer has.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// Where candidates come from; more than one are put together.
    pub steps: Vec<Step>,
    /// About how many objects that is.
    pub candidates: usize,
    /// What is looked at of each.
    pub looks: Looks,
    /// Whether what is found is read for the answer: to sort, to group, or for columns.
    pub reads: bool,
}

/// One way to candidates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Every object of the informers asked.
    Scan,
    /// Those whose keys (`namespace/name`) begin so.
    Range(ObjectKey),
    /// That of a key.
    Key(ObjectKey),
    /// Those that carry a value in an index.
    Index {
        /// The index.
        index: SmolStr,
        /// The value.
        value: SmolStr,
    },
}

/// What is looked at of a candidate, to know whether it matches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Looks {
    /// Nothing: each matches.
    #[default]
    Nothing,
    /// Its head.
    Heads,
    /// Its head, and where that does not decide, its bytes: decompressed, and read as far as it takes.
    Bodies,
}

/// Steps that a plan shows as text.
const SHOWN: usize = 8;

impl Plan {
    pub(super) fn new(way: &Way, looks: Looks, reads: bool) -> Self {
        let steps = match &way.access {
            Access::Scan => vec![Step::Scan],
            Access::Ranges(ranges) => ranges.iter().cloned().map(Step::Range).collect(),
            Access::Lookups(lookups) => lookups.iter().map(Step::from).collect(),
        };
        Self { steps, candidates: way.candidates, looks, reads }
    }

    /// Whether every object of the informers asked is looked at.
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
            Self::Range(range) => write!(f, "keys from {range}*"),
            Self::Key(key) => write!(f, "key {key}"),
            Self::Index { index, value } => write!(f, "index {index} = {value:?}"),
        }
    }
}

impl fmt::Display for Plan {
    /// One line, e.g. `index by-node = "n1": about 31 objects; heads decide`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, step) in self.steps.iter().take(SHOWN).enumerate() {
            write!(f, "{}{step}", if number > 0 { ", " } else { "" })?;
        }
        if self.steps.len() > SHOWN {
            write!(f, " and {} more", self.steps.len() - SHOWN)?;
        }
        if self.steps.is_empty() {
            f.write_str("nothing")?;
        }
        write!(f, ": about {} objects; ", self.candidates)?;
        f.write_str(match self.looks {
            Looks::Nothing => "all of them match",
            Looks::Heads => "their heads decide",
            Looks::Bodies => "their heads decide where they can, else their bytes are decompressed",
        })?;
        if self.reads { f.write_str("; what matches is decompressed for the answer") } else { Ok(()) }
    }
}

impl Partition {
    /// The objects whose keys begin with a text, by key: a range of the tree.
    pub(super) fn beginning_with<'s>(&'s self, start: &'s ObjectKey) -> impl Iterator<Item = &'s Arc<StoredObject>> {
        let begins = move |object: &&Arc<StoredObject>| object.key().as_str().starts_with(start.as_str());
        self.objects.range(Bound::Included(start), Bound::Unbounded).take_while(begins)
    }
}
