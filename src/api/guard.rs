//! What stands between the port and the answers, kept up to date: TLS, tokens, limits.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use rustls::ServerConfig;

use super::access::{Access, TokenError, TokenFrom};
use super::hosts::Hosts;
use super::tls::{TlsError, TlsFiles};
use informer_hub_disk::FileStates;
use informer_hub_types::clock;

/// How often files are looked at.
const LOOK: Duration = Duration::from_secs(1);

/// How often it is told how many were refused, in looks.
const TELL: u32 = 60;

/// What the port is guarded with.
#[derive(Clone, Debug, Default)]
pub struct Protection {
    /// Unset: plain HTTP.
    pub tls: Option<TlsFiles>,
    /// Who has it may do everything.
    pub token: Option<TokenFrom>,
    /// Who has it may look.
    pub read_token: Option<TokenFrom>,
    /// Whether `/metrics` is for everybody.
    pub metrics_open: bool,
    /// Names that the port is served as, beside `localhost` and IP addresses, such as `hub.example.com` and
    /// `*.example.com`. A request that needs no credential is refused if it is for another host. `None`: any host.
    pub hosts: Option<Vec<String>>,
    /// What requests and connections may take.
    pub limits: Limits,
}

/// What requests and connections may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time. One more takes the place of the one that has waited longest for a request; where all are
    /// being answered, it waits. Default 1024.
    pub connections: usize,
    /// How long a TLS handshake, or the head of a request, may take to come; so long an idle connection is kept too.
    /// Default 15 s.
    pub head: Duration,
    /// Bytes of a request's head. Default 16 KiB.
    pub head_bytes: usize,
    /// Bytes of a request's body. Default 64 KiB.
    pub body_bytes: usize,
    /// From a request's head to the head of its answer, the body's way to us included. Default 30 s.
    pub request: Duration,
    /// How long whoever asked may take to take the answer. Default 60 s.
    pub taking: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            head: Duration::from_secs(15),
            head_bytes: 16 << 10,
            body_bytes: 64 << 10,
            request: Duration::from_secs(30),
            taking: Duration::from_secs(60),
        }
    }
}

/// The port cannot be guarded as was asked for; the configuration is at fault.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// `[hub.tls]`.
    #[error("hub.tls cannot be used")]
    Tls(#[from] TlsError),
    /// `[hub.auth]`.
    #[error("hub.auth cannot be used")]
    Token(#[from] TokenError),
}

/// What stands between the port and the answers.
#[derive(Debug)]
pub struct Guard {
    files: Option<TlsFiles>,
    config: ArcSwapOption<ServerConfig>,
    pub(super) access: Access,
    pub(super) limits: Limits,
    seen: Mutex<Seen>,
}

/// What files were like when they were read last, whether or not they were of use.
#[derive(Debug, Default)]
struct Seen {
    tls: FileStates,
    tokens: FileStates,
}

impl Guard {
    /// Reads all files.
    ///
    /// # Errors
    /// [`GuardError`] says which cannot be used.
    pub fn new(protection: Protection) -> Result<Self, GuardError> {
        let Protection { tls: files, token, read_token, metrics_open, hosts, limits } = protection;
        let tls = files.as_ref().map(TlsFiles::states).unwrap_or_default();
        let config = files.as_ref().map(TlsFiles::read).transpose()?;
        let certificates = files.as_ref().is_some_and(|files| files.client_ca_file.is_some());
        let hosts = hosts.as_deref().map(Hosts::new);
        let access = Access::new(token, read_token, certificates, metrics_open, hosts)?;
        // Before the first look they may have changed since they were read: then they are read once more.
        let seen = Mutex::new(Seen { tls, tokens: FileStates::default() });
        Ok(Self { files, config: ArcSwapOption::new(config), access, limits, seen })
    }

    /// Whether what is said can be read on its way.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.files.is_none()
    }

    /// Whether nobody has to say who they are.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.access.is_open()
    }

    /// What a new connection is made with; `None`: plain.
    pub(super) fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.config.load_full()
    }

    /// Looks at the files, and reads those that have changed. What is of no use (yet: files are replaced one after the
    /// other) leaves in place what was there, and is told once. Blocks.
    fn look(&self) {
        let mut seen = self.seen.lock();
        if let Some(files) = &self.files {
            let now = files.states();
            if now != seen.tls {
                seen.tls = now;
                match files.read() {
                    Ok(config) => {
                        self.config.store(Some(config));
                        tracing::info!("hub.tls: the changed files are in use for new connections");
                    }
                    Err(error) => {
                        let error: &dyn std::error::Error = &error;
                        tracing::warn!(error, "hub.tls: the changed files are not usable (yet)");
                    }
                }
            }
        }
        let now = self.access.files();
        if now != seen.tokens {
            let is_first = std::mem::replace(&mut seen.tokens, now).is_empty();
            match self.access.read_again() {
                Ok(()) if is_first => {}
                Ok(()) => tracing::info!("hub.auth: the changed tokens are in use"),
                Err(error) => {
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(error, "hub.auth: the changed tokens are not usable (yet)");
                }
            }
        }
    }

    /// Keeps up with the files, and tells of those who were refused, until it is dropped.
    pub(super) async fn keep(self: Arc<Self>) {
        let mut tick = clock::ticks(LOOK);
        for looks in 1_u32.. {
            tick.tick().await;
            let guard = Arc::clone(&self);
            // A file system that hangs holds up nobody but this.
            let _ = tokio::task::spawn_blocking(move || guard.look()).await;
            if looks.is_multiple_of(TELL) {
                let refused = self.access.refused();
                if refused > 0 {
                    tracing::warn!(refused, "requests without a valid token or certificate in the last minute");
                }
                let misdirected = self.access.misdirected();
                if misdirected > 0 {
                    tracing::warn!(misdirected, "refused requests for hosts that are not in hub.allowed_hosts");
                }
            }
        }
    }
}
