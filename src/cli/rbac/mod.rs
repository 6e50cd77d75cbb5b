//! `informer-hub rbac`: the least rights that serve a configuration, as objects to apply.

mod builtin;
mod grants;
mod subject;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args as ClapArgs;
use kube::Client;
use tokio::runtime::Handle;

use self::builtin::{Named, named};
use self::grants::{Account, Grantee, Grants};
pub(super) use self::subject::{Advice, Of};
use self::subject::{Written, account, kubectl, name};
use super::print::{out, yaml};
use super::{WRONG_INPUT, chosen, interruptible, runtime};
use crate::app;
use crate::discovery;
use informer_hub_config::{ClusterAccess, ClusterConfig, ClusterSourceConfig, Config, ResourceConfig};
use informer_hub_source::{self as source, DiscoveryError};
use informer_hub_types::{Groups, ResourcePattern, Selected, is_built_in, printable_lines};

/// Every resource of a group, in a rule.
const ALL: &str = "*";

/// Arguments of `rbac`.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Examples:\n  informer-hub rbac -c hub.toml --cluster prod-eu | kubectl --context prod-eu apply \
    -f -\n  informer-hub rbac -c hub.toml --cluster prod-eu --user jane@example.com\n  informer-hub rbac -c hub.toml --dir \
    rbac/\n\nThe hub lists and watches, and looks up resources, which \
    Kubernetes lets every authenticated user do\n(system:discovery). `check` asks besides what it may do, which is \
    everybody's right too\n(system:basic-user)."
)]
pub(super) struct Args {
    /// The configuration file (TOML); INFORMER_HUB_… variables override it
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// For this cluster only; may be given several times
    #[arg(long = "cluster", value_name = "NAME")]
    clusters: Vec<String>,
    /// For the management cluster of this source of clusters only; may be given several times
    #[arg(long = "source", value_name = "NAME")]
    sources: Vec<String>,
    /// The service account that gets the rights; default: informer-hub, or none with --user or --group
    #[arg(long, value_name = "[NAMESPACE/]NAME", value_parser = account)]
    service_account: Option<Written>,
    /// The namespace of the service account, which must exist; default: informer-hub
    #[arg(short, long, value_name = "NAME", value_parser = name)]
    namespace: Option<String>,
    /// A user that gets the rights, as the cluster names it; may be given several times
    #[arg(long = "user", value_name = "NAME", value_parser = subject::user)]
    users: Vec<String>,
    /// A group that gets the rights; may be given several times
    #[arg(long = "group", value_name = "NAME", value_parser = subject::user)]
    groups: Vec<String>,
    /// Print a Secret too, in which the cluster puts a token of the service account that does not expire
    #[arg(long)]
    token_secret: bool,
    /// The name of roles and bindings; default: that of the service account, informer-hub-users without one
    #[arg(long, value_name = "NAME", value_parser = name)]
    role: Option<String>,
    /// Ask the clusters for the names of resources, with the credentials that the configuration has now
    #[arg(long)]
    discover: bool,
    /// Write a file for each cluster here, <cluster>.yaml
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    // Filters and kubeconfigs are not looked into: no rights depend on them. The token of the account that is printed cannot
    // be there before it.
    let read = if args.discover { Config::from_file } else { Config::from_file_alone };
    let config = match read(&args.config) {
        Ok(config) => config,
        Err(mistakes) => {
            eprintln!("{}", printable_lines(&mistakes.to_string(), false));
            return Ok(ExitCode::from(WRONG_INPUT));
        }
    };
    let (clusters, sources) = args.chosen(&config)?;
    // Before a cluster is asked: a contradiction is the command line's.
    args.grantee()?;
    let runtime = runtime()?;
    let mut texts = Vec::new();
    for cluster in clusters {
        texts.push((cluster.name.to_string(), interruptible(&runtime, args.rights(cluster, &config))?));
    }
    for source in sources.iter().filter(|source| source.kind.management().is_some()) {
        texts.push((format!("cluster-source-{}", source.name), args.rights_of_source(source)?));
    }
    if !config.sources.is_empty() && args.clusters.is_empty() && args.sources.is_empty() {
        texts.push(("sourced-clusters".to_owned(), interruptible(&runtime, args.rights_of_sourced(&config))?));
    }
    runtime.shutdown_background();
    match &args.dir {
        None => out(&texts.iter().map(|(_, text)| text.as_str()).collect::<String>())?,
        Some(dir) => write(dir, &texts)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn write(dir: &Path, texts: &[(String, String)]) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    for (cluster, text) in texts {
        let file = dir.join(format!("{cluster}.yaml"));
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        out(&format!("{}\n", file.display()))?;
    }
    Ok(())
}

impl Args {
    /// The clusters and sources that are asked for: all of both, or those that are named.
    fn chosen<'c>(&self, config: &'c Config) -> anyhow::Result<(Vec<&'c ClusterConfig>, Vec<&'c ClusterSourceConfig>)> {
        let all = &config.sources;
        if let Some(unknown) = self.sources.iter().find(|name| !all.iter().any(|source| source.name == **name)) {
            let known: Vec<_> = all.iter().map(|source| source.name.as_str()).collect();
            bail!("there is no cluster source {unknown:?}; there is {}", known.join(", "));
        }
        let is_all = self.clusters.is_empty() && self.sources.is_empty();
        let clusters =
            if is_all || !self.clusters.is_empty() { chosen(&config.clusters, &self.clusters)? } else { Vec::new() };
        Ok((clusters, all.iter().filter(|source| is_all || self.sources.contains(&source.name)).collect()))
    }

    /// The subjects that are asked for; the service account `informer-hub` unless others are named.
    fn grantee(&self) -> anyhow::Result<Grantee> {
        let account = match &self.service_account {
            None if !self.users.is_empty() || !self.groups.is_empty() => None,
            written => Some(Written::account(written.as_ref(), self.namespace.as_deref())?),
        };
        if account.is_none() && self.token_secret {
            bail!("--token-secret is for a service account; add --service-account");
        }
        if account.is_none() && self.namespace.is_some() {
            bail!("--namespace is that of a service account; add --service-account");
        }
        let role = self.role.clone().unwrap_or_else(|| subject::role(account.as_ref()));
        let (users, groups) = (self.users.clone(), self.groups.clone());
        Ok(Grantee { account, token_secret: self.token_secret, users, groups, role })
    }

    /// The objects for some rights, under a heading.
    fn text(&self, heading: &str, notes: &[String], grants: &Grants) -> anyhow::Result<String> {
        let to = self.grantee()?;
        let mut text = format!("# {heading}\n");
        for line in notes {
            let _ = writeln!(text, "# {line}");
        }
        for object in grants.objects(&to) {
            text.push_str("---\n");
            text.push_str(&yaml(&object)?);
        }
        Ok(text)
    }

    /// What a source needs in its management cluster.
    fn rights_of_source(&self, source: &ClusterSourceConfig) -> anyhow::Result<String> {
        let namespaces = source.kind.management().map(|management| management.namespaces.clone()).unwrap_or_default();
        let mut grants = Grants::default();
        for watching in app::watched(source) {
            let Some(written) = watching.wanted.one() else { continue };
            let group = written.group.as_ref().map(ToString::to_string).unwrap_or_default();
            let plural = written.resource.to_string();
            grants.add(&Named { group, plural, namespaced: true, taken_as_written: false }, &namespaces);
        }
        let file = self.config.display();
        let heading = format!("Cluster source {}: list and watch what {file} has it look at.", source.name);
        let notes =
            ["To apply in its management cluster. Rights know no label selectors: where Secrets are looked at, all \
                      Secrets of these namespaces can be read."
                .to_owned()];
        self.text(&heading, &notes, &grants)
    }

    /// What a cluster that a source brings needs, if every entry selects it.
    async fn rights_of_sourced(&self, config: &Config) -> anyhow::Result<String> {
        let mut grants = Grants::default();
        let mut notes =
            vec!["To apply in each of them. Entries that do not select a cluster need nothing there.".to_owned()];
        for resource in &config.resources {
            match of(resource, None).await {
                Ok(found) => found.iter().for_each(|found| grants.add(found, &resource.namespaces)),
                Err(_) => notes.push(format!("Not in it, since its group is not known: {}", resource.resource)),
            }
        }
        if config.resources.iter().any(ResourceConfig::is_dynamic) {
            add_signals(&mut grants);
        }
        let heading = format!("Clusters that sources bring: list and watch what {} has.", self.config.display());
        self.text(&heading, &notes, &grants)
    }

    async fn rights(&self, cluster: &ClusterConfig, config: &Config) -> anyhow::Result<String> {
        let client = if self.discover { Some(app::client(cluster, &Handle::current()).await?) } else { None };
        let mut grants = Grants::default();
        let mut taken = Vec::new();
        let mut wide = Vec::new();
        let mine = config.resources.iter().filter(|it| it.clusters.matches(&cluster.name, &cluster.labels));
        for resource in mine.clone() {
            let found = of(resource, client.as_ref()).await.with_context(|| format!("cluster {}", cluster.name))?;
            for named in found {
                if named.taken_as_written {
                    taken.push(resource.resource.to_string());
                }
                if named.plural == ALL {
                    wide.push(format!("all of {}", named.group));
                }
                grants.add(&named, &resource.namespaces);
            }
        }
        if mine.clone().any(ResourceConfig::is_dynamic) {
            add_signals(&mut grants);
        }
        let heading = format!("Cluster {}: list and watch what {} has for it.", cluster.name, self.config.display());
        self.text(&heading, &self.notes(cluster, &taken, &wide)?, &grants)
    }

    fn notes(&self, cluster: &ClusterConfig, taken: &[String], wide: &[String]) -> anyhow::Result<Vec<String>> {
        let (kubectl, grantee) = (kubectl(&cluster.access), self.grantee()?);
        let mut notes = match &grantee.account {
            Some(Account { namespace, .. }) => {
                vec![format!("Apply by: {kubectl} apply -f -  (the namespace {namespace} must be there)")]
            }
            None => vec![format!("Apply by: {kubectl} apply -f -  (as an administrator of the cluster)")],
        };
        if let Some(account) = grantee.account.filter(|_| cluster.access != ClusterAccess::InCluster) {
            let (Account { name, namespace }, secret) = (&account, account.token_secret());
            notes.extend(if self.token_secret {
                vec![
                    format!("Its token, which lasts until the Secret {secret} is deleted:"),
                    format!("{kubectl} -n {namespace} get secret {secret} -o jsonpath='{{.data.token}}' | base64 -d"),
                ]
            } else {
                vec![
                    "A token for it, which ends after a day and is not renewed (--token-secret: one that lasts):"
                        .to_owned(),
                    format!("{kubectl} -n {namespace} create token {name} --duration 24h"),
                ]
            });
        }
        if !taken.is_empty() {
            let names = taken.join(", ");
            notes.push(if self.discover {
                format!("Taken as written, since the cluster does not have them yet: {names}")
            } else {
                format!("Taken as written, with nobody asked whether these are plurals: {names} (--discover asks)")
            });
        }
        if !wide.is_empty() {
            notes.push(format!(
                "For a pattern, {} may be read, Secrets of Kubernetes itself not: what comes later is covered",
                wide.join(", ")
            ));
        }
        Ok(notes)
    }
}

/// Whether the rights for a resource cannot be told without asking a cluster.
fn needs_discovery(resource: &ResourceConfig) -> bool {
    match &resource.resource {
        Selected::One(written) => named(written, !resource.namespaces.is_empty()).is_none(),
        Selected::Matching(pattern) => !matches!(pattern.groups, Groups::One(_)),
    }
}

/// What is watched to learn of resources that come and go.
fn add_signals(grants: &mut Grants) {
    for signal in [discovery::definitions(), discovery::services()] {
        let (group, plural) = (signal.gvr.group.to_string(), signal.gvr.resource.to_string());
        grants.add(&Named { group, plural, namespaced: false, taken_as_written: false }, &[]);
    }
}

async fn of(resource: &ResourceConfig, client: Option<&Client>) -> anyhow::Result<Vec<Named>> {
    let written = match &resource.resource {
        Selected::One(written) => written,
        Selected::Matching(pattern) => return of_pattern(resource, pattern, client).await,
    };
    let Some(client) = client else {
        let found = named(written, !resource.namespaces.is_empty());
        let Some(found) = found else {
            bail!(
                "resources.{}: {} is not one that Kubernetes brings, so its group is not known; write it in full \
                 (plural.group), or have the clusters asked by --discover",
                resource.name,
                resource.resource
            );
        };
        return Ok(vec![found]);
    };
    let found = match source::resolve(client, written).await {
        // It may come, and the rights for it are known.
        Err(missing @ DiscoveryError::NotFound { .. }) if written.group.is_some() => {
            return Ok(vec![named(written, !resource.namespaces.is_empty()).ok_or(missing)?]);
        }
        found => found?,
    };
    let (group, plural) = (found.gvr.group.to_string(), found.gvr.resource.to_string());
    Ok(vec![Named { group, plural, namespaced: found.namespaced, taken_as_written: false }])
}

/// All of one group, which needs no asking; of patterns of many groups all of those that the cluster has, but of Kubernetes'
/// own groups only what the pattern means.
async fn of_pattern(
    resource: &ResourceConfig,
    pattern: &ResourcePattern,
    client: Option<&Client>,
) -> anyhow::Result<Vec<Named>> {
    let all_of = |group: &str| {
        let (group, namespaced) = (group.to_owned(), !resource.namespaces.is_empty());
        Named { group, plural: ALL.to_owned(), namespaced, taken_as_written: false }
    };
    if let Groups::One(group) = &pattern.groups
        && client.is_none()
    {
        return Ok(vec![all_of(group)]);
    }
    let Some(client) = client else {
        bail!(
            "resources.{}: which groups {pattern} means only a cluster can say; have the clusters asked by --discover",
            resource.name
        );
    };
    let catalogue = source::discover_catalogue(client).await?;
    let mut found: Vec<Named> = Vec::new();
    for (offered, offer) in catalogue.resources() {
        let gvr = &offered.gvr;
        if !pattern.has(&gvr.group, &gvr.resource, &offer.others()) {
            continue;
        }
        let named = if is_built_in(&gvr.group, &gvr.resource) || !offered.namespaced && !resource.namespaces.is_empty()
        {
            let (group, plural) = (gvr.group.to_string(), gvr.resource.to_string());
            Named { group, plural, namespaced: offered.namespaced, taken_as_written: false }
        } else {
            all_of(&gvr.group)
        };
        if !found.contains(&named) {
            found.push(named);
        }
    }
    Ok(found)
}
