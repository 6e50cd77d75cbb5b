//! Access control of the HTTP API: identifies readers by token or certificate. Probes are public.
//!
//! | request | requires |
//! |---|---|
//! | `/livez`, `/readyz` | nothing; only readers that see everything get the details of unreadiness |
//! | `/metrics` | nothing if `metrics_open` is set, else a reader that sees everything |
//! | any method of `/v1/query` and below `/clusters/` and `/unique/`, which read only | the right to look |
//! | `GET` and `HEAD` of any other path, known or not | the right to look |
//! | every other method | the right to change |
//!
//! The right to look allows requests that read, the right to change allows all requests. Every known reader has the
//! right to look; handlers show only the objects that the [`Reader`] may see. If no credential is required, the host
//! named in the request must be one that the hub serves ([`Hosts`]).

mod denied;
mod known;
mod settings;
mod token_from;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use arc_swap::ArcSwap;
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, Request};

pub(super) use self::denied::Denied;
use self::denied::DeniedCounts;
use self::known::KnownReaders;
pub use self::known::PreparedReaders;
pub use self::settings::{IdentityFrom, OidcSource, ReaderEntry, ReaderSettings};
pub use self::token_from::{ReadSecret, TokenError, TokenFrom};
use super::error_answer::is_kubernetes;
use super::hosts::Hosts;
use super::usage::ReaderUse;
use informer_hub_access::{ClientCertificate, DirectoryEntry, Reader, ReviewMeter, ReviewTokens, TokenMac};
use informer_hub_disk::FileStates;

/// Minimum length, in bytes, of a bearer token that the audit log hides if another part of its request, such as the
/// URI, contains it. A shorter token may occur there as a plain word.
const LEAST_TOKEN: usize = 8;

/// Prefix of the headers by which a client impersonates another user. The hub denies such requests, because it ignores
/// these headers and would answer as the sender.
const IMPERSONATE: &str = "impersonate-";

/// Why a request was allowed: `true` if the rights of its reader allow it, `false` if only its public path does. Passed
/// to the handler as a request extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MayRead(pub(super) bool);

/// How readers of `hub.auth` and `hub.tls` are recognized. Does not change while the port is open.
#[derive(Debug, Default)]
pub(super) struct Credentials {
    /// Token that grants all rights (`hub.auth.token`).
    pub(super) token: Option<TokenFrom>,
    /// Token that grants only reading (`hub.auth.read_token`).
    pub(super) read_token: Option<TokenFrom>,
    /// Whether client certificates are accepted.
    pub(super) certificates: bool,
    /// Whether `/metrics` requires no credential.
    pub(super) metrics_open: bool,
    /// Hosts accepted in requests without a credential; `None` accepts any.
    pub(super) hosts: Option<Hosts>,
    /// Whether requests still need a credential after a reload has removed all readers. If false, the port then accepts
    /// requests without a credential.
    pub(super) closed: bool,
}

/// Decides whether requests are allowed.
pub struct Access {
    credentials: Credentials,
    /// Sends token reviews of service accounts to clusters; with `None`, service accounts are not accepted.
    clusters: Option<Arc<dyn ReviewTokens>>,
    known: ArcSwap<KnownReaders>,
    /// Whether the readers were replaced since the last call of [`Self::was_replaced`].
    replaced: AtomicBool,
    denied: DeniedCounts,
    usage: Arc<ReaderUse>,
    token_reviews: Arc<ReviewMeter>,
}

impl Access {
    pub(super) fn new(
        credentials: Credentials,
        settings: ReaderSettings,
        clusters: Option<Arc<dyn ReviewTokens>>,
    ) -> Result<Self, TokenError> {
        let prepared = PreparedReaders::read(settings)?;
        let token_reviews = Arc::<ReviewMeter>::default();
        let known = KnownReaders::default().replaced_by(&prepared, clusters.as_ref(), &token_reviews);
        let known = ArcSwap::from_pointee(known);
        let denied = DeniedCounts::default();
        let (replaced, usage) = (AtomicBool::new(false), Arc::default());
        let access = Self { credentials, clusters, known, replaced, denied, usage, token_reviews };
        access.reload_tokens()?;
        Ok(access)
    }

    /// Returns the sizes and modification times of the token files, to detect changes.
    pub(super) fn files(&self) -> FileStates {
        let tokens = [&self.credentials.token, &self.credentials.read_token].into_iter().flatten();
        let known = self.known.load();
        FileStates::of(tokens.filter_map(TokenFrom::file).chain(known.settings.files()))
    }

    /// Reads the tokens again. If one cannot be read, all stay unchanged.
    pub(super) fn reload_tokens(&self) -> Result<(), TokenError> {
        let old = self.known.load_full();
        let mac = |token: &Option<TokenFrom>, key: &str| token.as_ref().map(|token| token.mac(key)).transpose();
        let change = mac(&self.credentials.token, "hub.auth.token")?;
        let look = mac(&self.credentials.read_token, "hub.auth.read_token")?;
        let directory = old.settings.directory()?.replacing(&old.directory);
        let known = KnownReaders { change, look, directory, ..KnownReaders::clone(&old) };
        // If a reload replaced the readers meanwhile, its readers stay.
        self.known.compare_and_swap(&old, Arc::new(known));
        Ok(())
    }

    /// Replaces the known readers (API users). Open streams ask [`Self::current`] for their rights.
    pub fn replace(&self, readers: &PreparedReaders) {
        self.known.rcu(|old| old.replaced_by(readers, self.clusters.as_ref(), &self.token_reviews));
        self.replaced.store(true, Relaxed);
    }

    /// Returns whether a reload has replaced the readers since the last call. The caller then does not log that their
    /// token files have changed.
    pub(super) fn was_replaced(&self) -> bool {
        self.replaced.swap(false, Relaxed)
    }

    /// Returns a reader with the grants that it has now; `None` if its credential is no longer valid.
    pub fn current(&self, reader: &Reader) -> Option<Reader> {
        self.known.load().current(reader)
    }

    /// Returns a function that checks whether a text, such as a part of the request's URI, is secret: it is a static
    /// token, or contains the bearer token of the request.
    pub(super) fn secrets_of<'h>(&self, headers: &'h HeaderMap) -> impl Fn(&str) -> bool + use<'h> {
        let known = self.known.load_full();
        let own = bearer(headers).and_then(|own| std::str::from_utf8(own).ok()).filter(|own| own.len() >= LEAST_TOKEN);
        move |text| own.is_some_and(|own| text.contains(own)) || known.has_token(text)
    }

    /// Returns the counters and bandwidth limits of each reader.
    pub fn usage(&self) -> &Arc<ReaderUse> {
        &self.usage
    }

    /// Returns the counters of token reviews.
    pub fn token_reviews(&self) -> &ReviewMeter {
        &self.token_reviews
    }

    /// Returns the tables `[readers.<name>]` of the configuration.
    pub fn tables(&self) -> Vec<DirectoryEntry> {
        self.known.load().directory.entries().to_vec()
    }

    /// Returns the numbers of denied requests by reason, since the start.
    pub fn denied(&self) -> Vec<(&'static str, u64)> {
        self.denied.all()
    }

    /// Returns the numbers of denied requests since the last call.
    pub(super) fn unreported_denials(&self) -> Vec<(&'static str, u64)> {
        self.denied.unreported()
    }

    /// Returns whether no credential is required.
    pub(super) fn is_open(&self) -> bool {
        let Credentials { token, read_token, certificates, closed, .. } = &self.credentials;
        let is_configured = *certificates || token.is_some() || read_token.is_some();
        !closed && !is_configured && self.known.load().is_empty()
    }

    /// Finds the reader that sent a request. `certificate` is the client certificate of the connection, if there is
    /// one. If an issuer or clusters have to verify the token, waits for them with a deadline.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn identify(
        &self,
        headers: &HeaderMap,
        certificate: Option<&ClientCertificate>,
    ) -> Result<Reader, Denied> {
        if self.is_open() {
            return Ok(Reader::open());
        }
        let known = self.known.load_full();
        if let Some(certificate) = certificate.filter(|_| self.credentials.certificates) {
            return Ok(known.directory.by_certificate(certificate));
        }
        let bearer = bearer(headers).ok_or(Denied::Anonymous)?;
        let token = TokenMac::of(bearer);
        let (change, look) = (known.change.as_ref() == Some(&token), known.look.as_ref() == Some(&token));
        match (change, look, known.directory.by_token(&token)) {
            (true, ..) => Ok(Reader::administrator()),
            (_, true, _) => Ok(Reader::read_token()),
            (.., Some(reader)) => Ok(reader),
            (.., None) => known.verify(bearer).await,
        }
    }

    /// Decides whether a request is allowed, and returns its reader. `reader` is the result of [`Self::identify`]. If
    /// the reader of a request for a public path is unknown, the returned reader sees nothing.
    pub(super) fn authorize<B>(
        &self,
        request: &Request<B>,
        reader: Result<Reader, Denied>,
    ) -> Result<(MayRead, Reader), Denied> {
        let path = request.uri().path();
        // Requests of the read API change nothing, even with the method POST.
        let only_reads = is_kubernetes(path) || path == super::query::PATH;
        let is_get = matches!(*request.method(), Method::GET | Method::HEAD);
        let looks = is_get || only_reads;
        let is_probe = matches!(path, "/livez" | "/readyz");
        let is_public = is_probe || (path == "/metrics" && self.credentials.metrics_open);
        // A web page that uses DNS rebinding has no token, so requests without a credential are restricted to known
        // hosts.
        let has_credential = reader.is_ok() && !self.is_open();
        let hosts = self.credentials.hosts.as_ref();
        let is_unknown_host = !has_credential && hosts.is_some_and(|hosts| !hosts.accepts(request));
        let verdict = match (reader, looks) {
            (_, true) if is_unknown_host && is_probe => Ok((MayRead(false), Reader::unknown())),
            (Ok(_), _) if is_unknown_host => Err(Denied::UnknownHost),
            (Err(_), true) if is_unknown_host && is_public => Err(Denied::UnknownHost),
            // A web page can make a visitor's browser send requests to a hub that the page's author cannot reach. Such
            // requests have an `Origin` header. A `GET` is harmless, because the page cannot read the answer.
            (Ok(_), looks) if self.is_open() && !is_get && is_of_page(request, looks) => Err(Denied::WebPage),
            // Public metrics need no credential, so a reader that sees only some objects may get them too.
            (Ok(reader), true) if path == "/metrics" && is_public && !reader.sees_everything() => {
                Ok((MayRead(false), reader))
            }
            (Ok(reader), looks) if looks || reader.may_change() => Ok((MayRead(true), reader)),
            (Ok(_), _) => Err(Denied::ReadOnly),
            (Err(_), true) if is_public => Ok((MayRead(false), Reader::unknown())),
            (Err(denied), _) => Err(denied),
        };
        let impersonates = request.headers().keys().any(|name| name.as_str().starts_with(IMPERSONATE));
        let verdict = verdict.and_then(|allowed| if impersonates { Err(Denied::Impersonation) } else { Ok(allowed) });
        if let Err(denied) = &verdict {
            self.denied.add(*denied);
        }
        verdict
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("credentials", &self.credentials).finish_non_exhaustive()
    }
}

/// Returns whether a web page sent the request, i.e. whether it has an `Origin` header. With `is_own_allowed`, headers
/// that name the hub's own origin are ignored.
fn is_of_page<B>(request: &Request<B>, is_own_allowed: bool) -> bool {
    let target = request.uri().authority().map(Authority::as_str);
    let host = target.or_else(|| request.headers().get(HOST).and_then(|host| host.to_str().ok()));
    let is_own = |origin: &HeaderValue| {
        let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
        origin.zip(host).is_some_and(|((_, origin), host)| origin.eq_ignore_ascii_case(host))
    };
    request.headers().get_all(ORIGIN).iter().any(|origin| !(is_own_allowed && is_own(origin)))
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests;
