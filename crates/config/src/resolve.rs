//! Resolution of text and environment to a checked [`Config`]. Reads the tables in the order of their dependencies and
//! collects the mistakes.

use std::cell::RefCell;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::clusters::KnownClusters;
use super::error::{ConfigErrors, Mistake, nearest, suggestion};
use super::raw::{self, Environment, Raw, Syntax};
use super::readers::{self, Issuers};
use super::spans::KeyPath;
use super::table::{Checker, Table};
use super::{
    Config, FleetRole, HubConfig, HumanDuration, Probes, authorization, clusters, fleet_config, ha, listen, resources,
    sinks, sources,
};
use informer_hub_types::{Fsync, LEAST_MEMORY_LIMIT};

pub(super) const SHUTDOWN: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);

/// Bounds of `checkpoint`, the interval of checkpoints. Shorter ones cost more than they save; longer ones make a restart
/// repeat much work.
pub(super) const CHECKPOINT: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(600);

pub(super) const LONGEST_FSYNC: Duration = Duration::from_secs(10);

/// Bounds of `memory_limit`. The program itself, without objects, needs half of the minimum.
pub(super) const MEMORY: RangeInclusive<u64> = LEAST_MEMORY_LIMIT..=1 << 46;

const HUB: &str = "hub";

/// Top-level tables of a file.
const TABLES: [&str; 9] = [HUB, "clusters", "cluster_sources", "resources", "sinks", "readers", "oidc", "ha", "fleet"];

/// Prefix of variables for keys of `[hub]`.
const HUB_VARIABLES: &str = "INFORMER_HUB_HUB__";

const NO_CLUSTER: &str =
    "there is no cluster; write for example\n    [clusters.local]\n    kubeconfig = \"~/.kube/config\"";
const NO_RESOURCE: &str =
    "there is nothing to watch; write for example\n    [resources.pods]\n    indexes = { by-node = \"spec.nodeName\" }";

/// Text of a configuration, with the environment and the checks to apply to it.
pub(super) struct Source<'s> {
    pub(super) file: Option<&'s Path>,
    pub(super) text: &'s str,
    /// Environment for overrides and secrets; `None` ignores it.
    pub(super) environment: Option<&'s Environment>,
    /// Additional checks of values.
    pub(super) probes: Option<Probes>,
    /// Whether named files, directories and variables must exist.
    pub(super) check_references: bool,
}

pub(super) fn resolve(source: &Source<'_>) -> Result<Config, ConfigErrors> {
    checked(source, tables, |_| true)
}

/// Reads and checks only `[hub]`. Another table with a similar name is a mistake, because it may be a misspelt `hub`.
pub(super) fn hub_alone(source: &Source<'_>) -> Result<HubConfig, ConfigErrors> {
    let read = |checker: &Checker<'_>, raw: &Raw| {
        let mut root = Table::new(checker, KeyPath::default(), raw.values.clone().into());
        let others = authenticates(&root);
        let hub = root.table(HUB).map(|table| hub(table, others)).unwrap_or_default();
        for key in root.names().iter().filter(|key| nearest(key, TABLES) == Some(HUB)) {
            root.mistake(key, format!("unknown key{}", suggestion(key, [HUB])));
        }
        hub
    };
    checked(source, read, |variable| variable.starts_with(HUB_VARIABLES))
}

/// Merges file and environment, runs `read` on the result, and returns its value. Fails with all mistakes.
///
/// An environment variable whose name does not lead to a key is a mistake only if `concerns` accepts the name.
fn checked<T>(
    source: &Source<'_>,
    read: impl FnOnce(&Checker<'_>, &Raw) -> T,
    concerns: impl Fn(&str) -> bool,
) -> Result<T, ConfigErrors> {
    let none = Environment::new();
    let raw = match raw::merge(source.text, source.environment.unwrap_or(&none)) {
        Ok(raw) => raw,
        Err(syntax) => return Err(ConfigErrors::of(not_toml(source.file, &syntax))),
    };
    let folder = source.file.and_then(Path::parent).unwrap_or(Path::new(""));
    let checker = Checker {
        file: source.file,
        folder,
        home: home(source.environment),
        environment: source.environment,
        probes: source.probes,
        check_references: source.check_references,
        raw: &raw,
        mistakes: RefCell::default(),
    };
    let found = read(&checker, &raw);
    let strays = raw.strays.iter().filter(|(variable, _)| concerns(variable));
    let strays = strays.map(|(variable, problem)| stray(variable, problem));
    let mistakes = checker.mistakes.into_inner().into_iter().map(|(_, mistake)| mistake).chain(strays).collect();
    ConfigErrors::new(mistakes).map_or(Ok(found), Err)
}

/// Creates the error of an unreadable file.
pub(super) fn unreadable(file: &Path, problem: &std::io::Error) -> ConfigErrors {
    ConfigErrors::of(Mistake { problem: format!("cannot read the file: {problem}"), ..nowhere(Some(file)) })
}

fn tables(checker: &Checker<'_>, raw: &Raw) -> Config {
    let mut root = Table::new(checker, KeyPath::default(), raw.values.clone().into());
    let others = authenticates(&root);
    let hub = root.table(HUB).map(|table| hub(table, others)).unwrap_or_default();
    let clusters_table = root.table("clusters");
    let sources_table = root.table("cluster_sources");
    let resources_table = root.table("resources");
    let sinks_table = root.table("sinks");
    let readers_table = root.table("readers");
    let oidc_table = root.table("oidc");
    let ha_table = root.table("ha");
    let fleet_table = root.table("fleet");
    root.finish();
    let misspelt =
        |name: &str| checker.mistakes.borrow().iter().any(|(_, m)| m.problem.contains(&format!("mean {name:?}")));
    let is_open = sources_table.as_ref().is_some_and(|table| !table.is_empty());
    let clusters_missing = clusters_table.as_ref().is_none_or(Table::is_empty)
        && !is_open
        && !misspelt("clusters")
        && !misspelt("cluster_sources");
    let resources_missing = resources_table.as_ref().is_none_or(Table::is_empty) && !misspelt("resources");

    let clusters = clusters_table.map(clusters::clusters).unwrap_or_default();
    let sources = sources_table.map(sources::sources).unwrap_or_default();
    let known = KnownClusters { tables: &clusters, is_open };
    let names = resources_table.as_ref().map(Table::names).unwrap_or_default();
    let resources = resources_table.map(|table| resources::resources(table, known)).unwrap_or_default();
    let sinks = sinks_table
        .map(|table| sinks::sinks(table, known, &resources, &names, hub.service.audit.as_ref()))
        .unwrap_or_default();
    let oidc = oidc_table.map(authorization::oidc);
    let ha = ha_table.map(|table| ha::ha(table, known));
    authorization::check_reviewers(checker, &hub.service.authorization, known);
    let issuers = Issuers {
        oidc: oidc.as_ref(),
        authorization: &hub.service.authorization,
        certificates: hub.service.requests_certificates(),
    };
    let readers = readers_table.map(|table| readers::readers(table, known, issuers)).unwrap_or_default();
    let fleet = fleet_table.map(|table| fleet_config::fleet(table, &resources));
    if let Some(fleet) = &fleet {
        let delivers = fleet.roles.contains(&FleetRole::Deliver);
        check_unused_in_fleet(checker, &hub, !sinks.is_empty() && !delivers, ha.is_some());
    } else {
        clusters::refuse_agents(checker, &clusters);
    }
    for (missing, key, problem) in
        [(clusters_missing, "clusters", NO_CLUSTER), (resources_missing, "resources", NO_RESOURCE)]
    {
        let path = KeyPath::default().key(key);
        if missing && checker.is_clean(&path) {
            checker.mistake(&path, problem);
        }
    }
    Config { hub, clusters, sources, resources, sinks, readers, oidc, fleet, ha }
}

/// Reports keys that have no effect in a fleet: `[ha]`, `state_dir`, and `[sinks]` if the process lacks the role
/// `deliver`.
fn check_unused_in_fleet(checker: &Checker<'_>, hub: &HubConfig, has_unused_sinks: bool, has_ha: bool) {
    let root = KeyPath::default;
    let unused = [
        (
            has_unused_sinks,
            root().key("sinks"),
            "has no effect without the role deliver; add it to fleet.roles, or remove the sinks",
        ),
        (
            has_ha,
            root().key("ha"),
            "has no effect in a fleet, where each sink has a lease of its own; remove it, or [fleet]",
        ),
        (
            hub.state_dir.is_some(),
            root().key(HUB).key("state_dir"),
            "has no effect in a fleet, whose state is in its log; remove it, or [fleet]",
        ),
    ];
    for (_, path, problem) in unused.into_iter().filter(|(is_there, ..)| *is_there) {
        checker.mistake(&path, problem);
    }
}

/// Returns whether `[oidc]` or `[readers]` authenticate requests.
fn authenticates(root: &Table<'_>) -> bool {
    root.has("oidc") || root.has_entries("readers")
}

fn hub(mut table: Table<'_>, others: bool) -> HubConfig {
    let default = HubConfig::default();
    let text = table.text("listen");
    let address = text.as_deref().and_then(|text| text.parse().ok());
    if let (Some(text), None) = (text, address) {
        let example = "write e.g. \"127.0.0.1:7080\" or \"[::]:7080\"";
        table.mistake("listen", format!("{text:?} is not an IP address and a port; {example}"));
    }
    let address = address.unwrap_or(default.listen);
    let service = listen::service(&mut table, address, others);
    let shutdown_deadline = table.duration("shutdown_deadline", SHUTDOWN);
    let memory_limit = table.size("memory_limit", MEMORY);
    let state_dir = table.folder("state_dir");
    let checkpoint = table.duration("checkpoint", CHECKPOINT);
    let fsync = fsync(&mut table);
    table.finish();
    HubConfig {
        listen: address,
        service,
        shutdown_deadline: shutdown_deadline.unwrap_or(default.shutdown_deadline),
        memory_limit: memory_limit.map(|bytes| bytes as u64),
        state_dir,
        checkpoint: checkpoint.unwrap_or(default.checkpoint),
        fsync: fsync.unwrap_or(default.fsync),
    }
}

fn fsync(table: &mut Table<'_>) -> Option<Fsync> {
    let text = table.text("fsync")?;
    if text == "never" {
        return Some(Fsync::Never);
    }
    match text.parse() {
        Ok(HumanDuration(within)) if within <= LONGEST_FSYNC => return Some(Fsync::Within(within)),
        Ok(within) => table.mistake(
            "fsync",
            format!("{within} is out of range: from 0s to {}, or \"never\"", HumanDuration(LONGEST_FSYNC)),
        ),
        Err(_) => table.mistake(
            "fsync",
            format!("{text:?} is not a duration such as \"10ms\", nor \"0s\" for each batch by itself, nor \"never\""),
        ),
    }
    None
}

fn home(environment: Option<&Environment>) -> Option<PathBuf> {
    match environment {
        Some(environment) => environment.get("HOME").filter(|home| !home.is_empty()).map(PathBuf::from),
        None => std::env::home_dir(),
    }
}

fn nowhere(file: Option<&Path>) -> Mistake {
    Mistake {
        file: file.map(Path::to_owned),
        line: None,
        column: None,
        variable: None,
        key: String::new(),
        problem: String::new(),
    }
}

fn not_toml(file: Option<&Path>, syntax: &Syntax) -> Mistake {
    let column = syntax.position.map(|p| format!(" at column {}", p.column)).unwrap_or_default();
    Mistake {
        line: syntax.position.map(|p| p.line),
        column: syntax.position.map(|p| p.column),
        problem: format!("not TOML{column}: {}", syntax.message),
        ..nowhere(file)
    }
}

fn stray(variable: &str, problem: &str) -> Mistake {
    Mistake { variable: Some(variable.to_owned()), problem: problem.to_owned(), ..nowhere(None) }
}
