//! Protection of the HTTP port (TLS, tokens, readers, limits), made from the configuration.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;

use super::fetch::FetchOverHttp;
use super::read_api::StartedFleet;
use super::reviews::ClusterReviews;
use crate::api::{
    Auditor, IdentityFrom, Limits, OidcSource, Protection, ReaderEntry, ReaderSettings, TlsFiles, TokenFrom,
};
use informer_hub_access::{FetchFailure, Identity, Oidc, OidcSettings, ReaderLimits, Rule, TokenReviewSettings};
use informer_hub_audit::{AuditLog, AuditLogOptions, FileOutput, Level, Output, Policy, PolicyRule, StandardOutput};
use informer_hub_config::{AuditConfig, AuditLevel, AuditOutputConfig, AuditRuleConfig};
use informer_hub_config::{Config, OidcConfig, ReaderConfig, ReaderIdentity, RuleConfig, Secret, TlsConfig};

/// Returns the protection of the port.
///
/// The `Host` header is checked if the port listens on loopback or the configuration lists allowed hosts. A port on
/// another address is reached by names of pods and services that the hub does not know, so by default its `Host` is not
/// checked.
pub(crate) fn protection(config: &Config, fleet: &StartedFleet) -> Protection {
    let (service, is_loopback) = (&config.hub.service, config.hub.listen.ip().is_loopback());
    let is_checked = is_loopback || !service.allowed_hosts.is_empty();
    Protection {
        readers: readers(config),
        clusters: Some(Arc::new(ClusterReviews::new(fleet))),
        closed: !is_loopback && config.authenticates(),
        hosts: is_checked.then(|| service.allowed_hosts.clone()),
        tls: service.tls.as_ref().map(tls_files),
        token: service.auth.token.as_ref().map(token),
        read_token: service.auth.read_token.as_ref().map(token),
        metrics_open: service.auth.metrics_open,
        limits: Limits { connections: service.max_connections, ..Limits::default() },
        audit: None,
    }
}

/// Opens the audit log of the configuration, if it has one.
///
/// # Errors
/// The file cannot be opened.
pub(super) fn auditor(config: &Config) -> anyhow::Result<Option<Arc<Auditor>>> {
    let Some(AuditConfig { output, rules, .. }) = &config.hub.service.audit else { return Ok(None) };
    let output: Box<dyn Output> = match output {
        AuditOutputConfig::Stdout => Box::new(StandardOutput),
        AuditOutputConfig::File { path, max_size, keep } => {
            let file = FileOutput::open(path.clone(), *max_size, *keep);
            let place = || format!("cannot open the audit log {} (hub.audit.path)", path.display());
            Box::new(file.with_context(place)?)
        }
    };
    let policy = Policy::new(rules.iter().map(audit_rule).collect());
    let log = AuditLog::start(output, AuditLogOptions::default());
    Ok(Some(Arc::new(Auditor::new(log.context("cannot start the writer of the audit log")?, policy))))
}

fn audit_rule(config: &AuditRuleConfig) -> PolicyRule {
    let patterns = |texts: &[String]| texts.iter().map(|text| text.as_str().into()).collect();
    PolicyRule {
        level: match config.level {
            AuditLevel::None => Level::None,
            AuditLevel::Metadata => Level::Metadata,
        },
        readers: patterns(&config.readers),
        groups: patterns(&config.groups),
        verbs: config.verbs.iter().map(Into::into).collect(),
        resources: config.resources.clone(),
        paths: patterns(&config.paths),
    }
}

pub(super) fn tls_files(tls: &TlsConfig) -> TlsFiles {
    let tls = tls.clone();
    TlsFiles { cert_file: tls.cert_file, key_file: tls.key_file, client_ca_file: tls.client_ca_file }
}

fn token(secret: &Secret) -> TokenFrom {
    let secret = secret.clone();
    TokenFrom::new(secret.file().map(Path::to_owned), Arc::new(move || secret.read()))
}

/// Returns the configured readers of the port: users with tokens, and the settings of access reviews, OIDC and token
/// reviews.
pub(super) fn readers(config: &Config) -> ReaderSettings {
    let reviews = config.hub.service.authorization.kubernetes.is_some();
    let token_review = config.hub.service.authorization.token_review.as_ref().map(|review| TokenReviewSettings {
        clusters: review.clusters.clone(),
        audience: review.audience.clone(),
        kept: review.cache,
    });
    let oidc = config.oidc.as_ref().map(oidc_source);
    ReaderSettings { readers: config.readers.iter().map(reader).collect(), reviews, oidc, token_review }
}

fn oidc_source(config: &OidcConfig) -> OidcSource {
    OidcSource {
        settings: oidc_settings(config),
        ca_file: config.ca_file.clone(),
        fetch: Arc::new(FetchOverHttp::new(config.ca_file.clone())),
    }
}

/// Fetches the keys of an issuer once, to check the configuration.
///
/// # Errors
/// [`FetchFailure`] if it does not publish usable keys.
pub(crate) async fn check_issuer(config: &OidcConfig) -> Result<(), FetchFailure> {
    let OidcSource { settings, fetch, .. } = oidc_source(config);
    Oidc::new(settings, fetch).check().await
}

fn oidc_settings(config: &OidcConfig) -> OidcSettings {
    OidcSettings {
        issuer: config.issuer.clone(),
        audience: config.audience.clone(),
        username_claim: config.username_claim.clone(),
        groups_claim: config.groups_claim.clone(),
        username_prefix: config.username_prefix.clone(),
        groups_prefix: config.groups_prefix.clone(),
    }
}

fn reader(config: &ReaderConfig) -> ReaderEntry {
    let identity = match &config.identity {
        ReaderIdentity::Token(secret) => IdentityFrom::Token(token(secret)),
        ReaderIdentity::CommonName(name) => IdentityFrom::Known(Identity::CommonName(name.into())),
        ReaderIdentity::Organization(name) => IdentityFrom::Known(Identity::Organization(name.into())),
        ReaderIdentity::OidcGroup(group) => IdentityFrom::Known(Identity::OidcGroup(group.into())),
        ReaderIdentity::OidcUser(user) => IdentityFrom::Known(Identity::OidcUser(user.into())),
        ReaderIdentity::ServiceAccount(account) => {
            IdentityFrom::Known(Identity::service_account(account.cluster.clone(), &account.namespace, &account.name))
        }
    };
    let limits = config.limits;
    ReaderEntry {
        name: config.name.clone(),
        identity,
        rules: config.allow.iter().map(rule).collect(),
        limits: ReaderLimits {
            requests: limits.requests,
            scans: limits.scans,
            watches: limits.watches,
            bytes_per_second: limits.bytes_per_second,
        },
        may_change: config.change,
    }
}

fn rule(config: &RuleConfig) -> Rule {
    let resources = config.resources.iter().cloned().map(Into::into).collect();
    let except = config.except.iter().cloned().map(Into::into).collect();
    Rule::new(config.clusters.clone(), &config.namespaces, resources, except)
}
