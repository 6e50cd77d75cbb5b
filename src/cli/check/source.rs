//! Check of one cluster source: connection, rights and the clusters that it has.

use std::path::Path;

use kube::Client;
use tokio::runtime::Handle;

use super::report::{Level, SourceCheck};
use crate::actors::messages::ResourceRequest;
use crate::app::{self, WatchedResource};
use crate::cli::rbac::{Advice, RightsTarget};
use informer_hub_config::inventory::{Problem, SourceReport};
use informer_hub_config::{ClusterSourceConfig, ClusterSourceKind, Management};
use informer_hub_reflector::ErrorClass;
use informer_hub_source as source;
use informer_hub_types::{ApiResource, Threads};

/// Maximum number of objects that are listed for one watched resource in one namespace or in all namespaces.
const MAX_OBJECTS: usize = 20_000;

/// Checks one source, fills its report, and returns its clusters. If the future is dropped, the report has what was
/// found so far.
pub(super) async fn check(source: &ClusterSourceConfig, file: &Path, report: &mut SourceCheck) -> SourceReport {
    let found = match &source.kind {
        ClusterSourceKind::Folder { path, contexts } => {
            let found = app::read_folder(source.clone(), path.clone(), *contexts, &Threads::current()).await;
            report.reached = found.is_some();
            found.unwrap_or_else(|| {
                let problem = format!("cannot read the folder {}", path.display());
                report.find(
                    Level::Error,
                    problem,
                    "create it and make it readable for the hub, which polls it every 2 s",
                );
                SourceReport::default()
            })
        }
        _ => match source.kind.management() {
            Some(management) => of_management(source, management, file, report).await,
            None => SourceReport::default(),
        },
    };
    let found = found.limited(source.max_clusters, &std::collections::BTreeSet::new());
    for Problem { object, problem } in &found.problems {
        let advice = "correct the object; other objects of the source are not affected (docs/clusters.md)";
        report.find(Level::Error, format!("{object}: {problem}"), advice);
    }
    if found.over > 0 {
        let problem = format!("{} clusters exceed max_clusters ({})", found.over, source.max_clusters);
        report.find(Level::Warning, problem, "raise max_clusters, or narrow the source");
    }
    report.invalid = found.problems.len();
    found
}

async fn of_management(
    source: &ClusterSourceConfig,
    management: &Management,
    file: &Path,
    report: &mut SourceCheck,
) -> SourceReport {
    let cluster = app::management_cluster(source, management);
    let access = app::access(&cluster);
    if tokio::task::spawn_blocking(move || source::skips_tls_verification(&access)).await.unwrap_or(false) {
        report.find(Level::Warning, super::cluster::UNVERIFIED, super::cluster::NAME_ITS_CA);
    }
    let client = match app::client(&cluster, &Handle::current()).await {
        Ok(client) => client,
        Err(error) => {
            let problem = format!("{:#}", anyhow::Error::from(error));
            report.find(
                Level::Error,
                problem,
                "correct the named fault; no request was sent to the management cluster",
            );
            return SourceReport::default();
        }
    };
    match source::server_version(&client).await {
        Ok(_) => report.reached = true,
        // The cluster answers; it only hides its version from this user.
        Err(error) if error.class == ErrorClass::Forbidden => report.reached = true,
        Err(error) => {
            report.find(Level::Error, error.message, super::cluster::advice_for(error.class));
            return SourceReport::default();
        }
    }
    let identity = source::whoami(&client).await.ok();
    let (target, access) = (RightsTarget::Source(&source.name), &cluster.access);
    let rights = Advice { config: file, target, access, identity: identity.as_ref() }.text();
    let mut all = Vec::new();
    for watching in app::watched_resources(source) {
        let (rights, report) = (rights.as_str(), &mut *report);
        let mut check = ResourceCheck { client: &client, watching: &watching, management, rights, report };
        let Some(objects) = check.run().await else { return SourceReport::default() };
        all.push(objects);
    }
    app::read_objects(source, all)
}

/// Check of one resource of a management cluster.
struct ResourceCheck<'a> {
    client: &'a Client,
    watching: &'a WatchedResource,
    management: &'a Management,
    /// Advice for missing rights.
    rights: &'a str,
    report: &'a mut SourceCheck,
}

impl ResourceCheck<'_> {
    /// Returns the objects of the resource as JSON. Returns `None`, and adds a finding, if they cannot be listed.
    async fn run(&mut self) -> Option<Vec<Box<[u8]>>> {
        let resource = self.resource().await?;
        let mut found = Vec::new();
        for scope in self.watching.scopes(self.management) {
            for verb in ["list", "watch"] {
                self.may(verb, &resource, scope.namespace.as_deref()).await;
            }
            match source::list_objects(self.client, &resource, &scope, MAX_OBJECTS).await {
                Ok(objects) => found.extend(objects),
                Err(error) => {
                    let advice = match error.class {
                        ErrorClass::Forbidden => self.rights,
                        class => super::cluster::advice_for(class),
                    };
                    self.report.find(Level::Error, error.message, advice);
                    return None;
                }
            }
        }
        Some(found)
    }

    async fn resource(&mut self) -> Option<ApiResource> {
        if let ResourceRequest::Known(known) = &self.watching.resource {
            return Some(known.0.clone());
        }
        match source::resolve(self.client, &self.watching.resource.one()?).await {
            Ok(resource) => Some(resource),
            Err(error) => {
                let advice = "check the address, or install the Cluster Inventory API: the hub picks it up";
                self.report.find(Level::Error, error.to_string(), advice);
                None
            }
        }
    }

    async fn may(&mut self, verb: &str, resource: &ApiResource, namespace: Option<&str>) {
        let place = namespace.map_or_else(|| "in any namespace".to_owned(), |name| format!("in namespace {name}"));
        match source::check_access(self.client, verb, resource, namespace).await {
            Ok(verdict) if verdict.allowed => {}
            Ok(_) => {
                let problem = format!("may not {verb} {} {place}", resource.gvr);
                self.report.find(Level::Error, problem, self.rights);
            }
            Err(error) => {
                let problem = format!("cannot check the right to {verb} {} {place}: {}", resource.gvr, error.message);
                let advice = "allow SelfSubjectAccessReviews (system:basic-user), or rely on the status of the hub";
                self.report.find(Level::Warning, problem, advice);
            }
        }
    }
}
