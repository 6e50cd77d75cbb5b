//! Builders for the tests of this module and its neighbours.

use std::ops::Range;
use std::sync::Arc;

use proptest::test_runner::{Config, RngSeed};
use rand::Rng;

use super::{Applied, Controller, DeltaFifo, Outbox, Partition, PartitionId, Popped, Progress, Store};
use crate::types::{
    ApiResource, Change, ClusterLabels, ClusterName, Delta, DeltaKind, Gvr, IndexEntry, InformerHealth, Labels,
    Notification, Object, ObjectKey, Origin, ResourceVersion, Scope, StoredObject, StoredObjectParts, Uid, chance,
};

pub(crate) fn object(namespace: &str, name: &str, uid: &str, version: u64) -> StoredObject {
    object_with(namespace, name, uid, version, &[], &[])
}

pub(crate) fn object_with(
    namespace: &str,
    name: &str,
    uid: &str,
    version: u64,
    labels: &[(&str, &str)],
    index: &[(&str, &str)],
) -> StoredObject {
    let entry = |(index, value): &(&str, &str)| IndexEntry { index: (*index).into(), value: (*value).into() };
    StoredObject::new(StoredObjectParts {
        key: ObjectKey::new(namespace, name),
        uid: Uid::new(uid),
        resource_version: ResourceVersion::new(&version.to_string()),
        labels: Labels::new(labels.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect()),
        index_values: index.iter().map(entry).collect(),
        json: format!(r#"{{"metadata":{{"name":"{name}","resourceVersion":"{version}"}}}}"#).into_bytes(),
    })
}

pub(crate) fn delta(kind: DeltaKind, object: StoredObject) -> Delta {
    Delta { kind, object: Arc::new(object) }
}

pub(crate) fn pods() -> ApiResource {
    ApiResource { gvr: Gvr::new("", "v1", "pods"), kind: "Pod".into(), namespaced: true }
}

pub(crate) fn origin(cluster: &str) -> Arc<Origin> {
    Arc::new(Origin {
        cluster: ClusterName::new(cluster).unwrap(),
        cluster_labels: ClusterLabels::new(),
        resource: pods(),
        scope: Scope::all(),
    })
}

/// One step of a reflector: `+a@1` the watch said ADDED, `~a@2` MODIFIED, `-a@3` DELETED, `*a@4` a list has it, `=a@4`
/// a resync repeats it; `[` a list begins, `&a` it has `a` and cannot take it in, `]9` it ends. The UID is `u`, and `v`
/// in `+a:v@1`.
pub(crate) fn change(text: &str) -> Change {
    let (sign, rest) = text.split_at(1);
    let kind = match sign {
        "[" => return Change::ReplaceBegin,
        "&" => return Change::ReplaceKeep(ObjectKey::new("ns", rest)),
        "]" => return Change::ReplaceEnd(ResourceVersion::new(rest)),
        "+" => DeltaKind::Added,
        "~" => DeltaKind::Updated,
        "-" => DeltaKind::Deleted,
        "*" => DeltaKind::Replaced,
        "=" => DeltaKind::Sync,
        _ => panic!("{text:?} is no change"),
    };
    let (name, version) = rest.split_once('@').unwrap();
    let (name, uid) = name.split_once(':').unwrap_or((name, "u"));
    Change::Delta(delta(kind, object("ns", name, uid, version.parse().unwrap())))
}

/// A list that keeps these objects of the namespace `ns`, and brings none.
pub(crate) fn list_keeping<'n>(names: impl Iterator<Item = &'n str>) -> Vec<Change> {
    let keep = names.map(|name| Change::ReplaceKeep(ObjectKey::new("ns", name)));
    let end = Change::ReplaceEnd(ResourceVersion::new("1"));
    [Change::ReplaceBegin].into_iter().chain(keep).chain([end]).collect()
}

pub(crate) fn push_all(fifo: &mut DeltaFifo, script: &str) {
    for step in script.split_whitespace() {
        fifo.push(change(step));
    }
}

/// Deltas of one key on one line, in the notation of [`change`]; a list's end with what it keeps, e.g. `]9 a b`.
pub(crate) fn popped_lines(batch: &[Popped]) -> Vec<String> {
    let line = |popped: &Popped| match popped {
        Popped::Deltas(_, deltas) => deltas.iter().map(delta_text).collect::<Vec<_>>().join(" "),
        Popped::ReplaceEnd { keep, version } => {
            let mut names: Vec<_> = keep.iter().map(ObjectKey::name).collect();
            names.sort_unstable();
            [&[&*format!("]{version}")], names.as_slice()].concat().join(" ")
        }
    };
    batch.iter().map(line).collect()
}

fn delta_text(Delta { kind, object }: &Delta) -> String {
    let sign = match kind {
        DeltaKind::Added => '+',
        DeltaKind::Updated => '~',
        DeltaKind::Deleted => '-',
        DeltaKind::Replaced => '*',
        DeltaKind::Sync => '=',
    };
    let uid = match object.uid().to_string().as_str() {
        "u" => String::new(),
        other => format!(":{other}"),
    };
    format!("{sign}{}{uid}@{}", object.key().name(), object.resource_version())
}

/// How many cases a property is tried with: what the environment says in `INFORMER_HUB_CASES`, else `default`.
pub(crate) fn cases(default: u32) -> u32 {
    match std::env::var("INFORMER_HUB_CASES") {
        Ok(cases) => cases.parse().expect("INFORMER_HUB_CASES is a number"),
        Err(_) => default,
    }
}

/// Environment variable that replays a randomised test: the seed that the failed test printed.
pub(crate) const SEED: &str = "INFORMER_HUB_SEED";

/// Returns the seed to replay, if [`SEED`] is set.
pub(crate) fn replayed() -> Option<u64> {
    let text = std::env::var(SEED).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{SEED}={text:?} is not a number")))
}

/// Returns the seed of a randomised test, [`replayed`] or a new one, and prints it. The harness shows what a test
/// printed if the test fails.
pub(crate) fn seed() -> u64 {
    let seed = replayed().unwrap_or_else(|| chance::rng().random());
    println!("{SEED}={seed}");
    seed
}

/// Returns a property's configuration: [`cases`], [`seed`], and no files beside the sources.
pub(crate) fn properties(default: u32) -> Config {
    let config = seeded(default, seed());
    println!("INFORMER_HUB_CASES={}", config.cases);
    config
}

fn seeded(default: u32, seed: u64) -> Config {
    let rng_seed = RngSeed::Fixed(seed);
    Config { cases: cases(default), rng_seed, failure_persistence: None, ..Config::default() }
}

/// Yields the seeds of a range, or the one to replay. Prints the seed of a round that panics.
pub(crate) fn seeds(range: Range<u64>) -> Seeds {
    Seeds { rest: replayed().map_or(range, |seed| seed..seed + 1), current: None }
}

/// See [`seeds`].
pub(crate) struct Seeds {
    rest: Range<u64>,
    current: Option<u64>,
}

impl Iterator for Seeds {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.current = self.rest.next();
        self.current
    }
}

impl Drop for Seeds {
    fn drop(&mut self) {
        if let Some(seed) = self.current.filter(|_| std::thread::panicking()) {
            eprintln!("{SEED}={seed}");
        }
    }
}

/// A controller of a store with one open partition.
pub(crate) struct Informer {
    pub(crate) controller: Controller,
    pub(crate) id: PartitionId,
}

impl Informer {
    pub(crate) fn new() -> Self {
        Self::with_limit(usize::MAX)
    }

    /// With a bound of its queue in bytes.
    pub(crate) fn with_limit(limit: usize) -> Self {
        let mut store = Store::new(pods());
        let id = store.open(origin("c"), InformerHealth::new(), Vec::new());
        Self { controller: Controller::new(store, id, DeltaFifo::new(limit)), id }
    }

    /// Has a script processed; see [`change`]. Several batches (a list's end closes one) are given back as one.
    pub(crate) fn apply(&mut self, script: &str) -> Outbox {
        self.apply_changes(script.split_whitespace().map(change).collect())
    }

    pub(crate) fn apply_changes(&mut self, changes: Vec<Change>) -> Outbox {
        for change in changes {
            self.controller.push(change);
        }
        let (mut number, mut applied) = (self.partition().number(), Vec::new());
        let end = self.controller.process_all(&mut |outbox| {
            number = outbox.number;
            applied.extend(outbox.applied.iter().cloned());
            Ok(())
        });
        assert!(matches!(end, Progress::Idle), "{end:?}");
        Outbox { number, applied: applied.into() }
    }

    /// Goes on with another partition of the same store.
    pub(crate) fn turn_to(&mut self, id: PartitionId) {
        let store = Store::recover(Arc::clone(self.controller.store().published()));
        *self = Self { controller: Controller::new(store, id, DeltaFifo::new(usize::MAX)), id };
    }

    pub(crate) fn partition(&self) -> Partition {
        self.controller.partition().expect("it stays open")
    }

    /// The objects that readers see, e.g. `a@1 b@2`.
    pub(crate) fn contents(&self) -> String {
        contents_of(self.partition().iter())
    }

    /// The same, with what a list under way has staged.
    pub(crate) fn newest_contents(&self) -> String {
        contents_of(self.partition().newest_objects().iter())
    }
}

fn contents_of<'o>(objects: impl Iterator<Item = &'o Arc<StoredObject>>) -> String {
    let text = |object: &Arc<StoredObject>| format!("{}@{}", object.key().name(), object.resource_version());
    objects.map(text).collect::<Vec<_>>().join(" ")
}

/// A line per notification, in the notation of [`lines`], initial ones as `!a@1`.
pub(crate) fn told(notifications: &[Notification]) -> Vec<String> {
    let text = |object: &Object| format!("{}@{}", object.name(), object.resource_version());
    notifications
        .iter()
        .map(|notification| match notification {
            Notification::Added { object, initial: true } => format!("!{}", text(object)),
            Notification::Added { object, initial: false } => format!("+{}", text(object)),
            Notification::Updated { new, resync: true, .. } => format!("={}", text(new)),
            Notification::Updated { old, new, .. } => format!("{}>{}", text(old), new.resource_version()),
            Notification::Deleted { object, tombstone: false } => format!("-{}", text(object)),
            Notification::Deleted { object, tombstone: true } => format!("†{}", text(object)),
            Notification::Synced(_) => "synced".to_owned(),
        })
        .collect()
}

/// A line per change, e.g. `+a@1`, `a@1>2`, `-a@2`, `†a@2` (tombstone), `=a@2` (resync), `synced`.
pub(crate) fn lines(applied: &[Applied]) -> Vec<String> {
    let version = |object: &StoredObject| object.resource_version().to_string();
    applied
        .iter()
        .map(|applied| match applied {
            Applied::Added(new) => format!("+{}@{}", new.key().name(), version(new)),
            Applied::Updated { old, new } => format!("{}@{}>{}", new.key().name(), version(old), version(new)),
            Applied::Deleted { last, tombstone: false, .. } => format!("-{}@{}", last.key().name(), version(last)),
            Applied::Deleted { last, tombstone: true, .. } => format!("†{}@{}", last.key().name(), version(last)),
            Applied::Repeated(object) => format!("={}@{}", object.key().name(), version(object)),
            Applied::Restored { whole, .. } => format!("^{}@{}", whole.key().name(), version(whole)),
            Applied::Synced => "synced".to_owned(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use proptest::prelude::*;
    use proptest::test_runner::TestRunner;

    use super::*;

    fn first_failure(seed: u64) -> Vec<u32> {
        let tried = RefCell::new(Vec::new());
        let failed = TestRunner::new(seeded(64, seed)).run(&any::<u32>(), |number| {
            tried.borrow_mut().push(number);
            prop_assert!(number % 7 != 3);
            Ok(())
        });
        assert!(failed.is_err());
        tried.into_inner()
    }

    #[test]
    fn a_seed_replays_a_property_case_by_case() {
        assert_eq!(first_failure(17), first_failure(17));
        assert_ne!(first_failure(17), first_failure(18));
    }

    /// Fails on purpose in the process that [`probe`] starts.
    #[test]
    fn replay_probe() {
        if std::env::var_os("REPLAY_PROBE").is_none() {
            return;
        }
        let result = TestRunner::new(properties(8)).run(&any::<u64>(), |number| {
            println!("drew {number}");
            Ok(())
        });
        panic!("{result:?}");
    }

    /// Returns what a failed property prints: its variables, and the numbers that it drew.
    fn probe(seed: Option<&str>) -> (BTreeMap<String, String>, Vec<String>) {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "cache::testing::tests::replay_probe"]).env("REPLAY_PROBE", "1");
        match seed {
            Some(seed) => child.env(SEED, seed),
            None => child.env_remove(SEED),
        };
        let output = child.output().unwrap();
        assert!(!output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        let variables = text.lines().filter_map(|line| line.split_once('='));
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        (variables, text.lines().filter(|line| line.starts_with("drew ")).map(str::to_owned).collect())
    }

    #[test]
    fn a_failed_property_prints_the_variables_that_replay_it() {
        let (variables, drawn) = probe(None);
        assert_eq!(drawn.len(), variables["INFORMER_HUB_CASES"].parse::<usize>().unwrap());
        assert_eq!(probe(Some(&variables[SEED])).1, drawn);
        assert_ne!(probe(None).1, drawn, "another run draws other cases");
    }

    #[test]
    fn a_loop_over_seeds_knows_the_seed_of_its_round_and_forgets_it_at_the_end() {
        let mut rounds = Seeds { rest: 3..6, current: None };
        assert_eq!((rounds.next(), rounds.current), (Some(3), Some(3)));
        assert_eq!((rounds.by_ref().last(), rounds.current), (Some(5), None));
    }

    fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }

    #[test]
    fn every_property_takes_its_seed_from_here() {
        let (mut files, mut blocks) = (Vec::new(), 0);
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
        for file in files {
            let text = std::fs::read_to_string(&file).unwrap();
            let lines: Vec<_> = text.lines().map(str::trim).collect();
            let is_block = |line: &str| line == "proptest! {" || line == "proptest::proptest! {";
            for (at, _) in lines.iter().enumerate().filter(|(_, line)| is_block(line)) {
                blocks += 1;
                let configuration = lines[at + 1];
                let is_ours = configuration.starts_with("#![proptest_config(") && configuration.contains("properties(");
                assert!(is_ours, "{}:{}: use cache::testing::properties", file.display(), at + 1);
            }
        }
        assert!(blocks > 30, "{blocks} properties");
    }
}
