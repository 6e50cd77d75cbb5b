//! Current protection of the HTTP port: reloads TLS and token files when they change, and logs denied requests.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use rustls::ServerConfig;

use super::audit::Auditor;
use super::authentication::{Access, Credentials, ReaderSettings, TokenError, TokenFrom};
use super::hosts::Hosts;
use super::tls::{TlsError, TlsFiles};
use informer_hub_access::ReviewTokens;
use informer_hub_disk::FileStates;
use informer_hub_types::clock;

/// How often the TLS and token files are checked for changes.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Number of file checks between two log reports of denied requests.
const CHECKS_PER_REPORT: u32 = 60;

/// Protection of the HTTP port.
#[derive(Clone, Debug, Default)]
pub struct Protection {
    /// TLS files; `None` serves plain HTTP.
    pub tls: Option<TlsFiles>,
    /// Token that grants all rights (`hub.auth.token`).
    pub token: Option<TokenFrom>,
    /// Token that grants only reading (`hub.auth.read_token`).
    pub read_token: Option<TokenFrom>,
    /// Readers (API users) that authenticate by other means than the tokens of `hub.auth`.
    pub readers: ReaderSettings,
    /// Sends token reviews of service accounts to clusters; with `None`, service accounts are not accepted.
    pub clusters: Option<Arc<dyn ReviewTokens>>,
    /// Whether requests still need a credential after a reload has removed all readers. If false, the port then accepts
    /// requests without a credential.
    pub closed: bool,
    /// Whether `/metrics` requires no credential.
    pub metrics_open: bool,
    /// Names under which the port is served, such as `hub.example.com` and `*.example.com`. `localhost` and IP
    /// addresses are always accepted. A request without a credential is denied if it names another host. `None` accepts
    /// any host.
    pub hosts: Option<Vec<String>>,
    /// Limits of requests and connections.
    pub limits: Limits,
    /// Audit log, if there is one.
    pub audit: Option<Arc<Auditor>>,
}

/// Limits of requests and connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of connections. A further connection replaces the connection that has been idle longest. If none
    /// is idle, the further connection waits. Default 1024.
    pub connections: usize,
    /// Timeout for a TLS handshake, for the head of a request, and for idle HTTP/1.1 connections. Default 15 s.
    pub head: Duration,
    /// Maximum bytes of a request's head. Default 32 KiB.
    pub head_bytes: usize,
    /// Maximum bytes of a request's body. Default 64 KiB.
    pub body_bytes: usize,
    /// Timeout from reading a request's head to the head of its response. It includes reading the request's body.
    /// Default 30 s.
    pub request: Duration,
    /// Timeout for a client that does not read the response, and for idle HTTP/2 connections. Default 60 s.
    pub taking: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            head: Duration::from_secs(15),
            head_bytes: 32 << 10,
            body_bytes: 64 << 10,
            request: Duration::from_secs(30),
            taking: Duration::from_secs(60),
        }
    }
}

/// Invalid TLS files or tokens of the HTTP port; the operator can fix the configuration.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// `[hub.tls]` is invalid.
    #[error("cannot use hub.tls")]
    Tls(#[from] TlsError),
    /// A token of `[hub.auth]` or of a reader is invalid.
    #[error("cannot use a token for the HTTP port")]
    Token(#[from] TokenError),
}

/// Current TLS configuration, tokens and limits of the port.
#[derive(Debug)]
pub struct Guard {
    files: Option<TlsFiles>,
    config: ArcSwapOption<ServerConfig>,
    pub(super) access: Arc<Access>,
    pub(super) limits: Limits,
    pub(super) audit: Option<Arc<Auditor>>,
    versions: Mutex<FileVersions>,
}

/// Sizes and modification times of the TLS and token files when they were last read, successfully or not.
#[derive(Debug, Default)]
struct FileVersions {
    tls: FileStates,
    tokens: FileStates,
}

impl Guard {
    /// Creates the guard and reads all TLS and token files.
    ///
    /// # Errors
    /// [`GuardError`] if TLS files or tokens cannot be used.
    pub fn new(protection: Protection) -> Result<Self, GuardError> {
        let Protection { tls: files, token, read_token, readers, clusters, closed, metrics_open, hosts, limits, audit } =
            protection;
        let tls = files.as_ref().map(TlsFiles::states).unwrap_or_default();
        let config = files.as_ref().map(TlsFiles::read).transpose()?;
        let certificates = files.as_ref().is_some_and(|files| files.client_ca_file.is_some());
        let hosts = hosts.as_deref().map(Hosts::new);
        let credentials = Credentials { token, read_token, certificates, metrics_open, hosts, closed };
        let access = Arc::new(Access::new(credentials, readers, clusters)?);
        // Tokens may change between this read and the first check, so the first check reads them again.
        let versions = Mutex::new(FileVersions { tls, tokens: FileStates::default() });
        Ok(Self { files, config: ArcSwapOption::new(config), access, limits, audit, versions })
    }

    /// Returns whether connections are unencrypted.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.files.is_none()
    }

    /// Returns whether no credential is required.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.access.is_open()
    }

    /// Returns the access control of the port, to replace its readers.
    #[must_use]
    pub fn access(&self) -> Arc<Access> {
        Arc::clone(&self.access)
    }

    /// Returns the audit log, if there is one.
    #[must_use]
    pub fn audit(&self) -> Option<Arc<Auditor>> {
        self.audit.clone()
    }

    /// Returns the TLS configuration for a new connection; `None` for plain HTTP.
    pub(super) fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.config.load_full()
    }

    /// Reads TLS and token files that have changed. Unusable files are logged once and leave the current state in
    /// place, because files may be replaced one after the other. Blocks.
    fn check_files(&self) {
        let mut versions = self.versions.lock();
        if let Some(files) = &self.files {
            let now = files.states();
            if now != versions.tls {
                versions.tls = now;
                match files.read() {
                    Ok(config) => {
                        self.config.store(Some(config));
                        tracing::info!("using the changed files of hub.tls for new connections");
                    }
                    Err(error) => {
                        let error: &dyn std::error::Error = &error;
                        tracing::warn!(error, "cannot use the changed files of hub.tls; the previous ones stay in use");
                    }
                }
            }
        }
        let now = self.access.files();
        if now != versions.tokens {
            let is_first = std::mem::replace(&mut versions.tokens, now).is_empty() || self.access.was_replaced();
            match self.access.reload_tokens() {
                Ok(()) if is_first => {}
                Ok(()) => tracing::info!("using the changed tokens of hub.auth and readers"),
                Err(error) => {
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(
                        error,
                        "cannot use the changed tokens of hub.auth and readers; the previous ones stay in use"
                    );
                }
            }
        }
    }

    /// Logs the requests that were denied since the last report.
    pub(super) fn report_denials(&self) {
        let (hosts, others): (Vec<_>, Vec<_>) =
            self.access.unreported_denials().into_iter().partition(|(reason, _)| *reason == "host");
        if !others.is_empty() {
            let refused: u64 = others.iter().map(|(_, count)| count).sum();
            let reasons =
                others.iter().map(|(reason, count)| format!("{reason} {count}")).collect::<Vec<_>>().join(", ");
            tracing::warn!(refused, reasons, "denied requests in the last minute");
        }
        for (_, misdirected) in hosts {
            tracing::warn!(misdirected, "denied requests for hosts that are not in hub.allowed_hosts");
        }
    }

    /// Checks files for changes and logs denied requests at intervals, until the future is dropped.
    pub(super) async fn run(self: Arc<Self>) {
        let mut tick = clock::ticks(CHECK_INTERVAL);
        for checks in 1_u32.. {
            tick.tick().await;
            let guard = Arc::clone(&self);
            // On a blocking thread, so that a hanging file system delays nothing else.
            let _ = tokio::task::spawn_blocking(move || guard.check_files()).await;
            if checks.is_multiple_of(CHECKS_PER_REPORT) {
                self.report_denials();
                self.audit.iter().for_each(|audit| audit.report_losses());
            }
        }
    }
}
