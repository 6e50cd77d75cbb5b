//! Readers: the authenticated senders of requests.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use smol_str::SmolStr;

use crate::rule::Rule;
use informer_hub_types::ClusterName;

/// How a reader was authenticated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReaderOrigin {
    /// No credential: the HTTP port requires none, or the request has no valid one.
    Anonymous,
    /// The token `hub.auth.token` of the configuration.
    Administrator,
    /// The token `hub.auth.read_token` of the configuration.
    ReadToken,
    /// The token of a table `[readers.<name>]`.
    Table(SmolStr),
    /// A client certificate, whether or not a table `[readers.<name>]` matches it.
    Certificate,
    /// A JWT of the OIDC issuer.
    Oidc,
    /// A service account's token, which a cluster has accepted.
    ServiceAccount {
        /// Cluster that has accepted the token.
        cluster: ClusterName,
    },
}

/// Sources of a reader's rights. An object is visible if one source allows it. The default grants nothing.
#[derive(Clone, PartialEq, Debug)]
pub struct Grants {
    /// Static rules of the configuration.
    pub rules: Arc<[Rule]>,
    /// Whether clusters also decide, by access reviews, what the user may see.
    pub reviews: bool,
    /// Whether everything is visible, except Secrets if the hub does not serve them.
    pub everything: bool,
}

impl Default for Grants {
    fn default() -> Self {
        Self { rules: Arc::new([]), reviews: false, everything: false }
    }
}

impl Grants {
    /// Returns grants that show everything.
    #[must_use]
    pub fn everything() -> Self {
        Self { everything: true, ..Self::default() }
    }

    /// Returns the grants of static rules, and of access reviews if `reviews` is set.
    #[must_use]
    pub fn by_rules(rules: Arc<[Rule]>, reviews: bool) -> Self {
        Self { everything: Rule::allow_everything(&rules), rules, reviews }
    }
}

/// Limits of a reader, besides those that the hub sets for every reader. `None` adds no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReaderLimits {
    /// Maximum number of lists, queries and gets in progress.
    pub requests: Option<usize>,
    /// Maximum number of queries in progress that scan objects.
    pub scans: Option<usize>,
    /// Maximum number of open watches and event streams.
    pub watches: Option<usize>,
    /// Maximum number of bytes in answers per second.
    pub bytes_per_second: Option<usize>,
}

/// Data of a [`Reader`], the sender of a request: its identity, rights and limits.
#[derive(Clone, PartialEq, Debug)]
pub struct ReaderParts {
    /// Name of the user, as sent in access reviews and written to the audit log.
    pub name: SmolStr,
    /// Groups of the user.
    pub groups: Vec<SmolStr>,
    /// UID of the user; `None` if the credential names none.
    pub uid: Option<SmolStr>,
    /// Further attributes by key, which are sent in access reviews.
    pub extra: BTreeMap<SmolStr, Vec<SmolStr>>,
    /// How the reader was authenticated.
    pub origin: ReaderOrigin,
    /// Objects that the reader may see.
    pub grants: Grants,
    /// Limits of the reader's requests.
    pub limits: ReaderLimits,
    /// Whether the reader may change the hub: reload it, replay events and purge dead letters.
    pub may_change: bool,
    /// When the reader's credential expires, which ends its watches; `None` if never.
    pub expires: Option<Timestamp>,
}

/// The authenticated sender of a request. Cheap to clone.
#[derive(Clone, PartialEq)]
pub struct Reader(Arc<ReaderParts>);

impl Reader {
    /// Creates the sender of a request from its data.
    #[must_use]
    pub fn new(parts: ReaderParts) -> Self {
        Self(Arc::new(parts))
    }

    /// Returns a reader without groups, limits or expiry. The reader may change the hub only if `origin` is
    /// [`ReaderOrigin::Administrator`].
    #[must_use]
    pub fn named(name: &str, origin: ReaderOrigin, grants: Grants) -> Self {
        Self::new(ReaderParts {
            name: name.into(),
            groups: Vec::new(),
            uid: None,
            extra: BTreeMap::new(),
            may_change: origin == ReaderOrigin::Administrator,
            origin,
            grants,
            limits: ReaderLimits::default(),
            expires: None,
        })
    }

    /// Returns the reader of `hub.auth.token`, which sees and changes everything.
    #[must_use]
    pub fn administrator() -> Self {
        Self::named("informer-hub:administrator", ReaderOrigin::Administrator, Grants::everything())
    }

    /// Returns the reader of `hub.auth.read_token`, which sees everything.
    #[must_use]
    pub fn read_token() -> Self {
        Self::named("informer-hub:reader", ReaderOrigin::ReadToken, Grants::everything())
    }

    /// Returns the reader of an HTTP port that requires no credential. It sees and changes everything.
    #[must_use]
    pub fn open() -> Self {
        let reader = Self::named("system:anonymous", ReaderOrigin::Anonymous, Grants::everything());
        let groups = vec!["system:unauthenticated".into()];
        Self::new(ReaderParts { groups, may_change: true, ..ReaderParts::clone(&reader.0) })
    }

    /// Returns the reader of a request without a valid credential. It sees nothing.
    #[must_use]
    pub fn unknown() -> Self {
        let reader = Self::named("system:anonymous", ReaderOrigin::Anonymous, Grants::default());
        let groups = vec!["system:unauthenticated".into()];
        Self::new(ReaderParts { groups, ..ReaderParts::clone(&reader.0) })
    }

    /// Returns all data of the reader.
    #[must_use]
    pub fn parts(&self) -> &ReaderParts {
        &self.0
    }

    /// Returns the user name.
    #[must_use]
    pub fn name(&self) -> &SmolStr {
        &self.0.name
    }

    /// Returns the groups of the user.
    #[must_use]
    pub fn groups(&self) -> &[SmolStr] {
        &self.0.groups
    }

    /// Returns the grants that decide the reader's rights.
    #[must_use]
    pub fn grants(&self) -> &Grants {
        &self.0.grants
    }

    /// Returns how the reader was authenticated.
    #[must_use]
    pub fn origin(&self) -> &ReaderOrigin {
        &self.0.origin
    }

    /// Returns the limits of the reader's requests.
    #[must_use]
    pub fn limits(&self) -> ReaderLimits {
        self.0.limits
    }

    /// Returns when the reader's credential expires; `None` if never.
    #[must_use]
    pub fn expires(&self) -> Option<Timestamp> {
        self.0.expires
    }

    /// Returns whether the reader may change the hub: reload it, replay events and purge dead letters.
    #[must_use]
    pub fn may_change(&self) -> bool {
        self.0.may_change
    }

    /// Returns whether the reader sees every cluster and every object that the hub serves.
    #[must_use]
    pub fn sees_everything(&self) -> bool {
        self.0.grants.everything
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("name", &self.0.name).field("origin", &self.0.origin).finish_non_exhaustive()
    }
}
