//! Check of one cluster: connection, credentials, identity, and the rights, size and memory of each resource.

use std::collections::BTreeSet;
use std::path::Path;

use futures::StreamExt;
use kube::Client;
use tokio::runtime::Handle;

use super::credentials;
use super::report::{ClusterReport, Finding, Level, ResourceReport, ScopeReport};
use crate::app;
use crate::cli::rbac::{Advice, RightsTarget};
use crate::discovery::{self, Claim};
use informer_hub_config::{ClusterConfig, LeaseConfig, ResourceConfig};
use informer_hub_reflector::{ErrorClass, SourceError};
use informer_hub_source::{self as source, DiscoveryError};
use informer_hub_types::{
    ApiResource, ClusterName, Gvr, ResourceLookup, ResourceRef, Scope, View, clock, first_names, object_memory,
};

/// Maximum number of resources of a cluster that are checked concurrently.
const MAX_CONCURRENT: usize = 4;

/// Finding for a cluster whose configuration turns the verification of the apiserver's certificate off.
pub(super) const UNVERIFIED: &str = "insecure-skip-tls-verify is set: the certificate of the apiserver is not verified, and \
    any server at its address gets the credentials";
/// Advice to use a CA, shown with [`UNVERIFIED`].
pub(super) const NAME_ITS_CA: &str =
    "remove it, and name the CA of the cluster: certificate-authority-data in the kubeconfig, or ca_file";

/// Compression factor of object bodies, measured with pods (docs/memory.md).
const COMPRESSION_FACTOR: u64 = 16;

/// Part of a problem text: the effect on readers if the hub may not create access or token reviews in a cluster.
const NO_READERS: &str = "readers whose rights depend on it see nothing of the cluster";

/// Maximum number of groups of a user in the report.
const MAX_GROUPS: usize = 50;

/// Checks one cluster and fills its report. If the future is dropped, the report has what was found so far. `reviews`
/// are the review resources (access and token reviews) that the hub creates in the cluster for its readers. `lease` is
/// the Lease of the hub's replicas, if it is in this cluster.
pub(super) async fn check(
    cluster: &ClusterConfig,
    (resources, reviews, lease): (&[&ResourceConfig], &[ApiResource], Option<&LeaseConfig>),
    file: &Path,
    report: &mut ClusterReport,
) {
    let access = app::access(cluster);
    // Faults of the kubeconfig are reported by the client below.
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
            report.find(Level::Error, problem, "correct the named fault; no request was sent to the cluster");
            return;
        }
    };
    match source::server_version(&client).await {
        Ok(version) => report.version = Some(version),
        // The cluster answers; it only hides its version from this user.
        Err(error) if error.class == ErrorClass::Forbidden => report.version = Some("unknown".to_owned()),
        Err(error) => {
            report.find(Level::Error, error.message, advice_for(error.class));
            return;
        }
    }
    // An unknown identity is not a finding: each right is checked below.
    report.identity = source::whoami(&client).await.ok().map(|mut identity| {
        identity.groups.truncate(MAX_GROUPS);
        identity
    });
    let target = match report.source {
        Some(_) => RightsTarget::Sourced,
        None => RightsTarget::Cluster(cluster.name.as_str(), resources),
    };
    let rights = Advice { config: file, target, access: &cluster.access, identity: report.identity.as_ref() }.text();
    check_reviews(&client, reviews, report, &rights).await;
    if let Some(lease) = lease {
        check_lease(&client, lease, report, &rights).await;
    }
    let resources = expand(&client, resources, report, &cluster.name, &rights).await;
    let checks = resources.iter().map(|resource| {
        let (client, cluster, rights) = (client.clone(), cluster.name.clone(), rights.as_str());
        async move {
            ResourceCheck { client: &client, cluster: &cluster, rights, resource, findings: Vec::new() }.run().await
        }
    });
    let mut answers = std::pin::pin!(futures::stream::iter(checks).buffered(MAX_CONCURRENT));
    while let Some((resource, findings)) = answers.next().await {
        report.resources.push(resource);
        report.findings.extend(findings);
    }
}

/// Checks the right to create the review resources by which the hub authorizes its readers.
async fn check_reviews(client: &Client, reviews: &[ApiResource], report: &mut ClusterReport, rights: &str) {
    for review in reviews {
        let verdict = source::check_access(client, "create", review, None).await;
        let problem = format!("may not create {}, which [hub.authorization] needs: {}", review.gvr, NO_READERS);
        note_right(verdict, &format!("create {}", review.gvr), problem, (report, rights));
    }
}

/// Adds a finding unless the hub has the right: the error `problem` if the right is missing, a warning if it cannot be
/// checked. `rights` is the advice for a missing right.
fn note_right(
    verdict: Result<source::AccessVerdict, SourceError>,
    right: &str,
    problem: String,
    (report, rights): (&mut ClusterReport, &str),
) {
    match verdict {
        Ok(verdict) if verdict.allowed => {}
        Ok(_) => report.find(Level::Error, problem, rights),
        Err(SourceError { message, .. }) => {
            let problem = format!("cannot check the right to {right}: {message}");
            report.find(Level::Warning, problem, "allow SelfSubjectAccessReviews (system:basic-user)");
        }
    }
}

/// Checks the rights that leader election needs.
async fn check_lease(client: &Client, lease: &LeaseConfig, report: &mut ClusterReport, rights: &str) {
    let gvr = Gvr::new("coordination.k8s.io", "v1", "leases");
    let leases = ApiResource { gvr, kind: "Lease".into(), namespaced: true };
    let place = &lease.namespace;
    let name = Some(lease.name.as_str());
    // RBAC cannot compare the name of an object that is to be created.
    for (verb, name) in [("get", name), ("create", None), ("update", name)] {
        let verdict = source::check_access_to(client, verb, &leases, Some(place), name).await;
        let problem = format!("may not {verb} leases in the namespace {place}, which [ha] needs: no sink delivers");
        note_right(verdict, &format!("{verb} leases"), problem, (report, rights));
    }
}

/// Replaces each pattern entry of `[resources]` by one entry for each resource that it matches in the cluster.
async fn expand(
    client: &Client,
    resources: &[&ResourceConfig],
    report: &mut ClusterReport,
    cluster: &ClusterName,
    rights: &str,
) -> Vec<ResourceConfig> {
    let mut found: Vec<_> = resources.iter().filter(|it| it.resource.one().is_some()).map(|it| (*it).clone()).collect();
    if resources.iter().any(|it| it.is_dynamic()) {
        check_discovery_watches(client, report, rights).await;
    }
    let patterns: Vec<_> = resources.iter().filter_map(|it| Some((*it, it.resource.pattern()?))).collect();
    if patterns.is_empty() {
        return found;
    }
    let catalogue = match source::discover_catalogue(client).await {
        Ok(catalogue) => catalogue,
        Err(error) => {
            report.find(Level::Error, error.message, advice_for(error.class));
            return found;
        }
    };
    let named = found.iter().filter_map(|it| match catalogue.find(it.resource.one()?) {
        ResourceLookup::Resource(found) => Some((found.gvr.group, found.gvr.resource)),
        ResourceLookup::OtherVersions(_) | ResourceLookup::Unknown | ResourceLookup::Nothing => None,
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
            let advice = "correct the pattern, or install a resource that it matches: the hub picks it up";
            about(Level::Warning, format!("no resource of the cluster matches {pattern}"), advice);
        }
        if !share.left_out.is_empty() {
            let problem = format!("the limit of {} leaves out {}", pattern.limit, first_names(&share.left_out));
            about(Level::Warning, problem, "raise limit, or exclude resources that are not needed");
        }
        for resource in share.watched {
            let written = ResourceRef { version: None, ..ResourceRef::exact(&resource.gvr) };
            let mut one = (*entry).clone();
            one.resource = written.into();
            found.push(one);
        }
    }
    found
}

/// Checks the right to watch CRDs and API services, by which the hub notices added and removed resources.
async fn check_discovery_watches(client: &Client, report: &mut ClusterReport, rights: &str) {
    for resource in [discovery::definitions(), discovery::services()] {
        if let Ok(verdict) = source::check_access(client, "watch", &resource, None).await
            && !verdict.allowed
        {
            let problem =
                format!("may not watch {}: new and removed resource types are noticed after 30 to 45 s", resource.gvr);
            report.find(Level::Warning, problem, rights);
        }
    }
}

/// Returns the advice for a failed request, by the class of the error.
pub(super) fn advice_for(class: ErrorClass) -> &'static str {
    match class {
        ErrorClass::Refused => "nothing listens there: check the address and the port, and whether the apiserver runs",
        ErrorClass::Unauthorized => "the cluster does not accept the credentials: renew them",
        ErrorClass::Stalled => "there is no answer: check for a firewall, a VPN or a proxy in between",
        ErrorClass::NotFound | ErrorClass::Malformed => "the server is not an apiserver: check the address",
        ErrorClass::Throttled(_) => "the apiserver is overloaded: try again later",
        _ => "check the address, its DNS name, and the CA of its certificate",
    }
}

/// Check of one entry of `[resources]` in one cluster.
struct ResourceCheck<'a> {
    client: &'a Client,
    cluster: &'a ClusterName,
    /// Advice for missing rights.
    rights: &'a str,
    resource: &'a ResourceConfig,
    findings: Vec<Finding>,
}

impl ResourceCheck<'_> {
    async fn run(mut self) -> (ResourceReport, Vec<Finding>) {
        let name = self.resource.name.clone();
        let written = self.resource.resource.to_string();
        let shown = if name == written { written } else { format!("{name}: {written}") };
        let mut report = ResourceReport { name, shown, resource: None, streaming: None, scopes: Vec::new() };
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
            let problem = format!("{} is cluster-scoped: namespaces has no effect", found.gvr);
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
                let body = estimate.sample.unwrap_or_default() as u64 / COMPRESSION_FACTOR;
                report.memory = estimate.objects.map(|objects| object_memory(objects, objects.saturating_mul(body)));
            }
            Err(error) => {
                let advice = match error.class {
                    ErrorClass::Forbidden => self.rights.to_owned(),
                    _ if self.resource.field_selector.is_some() => {
                        "check that the resource supports the fields of field_selector: most support only metadata.name and \
                         metadata.namespace"
                            .to_owned()
                    }
                    class => advice_for(class).to_owned(),
                };
                report.list = report.list.filter(|_| error.class != ErrorClass::Forbidden);
                self.find(Level::Error, error.message, advice);
            }
        }
        report
    }

    /// Asks the cluster whether a right is granted, and adds a finding if it is not. Returns `None`, and also adds a
    /// finding, if the right cannot be checked.
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
                let problem = format!("cannot check the right to {verb} {} {place}: {message}", found.gvr);
                let advice = "allow SelfSubjectAccessReviews (system:basic-user), or rely on the status of the hub";
                self.find(Level::Warning, problem, advice);
                None
            }
        }
    }

    fn not_resolved(&mut self, error: &DiscoveryError) {
        let advice = match error {
            DiscoveryError::NotFound { nearest, .. } => match nearest.first() {
                Some(nearest) => {
                    format!("write {nearest:?} if that is the resource, or install it: the hub picks it up")
                }
                None if self.resource.resource.one().is_some_and(|written| written.group.is_some()) => {
                    "install it: the hub picks it up; otherwise remove the entry".to_owned()
                }
                None => "write the full name (plural.group), or install it: the hub picks it up".to_owned(),
            },
            DiscoveryError::Unavailable(error) => advice_for(error.class).to_owned(),
        };
        self.find(Level::Error, error.to_string(), advice);
    }

    fn find(&mut self, level: Level, problem: String, advice: impl Into<String>) {
        let about = format!("resources.{} in {}", self.resource.name, self.cluster);
        self.findings.push(Finding { level, about, problem, advice: advice.into() });
    }
}
