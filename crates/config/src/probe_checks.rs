//! Checks of a table's values by the functions in [`Probes`], whose findings become mistakes.

use std::fs;
use std::path::Path;

use super::Secret;
use super::probes::{Probes, WrongKubeconfig};
use super::service_config::TlsConfig;
use super::spans::KeyPath;
use super::table::{Checker, Table};
use super::transport_config::{HeaderText, TemplateText};

impl Table<'_> {
    /// Runs a probe on the value of `key`, if the key has a value without mistakes and probes are enabled. A failure
    /// becomes a mistake of `key`.
    pub(super) fn probe<T: ?Sized>(&self, key: &str, value: Option<&T>, probe: impl Fn(&Probes, &T) -> ProbeResult) {
        let path = self.path.key(key);
        if let (Some(probes), Some(value)) = (&self.checker.probes, value)
            && self.checker.is_clean(&path)
            && let Err(problem) = probe(probes, value)
        {
            self.checker.mistake(&path, problem);
        }
    }

    /// Checks the key `ca_file` with [`Probes::ca_file`].
    pub(super) fn probe_ca_file(&self, file: Option<&Path>) {
        self.probe("ca_file", file.filter(|file| file.is_file()), |probes, file| (probes.ca_file)(file));
    }

    /// Checks a client certificate and its key with [`Probes::client_cert`].
    pub(super) fn probe_client_cert(&self, cert: &Path, key: &Path) {
        let clean =
            ["client_cert_file", "client_key_file"].iter().all(|key| self.checker.is_clean(&self.path.key(key)));
        if let Some(probes) = &self.checker.probes
            && clean
            && cert.is_file()
            && key.is_file()
            && let Err((key, problem)) = (probes.client_cert)(cert, key)
        {
            self.mistake(key, problem);
        }
    }

    /// Checks the certificate of the hub's port with [`Probes::server_tls`].
    pub(super) fn probe_server_tls(&self, tls: &TlsConfig) {
        let files = [Some(&tls.cert_file), Some(&tls.key_file), tls.client_ca_file.as_ref()];
        if let Some(probes) = &self.checker.probes
            && self.checker.is_clean(&self.path)
            && files.into_iter().flatten().all(|file| file.is_file())
            && let Err((key, problem)) = (probes.server_tls)(tls)
        {
            self.mistake(key, problem);
        }
    }

    /// Checks a token, read from its variable or file, with [`Probes::token`].
    pub(super) fn probe_token(&self, key: &str, token: Option<&Secret>) {
        let text = token.and_then(|token| self.checker.look_up(token));
        self.probe(key, text.as_deref(), |probes, text| (probes.token)(text));
    }

    /// Checks a template, inline or in a file, with [`Probes::template`].
    pub(super) fn probe_template(&self, template: &TemplateText, content_type: &str) {
        match template {
            TemplateText::Inline(text) => {
                self.probe("template", Some(text.as_str()), |probes, text| (probes.template)(text, content_type));
            }
            TemplateText::File(file) => {
                self.probe("template_file", Some(file).filter(|file| file.is_file()), |probes, file| {
                    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
                    (probes.template)(&text, content_type)
                });
            }
        }
    }

    /// Checks a kubeconfig with [`Probes::kubeconfig`]. A failure becomes a mistake of the key `kubeconfig`, or of
    /// `context` if the file lacks the given context.
    pub(super) fn probe_kubeconfig(&self, file: Option<&Path>, context: Option<&str>) {
        let path = self.path.key("kubeconfig");
        if let (Some(probes), Some(file)) = (&self.checker.probes, file.filter(|file| file.is_file()))
            && self.checker.is_clean(&path)
        {
            match (probes.kubeconfig)(file, context) {
                Ok(()) => {}
                Err(WrongKubeconfig::Context(problem)) if context.is_some() => self.mistake("context", problem),
                Err(WrongKubeconfig::File(problem) | WrongKubeconfig::Context(problem)) => {
                    self.checker.mistake(&path, problem);
                }
            }
        }
    }

    /// Checks a signing secret, read from its variable or file, with [`Probes::signing_secret`].
    pub(super) fn probe_signing_secret(&self, secret: Option<&Secret>) {
        let text = secret.and_then(|secret| self.checker.look_up(secret));
        self.probe("signing_secret", text.as_deref(), |probes, text| (probes.signing_secret)(text));
    }
}

type ProbeResult = Result<(), String>;

impl Checker<'_> {
    /// Reports a mistake if a secret's file is empty or unreadable. A pipe is not read, because its content can be read only
    /// once.
    pub(super) fn check_secret_file(&self, path: &KeyPath, file: &Path) {
        if self.probes.is_some()
            && self.is_clean(path)
            && file.is_file()
            && let Err(problem) = Secret::File(file.to_owned()).read()
        {
            self.mistake(path, format!("{}: {problem}", file.display()));
        }
    }

    /// Checks a header with [`Probes::header`].
    pub(super) fn probe_header(&self, path: &KeyPath, name: &str, value: &HeaderText) {
        let value = match value {
            HeaderText::Plain(text) => Some(text.clone()),
            HeaderText::Secret(secret) => self.look_up(secret),
        };
        if let Some(probes) = &self.probes
            && self.is_clean(path)
            && let Err(problem) = (probes.header)(name, value.as_deref())
        {
            self.mistake(path, problem);
        }
    }

    /// Reads a secret from the given environment or a regular file; `None` if it cannot be read.
    fn look_up(&self, secret: &Secret) -> Option<String> {
        match secret {
            Secret::Env(name) => self.environment?.get(name).cloned(),
            Secret::File(file) => fs::metadata(file).is_ok_and(|file| file.is_file()).then(|| secret.read().ok())?,
        }
    }
}
