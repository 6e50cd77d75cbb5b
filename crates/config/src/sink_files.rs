//! Files that a sink refers to.

use std::path::Path;

use super::{BodyConfig, ClientCertConfig, HeaderText, NatsAuth, Secret, SinkConfig, TemplateText, TransportConfig};

impl SinkConfig {
    /// Returns the files that are read when the sink is built: secrets, certificates, the template.
    #[must_use]
    pub fn files(&self) -> Vec<&Path> {
        fn secret(secret: &Secret) -> Option<&Path> {
            match secret {
                Secret::File(path) => Some(path),
                Secret::Env(_) => None,
            }
        }
        fn cert(cert: &ClientCertConfig) -> [&Path; 2] {
            [&cert.cert_file, &cert.key_file]
        }
        let mut files: Vec<&Path> = Vec::new();
        match &self.transport {
            TransportConfig::Webhook(hook) => {
                files.extend(hook.signing_secret.as_ref().and_then(secret));
                files.extend(hook.ca_file.as_deref());
                files.extend(hook.client_cert.iter().flat_map(cert));
                files.extend(hook.headers.iter().filter_map(|header| match &header.value {
                    HeaderText::Secret(value) => secret(value),
                    HeaderText::Plain(_) => None,
                }));
            }
            TransportConfig::Nats(nats) => {
                files.extend(nats.ca_file.as_deref());
                files.extend(nats.client_cert.iter().flat_map(cert));
                files.extend(nats.auth.as_ref().and_then(|auth| match auth {
                    NatsAuth::CredsFile(path) => Some(path.as_path()),
                    NatsAuth::Token(value) | NatsAuth::Nkey(value) | NatsAuth::Password { password: value, .. } => {
                        secret(value)
                    }
                }));
            }
            TransportConfig::File(_) | TransportConfig::Stdout(_) => {}
        }
        if let BodyConfig::Template { text: TemplateText::File(path), .. } = &self.body {
            files.push(path);
        }
        files
    }
}
