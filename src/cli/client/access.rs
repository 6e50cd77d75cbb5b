//! Address of a hub and the files of its credentials, for the configuration of other programs such as kubectl.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use reqwest::{Certificate, Url};

use super::{HubArgs, header, place, read};
use crate::cli::Misuse;
use informer_hub_config::Secret;

/// Address of a hub, and where the credentials for it are stored.
#[derive(Clone, Debug)]
pub(in crate::cli) struct Access {
    pub(in crate::cli) url: Url,
    /// CA certificates to trust, as PEM; `None` for those of the system.
    pub(in crate::cli) ca: Option<Vec<u8>>,
    pub(in crate::cli) token: Option<Token>,
    /// Files of the client certificate and its key; `None` if none is configured.
    pub(in crate::cli) certificate: Option<(PathBuf, PathBuf)>,
}

/// A token, and the file that holds it.
#[derive(Clone)]
pub(in crate::cli) struct Token {
    pub(in crate::cli) text: String,
    /// Absolute path of the token's file. `Err` names the environment variable if the token is not in a file.
    pub(in crate::cli) file: Result<PathBuf, String>,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").field("file", &self.file).finish_non_exhaustive()
    }
}

impl HubArgs {
    /// Returns address and credentials of the hub. Of the tokens in the configuration, prefers `read_token`, which can
    /// only read.
    ///
    /// # Errors
    /// If an option, or a file that it names, is not usable.
    pub(in crate::cli) fn access(&self) -> anyhow::Result<Access> {
        let hub = self.hub()?;
        let url = self.address(hub.as_ref())?;
        let ca = self.ca_file.as_deref().map(|file| read("--ca-file", file)).transpose()?;
        if let (Some(file), Some(ca)) = (&self.ca_file, &ca)
            && Certificate::from_pem_bundle(ca).unwrap_or_default().is_empty()
        {
            bail!("--ca-file {} holds no PEM certificate", file.display());
        }
        let auth = hub.as_ref().map(|hub| &hub.service.auth);
        let token = self.token(auth.map_or([None, None], |auth| [auth.read_token.as_ref(), auth.token.as_ref()]))?;
        let token = token.map(|(secret, text)| Token::new(&secret, text)).transpose()?;
        let certificate = match (&self.client_cert_file, &self.client_key_file) {
            (Some(cert), Some(key)) => Some((absolute(cert)?, absolute(key)?)),
            (None, None) => None,
            _ => return Err(Misuse::error("--client-cert-file and --client-key-file must be given together")),
        };
        Ok(Access { url, ca, token, certificate })
    }
}

impl Token {
    fn new(secret: &Secret, text: String) -> anyhow::Result<Self> {
        header(&text, secret)?;
        let file = match secret.file() {
            Some(file) => Ok(absolute(file)?),
            None => Err(place(secret)),
        };
        Ok(Self { text, file })
    }
}

fn absolute(file: &Path) -> anyhow::Result<PathBuf> {
    std::path::absolute(file).with_context(|| format!("{} is not a path", file.display()))
}
