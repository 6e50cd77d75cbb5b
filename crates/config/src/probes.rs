//! Checks of values that only other layers understand: filters, signing secrets, certificates, kubeconfigs.
//!
//! This layer knows where a value stands and gathers all mistakes; whoever puts the program together knows who reads
//! the value in the end, and hands that knowledge in.

use std::fs;
use std::path::Path;

use super::Secret;
use super::spans::KeyPath;
use super::table::{Checker, Table};
use super::{HeaderText, TemplateText, TlsConfig};

/// What a value is tried with. Each answers with what is wrong and what would be right, never with a secret.
#[derive(Clone, Copy, Debug)]
pub struct Probes {
    /// A sink's `filter`.
    pub filter: fn(&str) -> Result<(), String>,
    /// What a `signing_secret` holds.
    pub signing_secret: fn(&str) -> Result<(), String>,
    /// A `ca_file`.
    pub ca_file: fn(&Path) -> Result<(), String>,
    /// A `client_cert_file` and its `client_key_file`; which of the keys is at fault comes with the problem.
    pub client_cert: fn(&Path, &Path) -> Result<(), WrongKey>,
    /// The hub's own certificate, its key, and the roots of those who ask; which of the keys is at fault comes with the
    /// problem.
    pub server_tls: fn(&TlsConfig) -> Result<(), WrongKey>,
    /// A token that those who ask the hub are to have.
    pub token: fn(&str) -> Result<(), String>,
    /// A sink's template and the media type of what it makes.
    pub template: fn(&str, &str) -> Result<(), String>,
    /// The name of a header and, where it can be seen without harm, its value.
    pub header: fn(&str, Option<&str>) -> Result<(), String>,
    /// The pattern of a NATS sink's subjects.
    pub subject: fn(&str) -> Result<(), String>,
    /// A `kubeconfig` and the `context` that is asked for.
    pub kubeconfig: fn(&Path, Option<&str>) -> Result<(), WrongKubeconfig>,
}

/// A key that is at fault, and how.
pub type WrongKey = (&'static str, String);

/// What a [`Probes::kubeconfig`] finds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WrongKubeconfig {
    /// The file is no kubeconfig.
    File(String),
    /// The file is well, but has no such context.
    Context(String),
}

impl Table<'_> {
    /// Tries a value of this table that has passed all other checks.
    pub(super) fn probe<T: ?Sized>(&self, key: &str, value: Option<&T>, probe: impl Fn(&Probes, &T) -> Verdict) {
        let path = self.path.key(key);
        if let (Some(probes), Some(value)) = (&self.checker.probes, value)
            && self.checker.is_clean(&path)
            && let Err(problem) = probe(probes, value)
        {
            self.checker.mistake(&path, problem);
        }
    }

    /// The same for a CA file.
    pub(super) fn probe_ca_file(&self, file: Option<&Path>) {
        self.probe("ca_file", file.filter(|file| file.is_file()), |probes, file| (probes.ca_file)(file));
    }

    /// The same for a client certificate.
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

    /// The same for the hub's own certificate.
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

    /// The same for a token: its text is looked up where the hub will.
    pub(super) fn probe_token(&self, key: &str, token: Option<&Secret>) {
        let text = token.and_then(|token| self.checker.look_up(token));
        self.probe(key, text.as_deref(), |probes, text| (probes.token)(text));
    }

    /// The same for a template.
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

    /// The same for a kubeconfig, whose mistake may be the context's.
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

    /// The same for a signing secret: its text is looked up where the hub will.
    pub(super) fn probe_signing_secret(&self, secret: Option<&Secret>) {
        let text = secret.and_then(|secret| self.checker.look_up(secret));
        self.probe("signing_secret", text.as_deref(), |probes, text| (probes.signing_secret)(text));
    }
}

type Verdict = Result<(), String>;

impl Checker<'_> {
    /// Notes a mistake when a file that should hold a secret holds none. A pipe is left to its one real reader.
    pub(super) fn check_secret_file(&self, path: &KeyPath, file: &Path) {
        if self.probes.is_some()
            && self.is_clean(path)
            && file.is_file()
            && let Err(problem) = Secret::File(file.to_owned()).read()
        {
            self.mistake(path, format!("{}: {problem}", file.display()));
        }
    }

    /// Tries a header.
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

    /// What a secret is, where that can be seen without harm.
    fn look_up(&self, secret: &Secret) -> Option<String> {
        match secret {
            Secret::Env(name) => self.environment?.get(name).cloned(),
            Secret::File(file) => fs::metadata(file).is_ok_and(|file| file.is_file()).then(|| secret.read().ok())?,
        }
    }
}
