//! Directory of readers: the tables `[readers.<name>]` that match an authenticated user, and the rights that they grant.

use std::collections::BTreeMap;
use std::sync::Arc;

use smol_str::{SmolStr, ToSmolStr, format_smolstr};

use crate::certificate::ClientCertificate;
use crate::reader::{Grants, Reader, ReaderLimits, ReaderOrigin, ReaderParts};
use crate::review::User;
use crate::rule::Rule;
use crate::token::TokenMac;
use informer_hub_types::ClusterName;
use jiff::Timestamp;

/// Group of all authenticated users, as in Kubernetes.
const AUTHENTICATED: &str = "system:authenticated";

/// Key of an `extra` attribute that marks readers authenticated by the bearer token of a table `[readers.<name>]`.
///
/// The value is the number of the configuration load that introduced the token. When the token is replaced, the number
/// changes, and readers with the old number are no longer valid.
const CREDENTIAL: &str = "informer-hub.io/credential";

/// Credential by which a request is matched to a table `[readers.<name>]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Identity {
    /// Bearer token.
    Token(TokenMac),
    /// Common name of a client certificate.
    CommonName(SmolStr),
    /// Organization of a client certificate.
    Organization(SmolStr),
    /// Group that a JWT of the OIDC issuer assigns to its user.
    OidcGroup(SmolStr),
    /// Name of the user in a JWT of the OIDC issuer.
    OidcUser(SmolStr),
    /// Service account of a cluster.
    ServiceAccount {
        /// Cluster of the service account.
        cluster: ClusterName,
        /// User name, `system:serviceaccount:<namespace>:<name>`.
        user: SmolStr,
    },
}

impl Identity {
    /// Returns the identity of a service account.
    #[must_use]
    pub fn service_account(cluster: ClusterName, namespace: &str, name: &str) -> Self {
        Self::ServiceAccount { cluster, user: format_smolstr!("system:serviceaccount:{namespace}:{name}") }
    }
}

/// A table `[readers.<name>]` of the configuration: a credential, and the rights that it gives.
#[derive(Clone, PartialEq, Debug)]
pub struct DirectoryEntry {
    /// Key of the table: the `<name>`.
    pub name: SmolStr,
    /// Credential by which the reader's requests are recognized.
    pub identity: Identity,
    /// Objects that the reader may see.
    pub rules: Vec<Rule>,
    /// Limits, which apply to each matching user separately.
    pub limits: ReaderLimits,
    /// Whether the reader may change the hub: reload it, replay events and purge dead letters.
    pub may_change: bool,
}

/// All tables `[readers.<name>]`, and whether clusters also decide, by access reviews, what users may see.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Directory {
    entries: Vec<DirectoryEntry>,
    /// For each table in `entries`, the number of the configuration reload that introduced its present credential.
    credentials: Vec<u64>,
    /// Number of configuration reloads before this directory: 0 at the start of the hub.
    number: u64,
    reviews: bool,
}

impl Directory {
    /// Creates a directory. `reviews`: whether clusters also decide, by access reviews, what users may see.
    #[must_use]
    pub fn new(entries: Vec<DirectoryEntry>, reviews: bool) -> Self {
        Self { credentials: vec![0; entries.len()], number: 0, entries, reviews }
    }

    /// Prepares this directory to replace the directory `old` at a reload, and returns it.
    ///
    /// Each table has a number: that of the configuration reload that introduced its credential. A table with the same
    /// name and credential as in `old` keeps its number. Any other table gets a new number, so that readers
    /// authenticated by an earlier token are no longer valid.
    #[must_use]
    pub fn replacing(mut self, old: &Self) -> Self {
        self.number = old.number + 1;
        for (entry, credential) in self.entries.iter().zip(&mut self.credentials) {
            let is_same = |other: &DirectoryEntry| other.name == entry.name && other.identity == entry.identity;
            let same = old.entries.iter().position(is_same);
            *credential = same.map_or(self.number, |at| old.credentials[at]);
        }
        self
    }

    /// Returns the names of two tables that have the same token; `None` if all tokens differ.
    #[must_use]
    pub fn shared_token(&self) -> Option<(&str, &str)> {
        let tokens = || self.entries.iter().filter(|entry| matches!(entry.identity, Identity::Token(_)));
        tokens().enumerate().find_map(|(at, one)| {
            let other = tokens().take(at).find(|other| other.identity == one.identity)?;
            Some((other.name.as_str(), one.name.as_str()))
        })
    }

    /// Returns all tables, in the order given to [`Directory::new`].
    #[must_use]
    pub fn entries(&self) -> &[DirectoryEntry] {
        &self.entries
    }

    /// Returns whether there are no tables.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the reader that a bearer token identifies; `None` if no table `[readers.<name>]` has this token. Always
    /// compares the tokens of all tables, so that the time taken does not reveal which one matched.
    #[must_use]
    pub fn by_token(&self, token: &TokenMac) -> Option<Reader> {
        let mut found = None;
        for (at, entry) in self.entries.iter().enumerate() {
            if matches!(&entry.identity, Identity::Token(known) if known == token) {
                found = Some(at);
            }
        }
        found.map(|at| self.table(at))
    }

    fn table(&self, at: usize) -> Reader {
        let entry = &self.entries[at];
        let origin = ReaderOrigin::Table(entry.name.clone());
        let credential = (SmolStr::new(CREDENTIAL), vec![self.credentials[at].to_smolstr()]);
        Reader::new(ReaderParts {
            name: entry.name.clone(),
            groups: vec![AUTHENTICATED.into()],
            uid: None,
            extra: BTreeMap::from([credential]),
            origin,
            grants: Grants::by_rules(entry.rules.clone().into(), false),
            limits: entry.limits,
            may_change: entry.may_change,
            expires: None,
        })
    }

    /// Returns the reader that a verified client certificate identifies. If no table matches and access reviews are off,
    /// the reader may see and change everything.
    #[must_use]
    pub fn by_certificate(&self, certificate: &ClientCertificate) -> Reader {
        let ClientCertificate { common_name, organizations } = certificate;
        let matches = |identity: &Identity| match identity {
            Identity::CommonName(name) => name == common_name,
            Identity::Organization(name) => organizations.contains(name),
            _ => false,
        };
        let user = User { name: common_name.clone(), groups: organizations.clone(), uid: None, extra: BTreeMap::new() };
        let is_known = self.entries.iter().any(|entry| matches(&entry.identity));
        let mut parts = self.user(user, ReaderOrigin::Certificate, None, matches);
        if !is_known && !self.reviews {
            (parts.grants, parts.may_change) = (Grants::everything(), true);
        }
        // Access reviews need a user name.
        parts.grants.reviews &= !parts.name.is_empty();
        Reader::new(parts)
    }

    /// Returns the reader for the user of a verified JWT. `expires` is the time at which the JWT expires.
    #[must_use]
    pub fn by_oidc(&self, user: User, expires: Timestamp) -> Reader {
        let (name, groups) = (user.name.clone(), user.groups.clone());
        let matches = |identity: &Identity| match identity {
            Identity::OidcUser(user) => *user == name,
            Identity::OidcGroup(group) => groups.contains(group),
            _ => false,
        };
        Reader::new(self.user(user, ReaderOrigin::Oidc, Some(expires), matches))
    }

    /// Returns the reader for a service account whose token `cluster` has accepted.
    #[must_use]
    pub fn by_service_account(&self, cluster: ClusterName, user: User, expires: Option<Timestamp>) -> Reader {
        let (name, of) = (user.name.clone(), cluster.clone());
        let matches = |identity: &Identity| match identity {
            Identity::ServiceAccount { cluster, user } => *cluster == of && *user == name,
            _ => false,
        };
        Reader::new(self.user(user, ReaderOrigin::ServiceAccount { cluster }, expires, matches))
    }

    /// Returns the data of a reader: the user, with the rights of all tables whose identity `matches` accepts.
    ///
    /// For each limit, the highest value of these tables applies. If one of these tables does not set the limit, there
    /// is no limit.
    fn user(
        &self,
        user: User,
        origin: ReaderOrigin,
        expires: Option<Timestamp>,
        matches: impl Fn(&Identity) -> bool,
    ) -> ReaderParts {
        let tables: Vec<_> = self.entries.iter().filter(|entry| matches(&entry.identity)).collect();
        let rules: Arc<[Rule]> = tables.iter().flat_map(|entry| entry.rules.iter().cloned()).collect();
        let limits = tables.iter().map(|entry| entry.limits).reduce(most_generous).unwrap_or_default();
        let User { name, mut groups, uid, extra } = user;
        if !groups.iter().any(|group| group == AUTHENTICATED) {
            groups.push(AUTHENTICATED.into());
        }
        ReaderParts {
            name,
            groups,
            uid,
            extra,
            origin,
            grants: Grants::by_rules(rules, self.reviews),
            limits,
            may_change: tables.iter().any(|entry| entry.may_change),
            expires,
        }
    }

    /// Returns `reader`, which was authenticated before a reload, with the rights that this new directory gives it.
    ///
    /// Returns `None` if the reader was authenticated by the bearer token of a table `[readers.<name>]`, and this table
    /// is gone or has another token. Readers with a token of `hub.auth` and anonymous readers are returned unchanged,
    /// because the tables do not affect them.
    #[must_use]
    pub fn current(&self, reader: &Reader) -> Option<Reader> {
        let parts = reader.parts();
        let user = || User::from(reader);
        match &parts.origin {
            ReaderOrigin::Anonymous | ReaderOrigin::Administrator | ReaderOrigin::ReadToken => Some(reader.clone()),
            ReaderOrigin::Table(name) => {
                let at = self.entries.iter().position(|entry| entry.name == *name)?;
                let is_token = matches!(self.entries[at].identity, Identity::Token(_));
                let now = self.table(at);
                (is_token && now.parts().extra == parts.extra).then_some(now)
            }
            ReaderOrigin::Certificate => {
                let groups = parts.groups.iter().filter(|group| *group != AUTHENTICATED).cloned();
                let (common_name, organizations) = (parts.name.clone(), groups.collect());
                Some(self.by_certificate(&ClientCertificate { common_name, organizations }))
            }
            ReaderOrigin::Oidc => Some(self.by_oidc(user(), parts.expires?)),
            ReaderOrigin::ServiceAccount { cluster } => {
                Some(self.by_service_account(cluster.clone(), user(), parts.expires))
            }
        }
    }
}

fn most_generous(one: ReaderLimits, other: ReaderLimits) -> ReaderLimits {
    fn most<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
        one.zip(other).map(|(one, other)| one.max(other))
    }
    ReaderLimits {
        requests: most(one.requests, other.requests),
        scans: most(one.scans, other.scans),
        watches: most(one.watches, other.watches),
        bytes_per_second: most(one.bytes_per_second, other.bytes_per_second),
    }
}

#[cfg(test)]
#[path = "directory_tests.rs"]
mod tests;
