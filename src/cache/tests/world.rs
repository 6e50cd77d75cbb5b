//! Simulated objects with a history, a reflector that reads them with gaps, and a consumer that only knows its
//! notifications.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::testing::{delta, object_with};
use informer_hub_types::{Change, DeltaKind, Notification, Object, ObjectKey, ResourceVersion};

pub(super) const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// One state of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct State {
    pub(super) uid: String,
    pub(super) version: u64,
    /// Value of its label `app`.
    pub(super) app: &'static str,
    /// Values of its index `by-node`.
    pub(super) nodes: Vec<&'static str>,
}

/// Contents and history of an apiserver.
#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) objects: BTreeMap<&'static str, State>,
    history: Vec<(DeltaKind, &'static str, State)>,
    revision: u64,
}

impl World {
    /// Creates or updates an object.
    pub(super) fn put(&mut self, name: &'static str, app: &'static str, nodes: Vec<&'static str>) {
        self.revision += 1;
        let known = self.objects.get(name).map(|state| state.uid.clone());
        let kind = if known.is_some() { DeltaKind::Updated } else { DeltaKind::Added };
        let uid = known.unwrap_or_else(|| format!("{name}-{}", self.revision));
        let state = State { uid, version: self.revision, app, nodes };
        self.objects.insert(name, state.clone());
        self.history.push((kind, name, state));
    }

    pub(super) fn delete(&mut self, name: &'static str) {
        if let Some(mut state) = self.objects.remove(name) {
            self.revision += 1;
            state.version = self.revision;
            self.history.push((DeltaKind::Deleted, name, state));
        }
    }
}

fn change(kind: DeltaKind, name: &str, state: &State) -> Change {
    let nodes: Vec<_> = state.nodes.iter().map(|node| ("by-node", *node)).collect();
    let object = object_with("ns", name, &state.uid, state.version, &[("app", state.app)], &nodes);
    Change::Delta(delta(kind, object))
}

/// Connection of a reflector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Connection {
    Lost,
    /// A streaming list before its bookmark.
    Streaming,
    Watching,
}

/// Reads a [`World`] as a reflector does: lists, streams, watches, and loses its connection.
#[derive(Debug)]
pub(super) struct Reader {
    connection: Connection,
    /// Number of history events already read.
    seen: usize,
    /// Whether the last list left out an object.
    short: bool,
    pub(super) output: Vec<Change>,
}

impl Reader {
    pub(super) fn new() -> Self {
        Self { connection: Connection::Lost, seen: 0, short: false, output: Vec::new() }
    }

    /// Lists the world. Events since the last read are missed.
    pub(super) fn list(&mut self, world: &World, too_large: Option<&str>) {
        self.begin(world, too_large);
        self.end(world);
    }

    pub(super) fn begin_stream(&mut self, world: &World) {
        self.begin(world, None);
        self.connection = Connection::Streaming;
    }

    pub(super) fn end_stream(&mut self, world: &World) {
        if self.connection == Connection::Streaming {
            self.end(world);
        }
    }

    fn begin(&mut self, world: &World, too_large: Option<&str>) {
        self.output.push(Change::ReplaceBegin);
        self.short = false;
        for (name, state) in &world.objects {
            if too_large == Some(name) {
                self.short = true;
                self.output.push(Change::ReplaceKeep(ObjectKey::new("ns", name)));
            } else {
                self.output.push(change(DeltaKind::Replaced, name, state));
            }
        }
        self.seen = world.history.len();
    }

    fn end(&mut self, world: &World) {
        let at = self.seen.checked_sub(1).map_or(0, |last| world.history[last].2.version);
        self.output.push(Change::ReplaceEnd(ResourceVersion::new(&at.to_string())));
        self.connection = Connection::Watching;
    }

    /// Starts a list that is interrupted.
    pub(super) fn break_off(&mut self, world: &World, after: usize) {
        let from = self.output.len();
        self.begin(world, None);
        self.output.truncate(from + after.max(1));
        self.connection = Connection::Lost;
    }

    /// Reads up to `count` events of the watch.
    pub(super) fn follow(&mut self, world: &World, count: usize) {
        if self.connection == Connection::Lost {
            return;
        }
        for (kind, name, state) in world.history.iter().skip(self.seen).take(count) {
            let live = self.connection == Connection::Watching || *kind == DeltaKind::Deleted;
            self.output.push(change(if live { *kind } else { DeltaKind::Replaced }, name, state));
            self.seen += 1;
        }
    }

    /// Repeats the last events of the watch, except those of deleted objects, which are indistinguishable from new
    /// ones.
    pub(super) fn repeat(&mut self, world: &World, count: usize) {
        if self.connection != Connection::Watching || self.short {
            return;
        }
        let uids: BTreeSet<_> = world.objects.values().map(|state| &state.uid).collect();
        let seen = &world.history[..self.seen];
        let deleted: BTreeSet<_> =
            seen.iter().filter(|(kind, ..)| *kind == DeltaKind::Deleted).map(|(.., state)| &state.uid).collect();
        for (kind, name, state) in &seen[self.seen.saturating_sub(count)..] {
            if uids.contains(&state.uid) && !deleted.contains(&state.uid) {
                self.output.push(change(*kind, name, state));
            }
        }
    }

    pub(super) fn lose(&mut self) {
        self.connection = Connection::Lost;
    }

    /// Reads until nothing is missing.
    pub(super) fn catch_up(&mut self, world: &World) {
        self.end_stream(world);
        if self.connection == Connection::Lost || self.short {
            self.list(world, None);
        }
        self.follow(world, usize::MAX);
    }
}

/// A listener's view, verified with each notification.
#[derive(Debug, Default)]
pub(super) struct Consumer {
    pub(super) known: BTreeMap<String, (String, u64)>,
    pub(super) newest: HashMap<String, u64>,
    pub(super) synced: usize,
    /// Whether initial objects are skipped, so that unknown objects may be updated.
    pub(super) skips: bool,
}

fn identity(object: &Object) -> (String, u64) {
    (object.uid().to_string(), object.resource_version().as_number().unwrap())
}

impl Consumer {
    pub(super) fn consume_all(&mut self, notifications: &[Notification]) {
        for notification in notifications {
            self.consume(notification);
        }
    }

    fn consume(&mut self, notification: &Notification) {
        let text = format!("{notification:?}");
        match notification {
            Notification::Synced(_) => self.synced += 1,
            Notification::Added { object, initial } => {
                assert!(!initial || self.synced == 0, "initial after synced: {text}");
                assert!(!initial || !self.skips, "initial object despite skipping: {text}");
                let known = self.known.insert(object.name().to_owned(), identity(object));
                assert!(known.is_none(), "added though known as {known:?}: {text}");
                self.advance(object, true, &text);
            }
            Notification::Updated { old, new, resync } => {
                assert_eq!(old.uid(), new.uid(), "an update changes no identity: {text}");
                let known = self.known.insert(new.name().to_owned(), identity(new));
                let expected = if self.skips && known.is_none() { None } else { Some(identity(old)) };
                assert_eq!(known, expected, "updated from an unknown state: {text}");
                assert_eq!(*resync, old.resource_version() == new.resource_version(), "{text}");
                self.advance(new, !resync && known.is_some(), &text);
            }
            Notification::Deleted { object, .. } => {
                let known = self.known.remove(object.name());
                assert!(known.is_some() || self.skips, "deleted though unknown: {text}");
                let (uid, version) = identity(object);
                assert!(known.is_none_or(|known| known.0 == uid && known.1 <= version), "another one: {text}");
                self.advance(object, false, &text);
            }
        }
    }

    /// Asserts that versions of an object never decrease; with `news`, that they increase.
    fn advance(&mut self, object: &Object, news: bool, text: &str) {
        let (uid, version) = identity(object);
        let newest = self.newest.insert(uid, version);
        let continues = newest.is_none_or(|newest| if news { newest < version } else { newest <= version });
        assert!(continues, "{text} after {newest:?}");
    }
}
