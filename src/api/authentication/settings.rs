//! Settings of readers (API users): where their tokens are, and what they may see.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::token_from::{TokenError, TokenFrom};
use informer_hub_access::{
    Directory, DirectoryEntry, FetchDocument, Identity, OidcSettings, ReaderLimits, Rule, TokenReviewSettings,
};

/// Readers (API users) other than those of `hub.auth`. The default has none.
#[derive(Clone, Debug, Default)]
pub struct ReaderSettings {
    /// Tables `[readers.<name>]`.
    pub readers: Vec<ReaderEntry>,
    /// Whether clusters decide by access reviews what users may see.
    pub reviews: bool,
    /// OIDC issuer whose JWTs are accepted.
    pub oidc: Option<OidcSource>,
    /// Clusters whose service accounts may use the API.
    pub token_review: Option<TokenReviewSettings>,
}

/// An OIDC issuer, and how its documents are fetched.
#[derive(Clone, Debug)]
pub struct OidcSource {
    /// Settings by which JWTs of the issuer are verified.
    pub settings: OidcSettings,
    /// PEM file with the CA of the issuer's TLS certificate. A reload that changes this path or `settings` counts as a
    /// change of the issuer.
    pub ca_file: Option<PathBuf>,
    /// HTTP client that fetches the issuer's documents.
    pub fetch: Arc<dyn FetchDocument>,
}

impl OidcSource {
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.settings == other.settings && self.ca_file == other.ca_file
    }
}

/// A table `[readers.<name>]` of the configuration.
#[derive(Clone, Debug)]
pub struct ReaderEntry {
    /// The table's key.
    pub name: String,
    /// Credential by which requests of the reader are recognized.
    pub identity: IdentityFrom,
    /// Rules that grant the reader access to objects.
    pub rules: Vec<Rule>,
    /// Limits of the reader. If several users match this table, each user has these limits separately.
    pub limits: ReaderLimits,
    /// Whether the reader may change the hub, e.g. reload it or purge dead letters.
    pub may_change: bool,
}

/// How the requests of a reader are recognized.
#[derive(Clone, Debug)]
pub enum IdentityFrom {
    /// A token, read from a file or environment variable.
    Token(TokenFrom),
    /// An identity for which the hub needs no secret, such as the user of a client certificate.
    Known(Identity),
}

impl ReaderSettings {
    /// Reads the tokens from their files and environment variables, and returns the readers as a [`Directory`]. Blocks.
    pub(super) fn directory(&self) -> Result<Directory, TokenError> {
        let entries = self.readers.iter().map(|reader| {
            let identity = match &reader.identity {
                IdentityFrom::Token(from) => Identity::Token(from.mac(&format!("readers.{}.token", reader.name))?),
                IdentityFrom::Known(identity) => identity.clone(),
            };
            let ReaderEntry { name, rules, limits, may_change, .. } = reader;
            let (name, rules) = (name.into(), rules.clone());
            Ok(DirectoryEntry { name, identity, rules, limits: *limits, may_change: *may_change })
        });
        let directory = Directory::new(entries.collect::<Result<_, TokenError>>()?, self.reviews);
        match directory.shared_token() {
            Some((one, other)) => Err(TokenError::Shared { one: one.to_owned(), other: other.to_owned() }),
            None => Ok(directory),
        }
    }

    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        self.readers.iter().filter_map(|reader| match &reader.identity {
            IdentityFrom::Token(from) => from.file(),
            IdentityFrom::Known(_) => None,
        })
    }
}
