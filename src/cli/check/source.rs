//! Asks about one source of clusters everything that a check wants to know of it.

use std::path::Path;

use kube::Client;
use tokio::runtime::Handle;

use super::report::{Level, SourceReport};
use crate::actors::messages::ResourceRequest;
use crate::app::{self, Watching};
use crate::cli::rbac::{Advice, Of};
use informer_hub_config::fleet::{self, Problem};
use informer_hub_config::{ClusterSourceConfig, ClusterSourceKind, Management};
use informer_hub_reflector::ErrorClass;
use informer_hub_source as source;
use informer_hub_types::{ApiResource, Threads};

/// Objects that are read of a source.
const MOST: usize = 20_000;

/// Fills a report, and gives what the source says; what is in the report when this is cut off holds as far as it goes.
/// `file` is the configuration's.
pub(super) async fn check(source: &ClusterSourceConfig, file: &Path, report: &mut SourceReport) -> fleet::SourceReport {
    let said = match &source.kind {
        ClusterSourceKind::Folder { path, contexts } => {
            let said = app::read_folder(source.clone(), path.clone(), *contexts, &Threads::current()).await;
            report.reached = said.is_some();
            said.unwrap_or_else(|| {
                let problem = format!("the folder {} cannot be read", path.display());
                report.find(
                    Level::Error,
                    problem,
                    "make it, and let the hub read it; it is looked at every two seconds",
                );
                fleet::SourceReport::default()
            })
        }
        _ => match source.kind.management() {
            Some(management) => of_management(source, management, file, report).await,
            None => fleet::SourceReport::default(),
        },
    };
    let said = said.limited(source.max_clusters, &std::collections::BTreeSet::new());
    for Problem { object, problem } in &said.problems {
        let advice = "mend the object; what else the source has is not concerned (docs/clusters.md)";
        report.find(Level::Error, format!("{object}: {problem}"), advice);
    }
    if said.over > 0 {
        let problem = format!("{} clusters are more than max_clusters ({}) allows", said.over, source.max_clusters);
        report.find(Level::Warning, problem, "raise max_clusters, or narrow what is looked at");
    }
    report.invalid = said.problems.len();
    said
}

async fn of_management(
    source: &ClusterSourceConfig,
    management: &Management,
    file: &Path,
    report: &mut SourceReport,
) -> fleet::SourceReport {
    let cluster = app::management_cluster(source, management);
    let access = app::access(&cluster);
    if tokio::task::spawn_blocking(move || source::skips_tls_verification(&access)).await.unwrap_or(false) {
        report.find(Level::Warning, super::cluster::UNVERIFIED, super::cluster::NAME_ITS_CA);
    }
    let client = match app::client(&cluster, &Handle::current()).await {
        Ok(client) => client,
        Err(error) => {
            let problem = format!("{:#}", anyhow::Error::from(error));
            report.find(Level::Error, problem, "mend what it names; nothing was asked of the management cluster");
            return fleet::SourceReport::default();
        }
    };
    match source::server_version(&client).await {
        Ok(_) => report.reached = true,
        // It answers: only anonymous or odd roles hide their version.
        Err(error) if error.class == ErrorClass::Forbidden => report.reached = true,
        Err(error) => {
            report.find(Level::Error, error.message, super::cluster::what_to_do(error.class));
            return fleet::SourceReport::default();
        }
    }
    let identity = source::whoami(&client).await.ok();
    let (of, access) = (Of::Source(&source.name), &cluster.access);
    let rights = Advice { config: file, of, access, identity: identity.as_ref() }.text();
    let mut all = Vec::new();
    for watching in app::watched(source) {
        let (rights, report) = (rights.as_str(), &mut *report);
        let mut asking = Asking { client: &client, watching: &watching, management, rights, report };
        let Some(objects) = asking.run().await else { return fleet::SourceReport::default() };
        all.push(objects);
    }
    app::read_objects(source, all)
}

/// One resource of a management cluster, while it is asked about.
struct Asking<'a> {
    client: &'a Client,
    watching: &'a Watching,
    management: &'a Management,
    /// What to do where rights are missing.
    rights: &'a str,
    report: &'a mut SourceReport,
}

impl Asking<'_> {
    /// The objects; `None`, and a finding, where they cannot be had.
    async fn run(&mut self) -> Option<Vec<Box<[u8]>>> {
        let resource = self.resource().await?;
        let mut found = Vec::new();
        for scope in self.watching.scopes(self.management) {
            for verb in ["list", "watch"] {
                self.may(verb, &resource, scope.namespace.as_deref()).await;
            }
            match source::list_objects(self.client, &resource, &scope, MOST).await {
                Ok(objects) => found.extend(objects),
                Err(error) => {
                    let advice = match error.class {
                        ErrorClass::Forbidden => self.rights,
                        class => super::cluster::what_to_do(class),
                    };
                    self.report.find(Level::Error, error.message, advice);
                    return None;
                }
            }
        }
        Some(found)
    }

    async fn resource(&mut self) -> Option<ApiResource> {
        if let ResourceRequest::Known(known) = &self.watching.wanted {
            return Some(known.0.clone());
        }
        match source::resolve(self.client, &self.watching.wanted.one()?).await {
            Ok(resource) => Some(resource),
            Err(error) => {
                let advice = "look at the address; or install the Cluster Inventory API, which the hub then picks up";
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
                let problem =
                    format!("cannot be told whether {} may be {verb}ed {place}: {}", resource.gvr, error.message);
                let advice = "let it make SelfSubjectAccessReviews (system:basic-user), or go by what the hub says";
                self.report.find(Level::Warning, problem, advice);
            }
        }
    }
}
