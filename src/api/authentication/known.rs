//! Known readers (API users): holders of static tokens, readers from tables of the configuration, users of the OIDC
//! issuer, and service accounts. Clusters review the tokens of service accounts. Any change of the readers replaces the
//! whole value of `KnownReaders`.

use std::sync::Arc;

use super::denied::Denied;
use super::settings::ReaderSettings;
use super::token_from::TokenError;
use informer_hub_access::{
    Directory, Oidc, Reader, ReaderOrigin, ReviewMeter, ReviewTokens, TokenMac, TokenReviewer, check_token,
};

/// Settings of readers (API users), with the tokens as read from their files and environment variables.
#[derive(Debug)]
pub struct PreparedReaders {
    settings: ReaderSettings,
    directory: Directory,
}

impl PreparedReaders {
    /// Reads the tokens. Blocks.
    ///
    /// # Errors
    /// [`TokenError`] if a token cannot be used.
    pub fn read(settings: ReaderSettings) -> Result<Self, TokenError> {
        Ok(Self { directory: settings.directory()?, settings })
    }
}

/// Known readers, with their tokens as last read.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownReaders {
    /// Token of `hub.auth` that grants all rights, also to change the hub.
    pub(super) change: Option<TokenMac>,
    /// Token of `hub.auth` that grants only reading.
    pub(super) look: Option<TokenMac>,
    pub(super) settings: ReaderSettings,
    pub(super) directory: Directory,
    pub(super) oidc: Option<Arc<Oidc>>,
    pub(super) reviewer: Option<Arc<TokenReviewer>>,
}

impl KnownReaders {
    /// Returns the known readers for the new settings `readers`. If the OIDC issuer is unchanged, its cached keys are
    /// kept. If the settings of token reviews are unchanged, the cached reviews are kept. `meter` counts token reviews.
    pub(super) fn replaced_by(
        &self,
        readers: &PreparedReaders,
        clusters: Option<&Arc<dyn ReviewTokens>>,
        meter: &Arc<ReviewMeter>,
    ) -> Self {
        let PreparedReaders { settings, directory } = readers;
        let oidc = settings.oidc.as_ref().map(|source| {
            let is_same = self.settings.oidc.as_ref().is_some_and(|old| old.is_same(source));
            let old = self.oidc.clone().filter(|_| is_same);
            old.unwrap_or_else(|| Arc::new(Oidc::new(source.settings.clone(), Arc::clone(&source.fetch))))
        });
        let reviewer = settings.token_review.as_ref().zip(clusters).map(|(settings, clusters)| {
            let old = self.reviewer.clone().filter(|old| old.settings() == settings);
            old.unwrap_or_else(|| {
                Arc::new(TokenReviewer::new(settings.clone(), Arc::clone(clusters), Arc::clone(meter)))
            })
        });
        Self {
            change: self.change.clone(),
            look: self.look.clone(),
            settings: settings.clone(),
            directory: directory.clone().replacing(&self.directory),
            oidc,
            reviewer,
        }
    }

    /// Returns whether the configuration has no tables of readers, no OIDC issuer and no token reviews. Readers by
    /// tokens of `hub.auth` and by client certificates are ignored.
    pub(super) fn is_empty(&self) -> bool {
        self.directory.is_empty() && self.oidc.is_none() && self.settings.token_review.is_none()
    }

    /// Returns whether a text is one of the static tokens.
    pub(super) fn has_token(&self, text: &str) -> bool {
        if check_token(text).is_err() {
            return false;
        }
        let mac = TokenMac::of(text.as_bytes());
        [&self.change, &self.look].into_iter().any(|known| known.as_ref() == Some(&mac))
            || self.directory.by_token(&mac).is_some()
    }

    /// Verifies a token that is not a static one: a JWT of the OIDC issuer, or the token of a service account.
    pub(super) async fn verify(&self, token: &[u8]) -> Result<Reader, Denied> {
        let token = std::str::from_utf8(token).map_err(|_| Denied::WrongToken)?;
        if let Some(oidc) = self.oidc.as_ref().filter(|oidc| oidc.is_issuer_of(token)) {
            let (user, expires) = oidc.authenticate(token).await.map_err(Denied::Jwt)?;
            return Ok(self.directory.by_oidc(user, expires));
        }
        let Some(reviewer) = &self.reviewer else { return Err(Denied::WrongToken) };
        let account = reviewer.authenticate(token).await.map_err(Denied::ServiceAccount)?;
        Ok(self.directory.by_service_account(account.cluster, account.user, account.expires))
    }

    /// Returns a reader with the grants that it has now; `None` if its credential is no longer valid.
    pub(super) fn current(&self, reader: &Reader) -> Option<Reader> {
        let is_accepted = match reader.origin() {
            ReaderOrigin::Oidc => self.oidc.is_some(),
            ReaderOrigin::ServiceAccount { cluster } => {
                self.reviewer.as_ref().is_some_and(|reviewer| reviewer.settings().clusters.contains(cluster))
            }
            _ => true,
        };
        is_accepted.then(|| self.directory.current(reader))?
    }
}
