//! Objects that a reader holds, and those that it must hold.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Deserialize;

/// An object in a reader's store.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub(super) struct Held {
    pub(super) key: String,
    /// Cluster that the object is marked with at a fleet root; empty elsewhere.
    #[serde(default)]
    pub(super) cluster: String,
    pub(super) uid: String,
    pub(super) version: String,
    /// Hash of the object without version, managed fields and the marks of a fleet root; empty if the reader computes
    /// none.
    #[serde(default)]
    pub(super) hash: String,
    /// Why the object is wrong.
    #[serde(default)]
    pub(super) error: String,
}

/// Root that a reader reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Root {
    /// `/clusters/<name>`, by index of the cluster.
    Cluster(usize),
    /// `/unique/*`.
    Unique,
    /// `/clusters/*`, in a store keyed by UID.
    Fleet,
}

/// UID, version (empty at fleet roots, which have their own) and hash, by key.
pub(super) type Objects = BTreeMap<String, (String, String, String)>;

impl Root {
    /// Returns the path of the root.
    pub(super) fn path(self, clusters: [&str; 2]) -> String {
        match self {
            Self::Cluster(at) => format!("/clusters/{}", clusters[at]),
            Self::Unique => "/unique/*".to_owned(),
            Self::Fleet => "/clusters/*".to_owned(),
        }
    }

    /// Returns the objects that a reader at this root must hold, given fresh lists of both clusters.
    pub(super) fn expected(self, clusters: [&str; 2], listed: &[Vec<Held>; 2]) -> Objects {
        let mut expected = Objects::new();
        for (at, (cluster, objects)) in clusters.iter().zip(listed).enumerate() {
            for object in objects {
                let (uid, hash) = (object.uid.clone(), object.hash.clone());
                match self {
                    Self::Cluster(only) if only != at => {}
                    Self::Cluster(_) => {
                        expected.insert(object.key.clone(), (uid, object.version.clone(), hash));
                    }
                    Self::Unique => {
                        let (namespace, name) = object.key.split_once('/').expect("namespaced objects");
                        expected.insert(format!("{namespace}/{cluster}:{name}"), (uid, String::new(), hash));
                    }
                    Self::Fleet => {
                        expected.insert(uid.clone(), (uid, String::new(), hash));
                    }
                }
            }
        }
        expected
    }

    /// Returns the objects that a reader holds, in the form of [`Self::expected`].
    pub(super) fn held(self, objects: &[Held]) -> Objects {
        let is_cluster = matches!(self, Self::Cluster(_));
        let entry = |object: &Held| {
            let version = if is_cluster { object.version.clone() } else { String::new() };
            (object.key.clone(), (object.uid.clone(), version, object.hash.clone()))
        };
        objects.iter().map(entry).collect()
    }
}

/// Describes the first differences, empty if there are none. Objects without a hash are compared without it.
pub(super) fn difference(expected: &Objects, held: &Objects) -> String {
    let mut text = String::new();
    let mut count = 0;
    let keys: std::collections::BTreeSet<_> = expected.keys().chain(held.keys()).collect();
    for key in keys {
        let same = match (expected.get(key), held.get(key)) {
            (Some(expected), Some(held)) => {
                let has_hash = !expected.2.is_empty() && !held.2.is_empty();
                (&expected.0, &expected.1) == (&held.0, &held.1) && (!has_hash || expected.2 == held.2)
            }
            _ => false,
        };
        if !same {
            count += 1;
            if count <= 3 {
                let _ = write!(text, "\n    {key}: expected {:?}, held {:?}", expected.get(key), held.get(key));
            }
        }
    }
    if count == 0 { text } else { format!("{count} of {} objects differ:{text}", expected.len()) }
}

#[test]
fn difference_finds_missing_stale_and_superfluous_objects() {
    let held = |key: &str, uid: &str, version: &str, hash: &str| Held {
        key: key.to_owned(),
        cluster: String::new(),
        uid: uid.to_owned(),
        version: version.to_owned(),
        hash: hash.to_owned(),
        error: String::new(),
    };
    let listed = [vec![held("n/a", "1", "5", "h"), held("n/b", "2", "6", "i")], vec![held("n/a", "3", "5", "h")]];
    let names = ["east", "west"];
    let root = Root::Cluster(0);
    let expected = root.expected(names, &listed);
    let with = |objects: &[Held]| difference(&expected, &root.held(objects));
    assert_eq!(with(&listed[0]), "");
    assert!(with(&listed[0][..1]).starts_with("1 of 2"));
    assert!(with(&[held("n/a", "1", "4", "h"), listed[0][1].clone()]).starts_with("1 of 2"));
    assert!(with(&[held("n/a", "9", "5", "h"), listed[0][1].clone()]).starts_with("1 of 2"));
    assert!(with(&[held("n/a", "1", "5", "x"), listed[0][1].clone()]).starts_with("1 of 2"));
    assert_eq!(with(&[held("n/a", "1", "5", ""), listed[0][1].clone()]), "");
    assert!(with(&[&listed[0][..], &[held("n/c", "4", "7", "")]].concat()).starts_with("1 of 2"));
    let unique: Vec<_> = Root::Unique.expected(names, &listed).into_keys().collect();
    assert_eq!(unique, ["n/east:a", "n/east:b", "n/west:a"]);
    assert_eq!(Root::Fleet.expected(names, &listed).len(), 3);
}
