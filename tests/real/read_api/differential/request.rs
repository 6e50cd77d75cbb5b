//! Random requests of a reader, valid and not.

use std::fmt;

use rand::Rng;
use rand::rngs::StdRng;

use super::vocabulary::{ACCEPTS, BAD_FIELDS, FORMS, FUTURE, LABELS, LOST_PATHS, TABLES, VERSIONS};
use crate::read_api::objects::path;
use crate::read_api::resources::{CHANGING, RESOURCES, Resource};

/// Verb of a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Verb {
    Get,
    List,
    /// A list in pages, each compared.
    Pages,
    Watch,
    /// A path that belongs to no resource.
    Lost,
}

/// A GET request.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) verb: Verb,
    pub(super) resource: Option<&'static Resource>,
    pub(super) path: String,
    pub(super) query: Vec<(&'static str, String)>,
    pub(super) accept: Option<String>,
}

/// Names and versions of a resource's objects, to ask for.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) resource: &'static Resource,
    /// Namespaces (empty if cluster-scoped) and names.
    pub(super) names: Vec<(String, String)>,
    /// Versions of the changes that the hub has seen, ascending.
    pub(super) versions: Vec<u64>,
    /// The greatest version of an object.
    pub(super) newest: u64,
}

impl Request {
    /// Returns the value of a query parameter.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| *key == name).map(|(_, value)| &**value)
    }

    /// Returns the path with the encoded query.
    pub(super) fn target(&self) -> String {
        let pairs: Vec<_> = self.query.iter().map(|(key, value)| format!("{key}={}", encoded(value))).collect();
        if pairs.is_empty() { self.path.clone() } else { format!("{}?{}", self.path, pairs.join("&")) }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.verb, self.target())?;
        self.accept.as_ref().map_or(Ok(()), |accept| write!(f, " (Accept: {accept})"))
    }
}

/// Percent-encodes everything but unreserved characters.
fn encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

/// Source of requests about known objects.
pub(super) struct Generator<'a> {
    random: &'a mut StdRng,
    known: &'a [Known],
}

impl<'a> Generator<'a> {
    /// Creates a generator. `known` has the resources in the order of [`RESOURCES`].
    pub(super) fn new(random: &'a mut StdRng, known: &'a [Known]) -> Self {
        assert_eq!(known.len(), RESOURCES.len());
        Self { random, known }
    }

    /// Returns the next request.
    pub(super) fn next(&mut self) -> Request {
        let verb = match self.random.random_range(0..100) {
            0..20 => Verb::Get,
            20..63 => Verb::List,
            63..71 => Verb::Pages,
            71..97 => Verb::Watch,
            _ => Verb::Lost,
        };
        if verb == Verb::Lost {
            let path = (*self.pick(LOST_PATHS)).to_owned();
            return Request { verb, resource: None, path, query: self.common(), accept: None };
        }
        let most = if self.chance(70) { CHANGING } else { RESOURCES.len() };
        let known = &self.known[self.random.random_range(0..most)];
        let path = self.path(known, verb);
        let mut query = self.common();
        match verb {
            Verb::Get => query.extend(self.version(known, 25)),
            Verb::Pages => {
                query.push(("limit", self.pick(&["1", "2", "3", "7", "20"]).to_string()));
                // kube-apiserver 1.37 sends wrong later pages of a list with a condition on the namespace.
                query.extend(self.selectors(known).into_iter().filter(|(_, value)| !value.contains("namespace")));
                query.extend(self.version(known, 20));
            }
            _ => {
                query.extend(self.selectors(known));
                query.extend(self.version(known, 40));
                query.extend(self.limits());
            }
        }
        if verb == Verb::Watch {
            let is_future = query.iter().any(|(key, value)| *key == "resourceVersion" && value == FUTURE);
            query.extend(self.watch(is_future));
        }
        let accept = if self.chance(60) { Some(self.accept(verb)) } else { None };
        if accept.as_ref().is_some_and(|accept| accept.contains("Table")) && self.chance(60) {
            let include = ["None", "Metadata", "Object", "object", ""];
            query.push(("includeObject", self.pick(&include).to_string()));
        }
        Request { verb, resource: Some(known.resource), path, query, accept }
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.random.random_range(0..100) < percent
    }

    fn pick<'t, T>(&mut self, from: &'t [T]) -> &'t T {
        &from[self.random.random_range(0..from.len())]
    }

    fn path(&mut self, known: &Known, verb: Verb) -> String {
        let resource = known.resource;
        let one = (!known.names.is_empty()).then(|| self.pick(&known.names).clone());
        let (namespace, name) = one.unwrap_or_default();
        let within = match resource.is_namespaced {
            false => None,
            true if self.chance(4) => Some("no-such-namespace".to_owned()),
            true if namespace.is_empty() => Some("default".to_owned()),
            true => Some(namespace),
        };
        let names_object = verb == Verb::Get || verb == Verb::Watch && self.chance(10);
        if names_object {
            let name = if self.chance(10) || name.is_empty() {
                self.pick(&["no-such-name", "UPPER", "a.b.c", "with%20space", "-"]).to_string()
            } else {
                name
            };
            return format!("{}/{name}", path(resource, within.as_deref()));
        }
        let everywhere = resource.is_namespaced && self.chance(45);
        path(resource, within.as_deref().filter(|_| !everywhere))
    }

    /// Returns parameters that every request may have.
    fn common(&mut self) -> Vec<(&'static str, String)> {
        let mut query = Vec::new();
        if self.chance(10) {
            query.push(("pretty", self.pick(&["true", "false", "1", "0", "", "yes"]).to_string()));
        }
        if self.chance(4) {
            query.push(("unknown", "1".to_owned()));
        }
        query
    }

    fn selectors(&mut self, known: &Known) -> Vec<(&'static str, String)> {
        let mut query = Vec::new();
        if self.chance(25) {
            query.push(("labelSelector", self.pick(LABELS).to_string()));
        }
        if self.chance(25) {
            query.push(("fieldSelector", self.fields(known)));
        }
        query
    }

    fn fields(&mut self, known: &Known) -> String {
        if self.chance(15) {
            return self.pick(BAD_FIELDS).to_string();
        }
        let terms = if self.chance(25) { 2 } else { 1 };
        let terms: Vec<_> = (0..terms).map(|_| self.field(known)).collect();
        terms.join(",")
    }

    fn field(&mut self, known: &Known) -> String {
        let operator = *self.pick(&["=", "=", "==", "!="]);
        let (namespace, name) = known.names.first().cloned().unwrap_or_default();
        if !known.resource.fields.is_empty() && self.chance(75) {
            let (field, values) = self.pick(known.resource.fields);
            return format!("{field}{operator}{}", self.pick(values));
        }
        if self.chance(50) {
            format!("metadata.name{operator}{name}")
        } else {
            format!("metadata.namespace{operator}{namespace}")
        }
    }

    fn version(&mut self, known: &Known, percent: u32) -> Vec<(&'static str, String)> {
        let mut query = Vec::new();
        if self.chance(percent) {
            let version = match self.random.random_range(0..10) {
                0..5 if !known.versions.is_empty() => self.pick(&known.versions).to_string(),
                5..7 => known.newest.to_string(),
                _ => self.pick(VERSIONS).to_string(),
            };
            query.push(("resourceVersion", version));
        }
        let (with, without) = (percent, percent / 6);
        if self.chance(if query.is_empty() { without } else { with }) {
            let rules = ["NotOlderThan", "NotOlderThan", "Exact", "Exact", "", "exact"];
            query.push(("resourceVersionMatch", self.pick(&rules).to_string()));
        }
        query
    }

    fn limits(&mut self) -> Vec<(&'static str, String)> {
        let mut query = Vec::new();
        if self.chance(15) {
            query.push(("limit", self.pick(&["0", "1", "5", "500", "-1", "abc", ""]).to_string()));
        }
        if self.chance(3) {
            query.push(("continue", self.pick(&["garbage", "", "e30", "eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ"]).to_string()));
        }
        if self.chance(5) {
            query.push(("sendInitialEvents", self.pick(&["true", "false"]).to_string()));
        }
        query
    }

    fn watch(&mut self, is_future: bool) -> Vec<(&'static str, String)> {
        let mut query = vec![("watch", self.pick(&["true", "1", "1", "true", "", "false", "0", "maybe"]).to_string())];
        let timeout = match self.random.random_range(0..100) {
            // The answer to a version in the future comes after three seconds.
            _ if is_future => "5",
            0..95 => "1",
            _ => self.pick(&["abc", "1.5"]),
        };
        query.push(("timeoutSeconds", timeout.to_owned()));
        if self.chance(35) {
            query.push(("sendInitialEvents", self.pick(&["true", "true", "false"]).to_string()));
            if self.chance(80) {
                query.retain(|(key, _)| *key != "resourceVersionMatch");
                query.push(("resourceVersionMatch", "NotOlderThan".to_owned()));
            }
        }
        if self.chance(40) {
            query.push(("allowWatchBookmarks", self.pick(&["true", "1", "false", "x"]).to_string()));
        }
        query
    }

    fn accept(&mut self, verb: Verb) -> String {
        match self.random.random_range(0..10) {
            0..4 => self.pick(TABLES).to_string(),
            4..6 if verb == Verb::List || verb == Verb::Pages => self.pick(&FORMS[..2]).to_string(),
            4..6 if verb == Verb::Watch => self.pick(&FORMS[2..]).to_string(),
            4..6 => self.pick(FORMS).to_string(),
            _ => self.pick(ACCEPTS).to_string(),
        }
    }
}
