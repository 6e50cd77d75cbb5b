//! `informer-hub rbac`: prints the least RBAC rights that a configuration needs, as objects to apply.

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

use self::builtin::{NamedResource, named};
use self::grants::{Account, Grantee, Grants};
use self::subject::{AccountArg, account, kubectl, name};
pub(super) use self::subject::{Advice, RightsTarget};
use super::print::{out, yaml};
use super::reviews;
use super::{Misuse, WRONG_INPUT, chosen, interruptible, runtime};
use crate::app;
use crate::discovery;
use informer_hub_config::{ClusterAccess, ClusterConfig, ClusterSourceConfig, Config, HaConfig, ResourceConfig};
use informer_hub_source::{self as source, DiscoveryError};
use informer_hub_types::{ClusterName, Groups, ResourcePattern, Selected, is_built_in, printable_lines};

/// Name for all resources of a group, in RBAC rules.
const ALL: &str = "*";

/// Arguments of `rbac`.
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Examples:\n  informer-hub rbac -c hub.toml --cluster prod-eu | kubectl --context prod-eu apply \
    -f -\n  informer-hub rbac -c hub.toml --cluster prod-eu --user jane@example.com\n  informer-hub rbac -c hub.toml --dir \
    rbac/\n\nThe hub lists and watches resources, and creates the reviews of readers that [hub.authorization] \
        needs.\nIt also looks up resources, which Kubernetes allows every authenticated user (system:discovery).\n`check` \
        also asks for its own rights, which is allowed too (system:basic-user)."
)]
pub(super) struct Args {
    /// The configuration file (TOML); INFORMER_HUB_… variables override it
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Only for this cluster; may be given several times
    #[arg(long = "cluster", value_name = "NAME")]
    clusters: Vec<String>,
    /// Only for the management cluster of this cluster source; may be given several times
    #[arg(long = "source", value_name = "NAME")]
    sources: Vec<String>,
    /// The service account that gets the rights; default: informer-hub, or none with --user or --group
    #[arg(long, value_name = "[NAMESPACE/]NAME", value_parser = account)]
    service_account: Option<AccountArg>,
    /// The namespace of the service account, which must exist; default: informer-hub
    #[arg(short, long, value_name = "NAME", value_parser = name)]
    namespace: Option<String>,
    /// A user that gets the rights, by its name in the cluster; may be given several times
    #[arg(long = "user", value_name = "NAME", value_parser = subject::user)]
    users: Vec<String>,
    /// A group that gets the rights; may be given several times
    #[arg(long = "group", value_name = "NAME", value_parser = subject::user)]
    groups: Vec<String>,
    /// Also print a Secret for a token of the service account that does not expire
    #[arg(long)]
    token_secret: bool,
    /// The name of roles and bindings; default: that of the service account, or informer-hub-users without one
    #[arg(long, value_name = "NAME", value_parser = name)]
    role: Option<String>,
    /// Look up resource names in the clusters, with the configured credentials
    #[arg(long)]
    discover: bool,
    /// Write a file CLUSTER.yaml for each cluster to this directory
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    // Without --discover, filters and kubeconfigs are not read: the rights do not depend on them, and the token of the
    // printed account does not exist yet.
    let read = if args.discover { Config::from_file } else { Config::from_file_alone };
    let config = match read(&args.config) {
        Ok(config) => config,
        Err(mistakes) => {
            note!("{}", printable_lines(&mistakes.to_string(), false));
            return Ok(ExitCode::from(WRONG_INPUT));
        }
    };
    let (clusters, sources) = args.chosen(&config)?;
    // Contradicting options are refused before a request to a cluster.
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
    let is_all = args.clusters.is_empty() && args.sources.is_empty();
    let lease = config.ha.as_ref().filter(|ha| is_all && !config.clusters.iter().any(|one| ha.is_lease_in(one)));
    if let Some(HaConfig { lease, .. }) = lease {
        let mut grants = Grants::default();
        grants.add_lease(&lease.namespace, &lease.name);
        let heading = "Cluster of the hub's pods: the Lease of its replicas.";
        texts.push(("own-cluster".to_owned(), args.text(heading, &[], &grants)?));
    }
    runtime.shutdown_background();
    match &args.dir {
        None => out(&texts.iter().map(|(_, text)| text.as_str()).collect::<String>())?,
        Some(dir) => write(dir, &texts)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn write(dir: &Path, texts: &[(String, String)]) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    for (cluster, text) in texts {
        let file = dir.join(format!("{cluster}.yaml"));
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        out(&format!("{}\n", file.display()))?;
    }
    Ok(())
}

impl Args {
    /// Returns the clusters and cluster sources whose rights are printed. Without options that name clusters or
    /// sources, returns all.
    fn chosen<'c>(&self, config: &'c Config) -> anyhow::Result<(Vec<&'c ClusterConfig>, Vec<&'c ClusterSourceConfig>)> {
        let all = &config.sources;
        if let Some(unknown) = self.sources.iter().find(|name| !all.iter().any(|source| source.name == **name)) {
            let known: Vec<_> = all.iter().map(|source| source.name.as_str()).collect();
            bail!("there is no cluster source {unknown:?}; known: {}", known.join(", "));
        }
        let is_all = self.clusters.is_empty() && self.sources.is_empty();
        let is_named = |source: &&ClusterSourceConfig| self.sources.contains(&source.name);
        if let Some(folder) = all.iter().filter(is_named).find(|source| source.kind.management().is_none()) {
            return Err(Misuse::error(format!(
                "cluster source {} has no management cluster, so it needs no rights itself; without --source, rbac also \
                 prints the rights for clusters of sources",
                folder.name
            )));
        }
        let clusters =
            if is_all || !self.clusters.is_empty() { chosen(&config.clusters, &self.clusters)? } else { Vec::new() };
        Ok((clusters, all.iter().filter(|source| is_all || is_named(source)).collect()))
    }

    /// Returns the subjects of the bindings: those that options name; without such options the service account
    /// `informer-hub`.
    fn grantee(&self) -> anyhow::Result<Grantee> {
        let account = match &self.service_account {
            None if !self.users.is_empty() || !self.groups.is_empty() => None,
            argument => Some(AccountArg::account(argument.as_ref(), self.namespace.as_deref())?),
        };
        if account.is_none() && self.token_secret {
            return Err(Misuse::error("--token-secret needs a service account; add --service-account"));
        }
        if account.is_none() && self.namespace.is_some() {
            return Err(Misuse::error("--namespace needs a service account; add --service-account"));
        }
        let role = self.role.clone().unwrap_or_else(|| subject::role(account.as_ref()));
        let (users, groups) = (self.users.clone(), self.groups.clone());
        Ok(Grantee { account, token_secret: self.token_secret, users, groups, role })
    }

    /// Renders the RBAC objects that grant `grants` as YAML, below a heading and notes.
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

    /// Renders the rights that a cluster source needs in its management cluster.
    fn rights_of_source(&self, source: &ClusterSourceConfig) -> anyhow::Result<String> {
        let namespaces = source.kind.management().map(|management| management.namespaces.clone()).unwrap_or_default();
        let mut grants = Grants::default();
        for watching in app::watched_resources(source) {
            let Some(written) = watching.resource.one() else { continue };
            let group = written.group.as_ref().map(ToString::to_string).unwrap_or_default();
            let plural = written.resource.to_string();
            grants.add(&NamedResource { group, plural, namespaced: true, is_unchecked: false }, &namespaces);
        }
        let file = self.config.display();
        let heading = format!("Cluster source {}: list and watch the resources that {file} configures.", source.name);
        let notes =
            ["Apply these objects in the management cluster. RBAC has no label selectors: a source that reads Secrets can \
                      read all Secrets of these namespaces."
                .to_owned()];
        self.text(&heading, &notes, &grants)
    }

    /// Renders the rights that the hub needs in any cluster found by a cluster source. Assumes that all entries of
    /// `[resources]` select that cluster.
    async fn rights_of_sourced(&self, config: &Config) -> anyhow::Result<String> {
        let mut grants = Grants::default();
        let mut notes = vec![
            "Apply these objects in each cluster. An entry needs no rights in clusters that it does not select."
                .to_owned(),
        ];
        for resource in &config.resources {
            match named_resources(resource, None).await {
                Ok(found) => found.iter().for_each(|found| grants.add(found, &resource.namespaces)),
                Err(_) => notes.push(format!(
                    "Not included, because its API group is unknown (write it as plural.group): {}",
                    resource.resource
                )),
            }
        }
        if config.resources.iter().any(ResourceConfig::is_dynamic) {
            add_discovery_resources(&mut grants);
        }
        let authorization = &config.hub.service.authorization;
        let is_table = |name: &ClusterName| config.clusters.iter().any(|cluster| cluster.name == *name);
        let is_token_reviewer =
            authorization.token_review.as_ref().is_some_and(|it| it.clusters.iter().any(|name| !is_table(name)));
        for review in reviews::of(authorization, is_token_reviewer) {
            grants.add_review(&review);
        }
        let heading = format!("Clusters of sources: list and watch the resources of {}.", self.config.display());
        self.text(&heading, &notes, &grants)
    }

    async fn rights(&self, cluster: &ClusterConfig, config: &Config) -> anyhow::Result<String> {
        let client = if self.discover { Some(app::client(cluster, &Handle::current()).await?) } else { None };
        let mut grants = Grants::default();
        let mut unchecked = Vec::new();
        let mut whole_groups = Vec::new();
        let selected = config.resources.iter().filter(|it| it.clusters.matches(&cluster.name, &cluster.labels));
        for resource in selected.clone() {
            let found = named_resources(resource, client.as_ref())
                .await
                .with_context(|| format!("cluster {}", cluster.name))?;
            for named in found {
                if named.is_unchecked {
                    unchecked.push(resource.resource.to_string());
                }
                if named.plural == ALL {
                    whole_groups.push(format!("all of {}", named.group));
                }
                grants.add(&named, &resource.namespaces);
            }
        }
        if selected.clone().any(ResourceConfig::is_dynamic) {
            add_discovery_resources(&mut grants);
        }
        for review in reviews::of_cluster(&config.hub.service.authorization, &cluster.name) {
            grants.add_review(&review);
        }
        if let Some(ha) = config.ha.as_ref().filter(|ha| ha.is_lease_in(cluster)) {
            grants.add_lease(&ha.lease.namespace, &ha.lease.name);
        }
        let file = self.config.display();
        let heading = format!("Cluster {}: list and watch the resources that {file} configures.", cluster.name);
        self.text(&heading, &self.notes(cluster, &unchecked, &whole_groups)?, &grants)
    }

    fn notes(
        &self,
        cluster: &ClusterConfig,
        unchecked: &[String],
        whole_groups: &[String],
    ) -> anyhow::Result<Vec<String>> {
        let (kubectl, grantee) = (kubectl(&cluster.access), self.grantee()?);
        // Kubernetes mounts the token of its service account into a pod, so no note about tokens is needed.
        let is_in_pod = matches!(cluster.access, ClusterAccess::InCluster | ClusterAccess::Agent);
        let mut notes = match &grantee.account {
            Some(Account { namespace, .. }) => {
                vec![format!(
                    "Apply with: {kubectl} apply -f -  (as an administrator of the cluster; the namespace {namespace} \
                     must exist)"
                )]
            }
            None => vec![format!("Apply with: {kubectl} apply -f -  (as an administrator of the cluster)")],
        };
        if let Some(account) = grantee.account.filter(|_| !is_in_pod) {
            let (Account { name, namespace }, secret) = (&account, account.token_secret());
            notes.extend(if self.token_secret {
                vec![
                    format!("Token of service account {name}, valid until the Secret {secret} is deleted:"),
                    format!("{kubectl} -n {namespace} get secret {secret} -o jsonpath='{{.data.token}}' | base64 -d"),
                ]
            } else {
                vec![
                    format!(
                        "Token of service account {name}, valid for a day (--token-secret prints one that does not \
                         expire):"
                    ),
                    format!("{kubectl} -n {namespace} create token {name} --duration 24h"),
                ]
            });
        }
        if !unchecked.is_empty() {
            let names = unchecked.join(", ");
            notes.push(if self.discover {
                format!("Taken as written, because the cluster does not have them yet: {names}")
            } else {
                format!("Taken as written, without checking that these are plurals: {names} (--discover checks)")
            });
        }
        if !whole_groups.is_empty() {
            notes.push(format!(
                "For patterns, these rights cover {} and resources added there later, but no Secrets of Kubernetes itself",
                whole_groups.join(", ")
            ));
        }
        Ok(notes)
    }
}

/// Adds the rights to watch CRDs and API services, by which the hub notices added and removed resources.
fn add_discovery_resources(grants: &mut Grants) {
    for watched in [discovery::definitions(), discovery::services()] {
        let (group, plural) = (watched.gvr.group.to_string(), watched.gvr.resource.to_string());
        grants.add(&NamedResource { group, plural, namespaced: false, is_unchecked: false }, &[]);
    }
}

/// Returns the names that RBAC rules need for an entry of `[resources]`. Looks them up in the cluster of `client`, if
/// given.
async fn named_resources(resource: &ResourceConfig, client: Option<&Client>) -> anyhow::Result<Vec<NamedResource>> {
    let written = match &resource.resource {
        Selected::One(written) => written,
        Selected::Matching(pattern) => return pattern_resources(resource, pattern, client).await,
    };
    let Some(client) = client else {
        let found = named(written, !resource.namespaces.is_empty());
        let Some(found) = found else {
            return Err(Misuse::error(format!(
                "resources.{}: {} is not built into Kubernetes, so its group is unknown; write it in full \
                 (plural.group), or give --discover",
                resource.name, resource.resource
            )));
        };
        return Ok(vec![found]);
    };
    let found = match source::resolve(client, written).await {
        // The resource may be installed later, and its name in rules is known.
        Err(missing @ DiscoveryError::NotFound { .. }) if written.group.is_some() => {
            return Ok(vec![named(written, !resource.namespaces.is_empty()).ok_or(missing)?]);
        }
        found => found?,
    };
    let (group, plural) = (found.gvr.group.to_string(), found.gvr.resource.to_string());
    Ok(vec![NamedResource { group, plural, namespaced: found.namespaced, is_unchecked: false }])
}

/// Returns the names that RBAC rules need for the resources that a pattern matches; `*` is the name for all resources
/// of an API group.
///
/// Without a `client`, returns `*` in the pattern's API group; fails if the pattern is not of one group. With a
/// `client`, asks the cluster which resources match. Two kinds of matches are returned by their own names: resources
/// built into Kubernetes, and cluster-scoped ones if the entry has namespaces. For any other match, returns `*` in its
/// group.
async fn pattern_resources(
    resource: &ResourceConfig,
    pattern: &ResourcePattern,
    client: Option<&Client>,
) -> anyhow::Result<Vec<NamedResource>> {
    let all_of = |group: &str| {
        let (group, namespaced) = (group.to_owned(), !resource.namespaces.is_empty());
        NamedResource { group, plural: ALL.to_owned(), namespaced, is_unchecked: false }
    };
    if let Groups::One(group) = &pattern.groups
        && client.is_none()
    {
        return Ok(vec![all_of(group)]);
    }
    let Some(client) = client else {
        let name = &resource.name;
        let problem = format!("resources.{name}: only a cluster knows which groups {pattern} matches; give --discover");
        return Err(Misuse::error(problem));
    };
    let catalogue = source::discover_catalogue(client).await?;
    let mut found: Vec<NamedResource> = Vec::new();
    for (offered, offer) in catalogue.resources() {
        let gvr = &offered.gvr;
        if !pattern.has(&gvr.group, &gvr.resource, &offer.others()) {
            continue;
        }
        let named = if is_built_in(&gvr.group, &gvr.resource) || !offered.namespaced && !resource.namespaces.is_empty()
        {
            let (group, plural) = (gvr.group.to_string(), gvr.resource.to_string());
            NamedResource { group, plural, namespaced: offered.namespaced, is_unchecked: false }
        } else {
            all_of(&gvr.group)
        };
        if !found.contains(&named) {
            found.push(named);
        }
    }
    Ok(found)
}
