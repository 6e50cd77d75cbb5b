//! One context of a kubeconfig: server, user and credentials, with warnings about faults and risks.

use std::path::Path;

use jiff::Timestamp;
use kube::config::{Cluster, ExecConfig, ExecInteractiveMode, Kubeconfig, NamedContext};

use crate::cli::check::credentials::verdict;
use informer_hub_source::context_credentials;

/// Summary of a context.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ContextSummary {
    pub(super) context: String,
    /// Host and port of the apiserver, without parts of the address that may be secret.
    pub(super) server: Option<String>,
    pub(super) user: Option<String>,
    /// Kinds of the credentials, in words.
    pub(super) credentials: String,
    pub(super) namespace: Option<String>,
    /// Faults that prevent the hub from using the context, and risks such as a certificate that is not verified.
    pub(super) warnings: Vec<String>,
}

impl ContextSummary {
    /// Examines a context of a kubeconfig and the files that the context names. Runs no credential plugin.
    pub(super) fn of(kubeconfig: &Kubeconfig, named: &NamedContext, now: Timestamp) -> Self {
        let context = named.context.clone().unwrap_or_default();
        let cluster = kubeconfig.clusters.iter().find(|it| it.name == context.cluster);
        let cluster = cluster.and_then(|it| it.cluster.as_ref());
        let mut found = Self {
            context: named.name.clone(),
            server: cluster.and_then(|cluster| host(cluster.server.as_deref()?)),
            user: context.user.clone().filter(|user| !user.is_empty()),
            credentials: String::new(),
            namespace: context.namespace.clone().filter(|namespace| !namespace.is_empty()),
            warnings: Vec::new(),
        };
        match cluster {
            None => found.warn(format!("the file has no cluster {:?}", context.cluster)),
            Some(cluster) => found.look_at_cluster(cluster),
        }
        found.look_at_credentials(kubeconfig, now);
        found.look_at_user(kubeconfig);
        found
    }

    fn warn(&mut self, warning: impl Into<String>) {
        self.warnings.push(warning.into());
    }

    fn look_at_cluster(&mut self, cluster: &Cluster) {
        if self.server.is_none() {
            self.warn("its cluster has no usable address (server)");
        }
        if cluster.insecure_skip_tls_verify == Some(true) {
            self.warn("insecure-skip-tls-verify: the certificate of the apiserver is not verified");
        }
    }

    fn look_at_credentials(&mut self, kubeconfig: &Kubeconfig, now: Timestamp) {
        let all = context_credentials(kubeconfig, Some(&self.context));
        for one in &all {
            if let Some((_, problem)) = verdict(one, now) {
                self.warn(format!("{} {}: {problem}", one.kind.as_str(), one.place));
            }
        }
        let words: Vec<_> = all.iter().map(|one| one.kind.as_str()).filter(|word| *word != "CA").collect();
        self.credentials = if words.is_empty() { "no credentials".to_owned() } else { words.join(" and ") };
    }

    fn look_at_user(&mut self, kubeconfig: &Kubeconfig) {
        let Some(user) = &self.user else { return };
        let auth = kubeconfig.auth_infos.iter().find(|it| it.name == *user).and_then(|it| it.auth_info.as_ref());
        let Some(auth) = auth else {
            self.warn(format!("the file has no user {user:?}"));
            return;
        };
        if auth.client_certificate_data.is_none()
            && let (Some(_), Some(key)) = (&auth.client_certificate, &auth.client_key)
            && !Path::new(key).is_file()
        {
            self.warn(format!("client key {key}: there is no such file"));
        }
        if let Some(provider) = &auth.auth_provider
            && !matches!(provider.name.as_str(), "oidc" | "gcp")
        {
            self.warn(format!("auth-provider {}: not supported; use an exec plugin", provider.name));
        }
        if let Some(exec) = &auth.exec {
            self.look_at_command(exec);
        }
    }

    fn look_at_command(&mut self, exec: &ExecConfig) {
        let Some(command) = exec.command.as_deref().filter(|command| !command.is_empty()) else {
            self.warn("its exec section names no command");
            return;
        };
        if matches!(exec.interactive_mode, Some(ExecInteractiveMode::Always)) {
            self.warn(format!(
                "exec command {command}: needs a terminal (interactiveMode), which a service does not have"
            ));
        }
        if command.contains('/') {
            if !Path::new(command).is_file() {
                self.warn(format!("exec command {command}: there is no such file"));
            }
        } else if !is_on_path(command) {
            self.warn(format!("exec command {command}: not on the PATH of this shell; write its full path"));
        }
    }
}

fn host(server: &str) -> Option<String> {
    let uri: http::Uri = server.parse().ok()?;
    uri.scheme()?;
    let host = uri.host().filter(|host| !host.is_empty())?;
    Some(uri.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
}

fn is_on_path(command: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(command).is_file())
}
