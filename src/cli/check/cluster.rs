//! Asks one cluster everything that a check wants to know of it.

use std::collections::BTreeSet;
use std::path::Path;

use futures::StreamExt;
use kube::Client;
use tokio::runtime::Handle;

use super::credentials;
use super::report::{ClusterReport, Finding, Level, ResourceReport, ScopeReport};
use crate::app;
use crate::cli::rbac::{Advice, Of};
use crate::discovery::{self, Claim};
use informer_hub_config::{ClusterConfig, ResourceConfig};
use informer_hub_reflector::{ErrorClass, SourceError};
use informer_hub_source::{self as source, DiscoveryError};
use informer_hub_types::{ApiResource, ClusterName, Found, ResourceRef, Scope, View, clock, object_memory};

/// Resources of a cluster that are asked about at the same time.
const AT_ONCE: usize = 4;

/// Of a cluster whose certificate is not verified.
pub(super) const UNVERIFIED: &str = "insecure-skip-tls-verify is set: the certificate of the apiserver is not verified, and \
    whatever answers at its address is sent the credentials";
pub(super) const NAME_ITS_CA: &str =
    "remove it, and name the CA of the cluster: certificate-authority-data in the kubeconfig, or ca_file";

/// How much smaller a body gets: measured of pods (docs/memory.md).
const PACKED: u64 = 16;

/// Groups of a user that are reported, and characters of a name of one.
const MOST_GROUPS: usize = 50;

/// Fills a report; what is in it when this is cut off holds as far as it goes. `file` is the configuration's.
pub(super) async fn check(
    cluster: &ClusterConfig,
    resources: &[&ResourceConfig],
    file: &Path,
    report: &mut ClusterReport,
) {
    let access = app::access(cluster);
    // What is wrong with the kubeconfig, the client says too.
    let read = move || (source::credentials(&access), source::skips_tls_verification(&access));
    if let Ok((found, is_unverified)) = tokio::task::spawn_blocking(read).await {
        report.credentials = found.unwrap_or_default();
        if is_unverified {
            report.find(Level::Warning, UNVERIFIED, NAME_ITS_CA);
        }
    }
    credentials::judge(report, clock::wall());
    let client = match app::client(cluster, &Handle::current()).await {
        Ok(client) => client,
        Err(error) => {
            let problem = format!("{:#}", anyhow::Error::from(error));
            report.find(Level::Error, problem, "mend what it names; nothing was asked of the cluster");
            return;
        }
    };
    match source::server_version(&client).await {
        Ok(version) => report.version = Some(version),
        // It answers: only anonymous or odd roles hide their version.
        Err(error) if error.class == ErrorClass::Forbidden => report.version = Some("unknown".to_owned()),
        Err(error) => {
            report.find(Level::Error, error.message, what_to_do(error.class));
            return;
        }
    }
    // A server that does not say is no reason for a finding: rights are asked for one by one.
    report.identity = source::whoami(&client).await.ok().map(|mut identity| {
        identity.groups.truncate(MOST_GROUPS);
        identity
    });
    let of = match report.source {
        Some(_) => Of::Sourced,
        None => Of::Cluster(cluster.name.as_str(), resources),
    };
    let rights = Advice { config: file, of, access: &cluster.access, identity: report.identity.as_ref() }.text();
    let resources = expand(&client, resources, report, &cluster.name, &rights).await;
    let asked = resources.iter().map(|resource| {
        let (client, cluster, rights) = (client.clone(), cluster.name.clone(), rights.as_str());
        async move { Asking { client: &client, cluster: &cluster, rights, resource, findings: Vec::new() }.run().await }
    });
    let mut answers = std::pin::pin!(futures::stream::iter(asked).buffered(AT_ONCE));
    while let Some((resource, findings)) = answers.next().await {
        report.resources.push(resource);
        report.findings.extend(findings);
    }
}

/// Each resource of a pattern in the place of the pattern.
async fn expand(
    client: &Client,
    resources: &[&ResourceConfig],
    report: &mut ClusterReport,
    cluster: &ClusterName,
    rights: &str,
) -> Vec<ResourceConfig> {
    let mut found: Vec<_> = resources.iter().filter(|it| it.resource.one().is_some()).map(|it| (*it).clone()).collect();
    if resources.iter().any(|it| it.is_dynamic()) {
        may_hear_of_changes(client, report, rights).await;
    }
    let patterns: Vec<_> = resources.iter().filter_map(|it| Some((*it, it.resource.pattern()?))).collect();
    if patterns.is_empty() {
        return found;
    }
    let catalogue = match source::discover_catalogue(client).await {
        Ok(catalogue) => catalogue,
        Err(error) => {
            report.find(Level::Error, error.message, what_to_do(error.class));
            return found;
        }
    };
    let named = found.iter().filter_map(|it| match catalogue.find(it.resource.one()?) {
        Found::Resource(found) => Some((found.gvr.group, found.gvr.resource)),
        Found::OtherVersions(_) | Found::Unknown | Found::Nothing => None,
    });
    let named: BTreeSet<_> = named.collect();
    let claims = patterns.iter().map(|(entry, pattern)| Claim { user: &entry.name, pattern });
    for (name, share) in discovery::share(claims, &named, &catalogue) {
        let Some((entry, pattern)) = patterns.iter().find(|(entry, _)| entry.name == name) else { continue };
        let mut about = |level, problem: String, advice: &str| {
            let (about, advice) = (format!("resources.{name} in {cluster}"), advice.to_owned());
            report.findings.push(Finding { level, about, problem, advice });
        };
        if share.watched.is_empty() {
            let advice = "look at the pattern, or install it: the hub picks it up when it comes";
            about(Level::Warning, format!("nothing that the cluster has matches {pattern}"), advice);
        }
        if !share.left_out.is_empty() {
            let problem = format!("the limit of {} leaves out {}", pattern.limit, share.left_out.join(", "));
            about(Level::Warning, problem, "raise limit, or exclude what nobody wants");
        }
        for resource in share.watched {
            let written = ResourceRef { version: None, ..ResourceRef::exact(&resource.gvr) };
            found.push(ResourceConfig { resource: written.into(), ..(*entry).clone() });
        }
    }
    found
}

/// Whether it is heard at once of resources that come and go.
async fn may_hear_of_changes(client: &Client, report: &mut ClusterReport, rights: &str) {
    for resource in [discovery::definitions(), discovery::services()] {
        if let Ok(verdict) = source::check_access(client, "watch", &resource, None).await
            && !verdict.allowed
        {
            let problem =
                format!("may not watch {}: resources that come and go are noticed after 30 to 45 s", resource.gvr);
            report.find(Level::Warning, problem, rights);
        }
    }
}

pub(super) fn what_to_do(class: ErrorClass) -> &'static str {
    match class {
        ErrorClass::Refused => {
            "nothing listens there: look at the address and its port, and whether the apiserver runs"
        }
        ErrorClass::Unauthorized => "the cluster does not know whoever this is: renew the credentials",
        ErrorClass::Stalled => "nothing comes back: look for a firewall, a VPN or a proxy in between",
        ErrorClass::NotFound | ErrorClass::Malformed => "what answers is no apiserver: look at the address",
        ErrorClass::Throttled(_) => "the apiserver is overloaded: try again later",
        _ => "look at the address, its name in DNS, and the CA that its certificate is checked against",
    }
}

/// One entry of `[resources]`, while it is asked about.
struct Asking<'a> {
    client: &'a Client,
    cluster: &'a ClusterName,
    /// What to do where rights are missing.
    rights: &'a str,
    resource: &'a ResourceConfig,
    findings: Vec<Finding>,
}

impl Asking<'_> {
    async fn run(mut self) -> (ResourceReport, Vec<Finding>) {
        let name = self.resource.name.clone();
        let mut report = ResourceReport { name, resource: None, streaming: None, scopes: Vec::new() };
        let Some(written) = self.resource.resource.one() else { return (report, self.findings) };
        let found = match source::resolve(self.client, written).await {
            Ok(found) => found,
            Err(error) => {
                self.not_resolved(&error);
                return (report, self.findings);
            }
        };
        report.resource = Some(found.gvr.long());
        let namespaces = &self.resource.namespaces;
        if !found.namespaced && !namespaces.is_empty() {
            let problem = format!("{} is of the cluster as a whole: namespaces has no effect", found.gvr);
            self.find(Level::Warning, problem, "remove namespaces from the entry");
        }
        let scopes: Vec<_> = if found.namespaced && !namespaces.is_empty() {
            namespaces.iter().map(|namespace| Some(namespace.as_str())).collect()
        } else {
            vec![None]
        };
        for namespace in scopes {
            let scope = self.scope(&found, namespace).await;
            if report.streaming.is_none() && scope.watch == Some(true) {
                report.streaming =
                    source::supports_streaming_lists(self.client, &found, &self.scope_of(namespace)).await.ok();
            }
            report.scopes.push(scope);
        }
        (report, self.findings)
    }

    fn scope_of(&self, namespace: Option<&str>) -> Scope {
        Scope {
            namespace: namespace.map(Into::into),
            label_selector: self.resource.label_selector.as_ref().map(|selector| selector.to_string().into()),
            field_selector: self.resource.field_selector.as_deref().map(Into::into),
            view: View::Shared,
        }
    }

    async fn scope(&mut self, found: &ApiResource, namespace: Option<&str>) -> ScopeReport {
        let mut report = ScopeReport { namespace: namespace.map(str::to_owned), ..ScopeReport::default() };
        report.list = self.may("list", found, namespace).await;
        report.watch = self.may("watch", found, namespace).await;
        if report.list == Some(false) {
            return report;
        }
        let scope = self.scope_of(namespace);
        match source::estimate(self.client, found, &scope, self.resource.metadata_only).await {
            Ok(estimate) => {
                report.list = Some(true);
                report.objects = estimate.objects;
                let body = estimate.sample.unwrap_or_default() as u64 / PACKED;
                report.memory = estimate.objects.map(|objects| object_memory(objects, objects.saturating_mul(body)));
            }
            Err(error) => {
                let advice = match error.class {
                    ErrorClass::Forbidden => self.rights.to_owned(),
                    _ if self.resource.field_selector.is_some() => {
                        "see that the resource has the fields of field_selector: most have metadata.name and \
                         metadata.namespace only"
                            .to_owned()
                    }
                    class => what_to_do(class).to_owned(),
                };
                report.list = report.list.filter(|_| error.class != ErrorClass::Forbidden);
                self.find(Level::Error, error.message, advice);
            }
        }
        report
    }

    /// What the authorisers say; `None`, and a finding, where they say nothing.
    async fn may(&mut self, verb: &str, found: &ApiResource, namespace: Option<&str>) -> Option<bool> {
        let place = namespace.map_or_else(|| "in any namespace".to_owned(), |name| format!("in namespace {name}"));
        let place = if found.namespaced { place } else { "in the cluster".to_owned() };
        match source::check_access(self.client, verb, found, namespace).await {
            Ok(verdict) => {
                if !verdict.allowed {
                    let reason =
                        if verdict.reason.is_empty() { String::new() } else { format!(" ({})", verdict.reason) };
                    let problem = format!("may not {verb} {} {place}{reason}", found.gvr);
                    self.find(Level::Error, problem, self.rights);
                }
                Some(verdict.allowed)
            }
            Err(SourceError { message, .. }) => {
                let problem = format!("cannot be told whether {} may be {verb}ed {place}: {message}", found.gvr);
                let advice = "let it make SelfSubjectAccessReviews (system:basic-user), or go by what the hub says";
                self.find(Level::Warning, problem, advice);
                None
            }
        }
    }

    fn not_resolved(&mut self, error: &DiscoveryError) {
        let advice = match error {
            DiscoveryError::NotFound { nearest, .. } => match nearest.first() {
                Some(meant) => {
                    format!("write {meant:?} if that is meant; or install it: the hub picks it up when it comes")
                }
                None if self.resource.resource.one().is_some_and(|written| written.group.is_some()) => {
                    "install it: the hub picks it up when it comes; or leave it out, if it never does".to_owned()
                }
                None => "write it in full (plural.group), or install it: the hub picks it up when it comes".to_owned(),
            },
            DiscoveryError::Unavailable(error) => what_to_do(error.class).to_owned(),
        };
        self.find(Level::Error, error.to_string(), advice);
    }

    fn find(&mut self, level: Level, problem: String, advice: impl Into<String>) {
        let about = format!("resources.{} in {}", self.resource.name, self.cluster);
        self.findings.push(Finding { level, about, problem, advice: advice.into() });
    }
}
