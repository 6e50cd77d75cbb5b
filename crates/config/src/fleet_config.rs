//! Types and parser of `[fleet]`: the fleet and the roles of this process, and the NATS servers with the fleet's log.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::files::labels;
use super::rules::nats_urls;
use super::shards::shards;
use super::table::Table;
use super::{ClusterLabels, ResourceConfig, Secret};
use informer_hub_types::ShardRule;

/// Bounds of `window.age`: how long the log of the fleet keeps changes. A collector that takes over a cluster needs the
/// changes since the last checkpoint.
pub(super) const WINDOW_AGE: RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(7 * 24 * 3600);
/// Bounds of `window.bytes`: the size at which the log of the fleet removes the oldest changes.
pub(super) const WINDOW_BYTES: RangeInclusive<u64> = 64 << 20..=1 << 46;
/// Bounds of `replicas`: JetStream keeps at most 5 copies.
pub(super) const REPLICAS: RangeInclusive<usize> = 1..=5;

/// Role of a process in its fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FleetRole {
    /// Watches clusters, and writes their changes to the log of the fleet.
    Collect,
    /// Builds its caches from the log of the fleet, and answers readers.
    Serve,
    /// Builds its caches from the log of the fleet, and delivers to the sinks whose leases it holds.
    Deliver,
}

/// Accepted values of `roles`.
pub(super) const ROLES: &[(&str, FleetRole)] =
    &[("collect", FleetRole::Collect), ("serve", FleetRole::Serve), ("deliver", FleetRole::Deliver)];

/// The fleet that the process belongs to: the table `[fleet]`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FleetConfig {
    /// Addresses of the NATS servers that keep the log of the fleet.
    pub nats: Vec<String>,
    /// Credentials for NATS, in the form of a credentials file; `None` for servers without authentication.
    pub credentials: Option<Secret>,
    /// Name of the fleet.
    pub name: String,
    /// Roles of the process.
    pub roles: Vec<FleetRole>,
    /// Number of copies of the log and of the NATS buckets of the fleet. `None` leaves an existing log unchanged, and
    /// creates a new one with 1.
    pub replicas: Option<usize>,
    /// Age at which the log of the fleet removes changes. `None` leaves an existing log unchanged, and creates a new
    /// one with 1 h.
    pub window_age: Option<Duration>,
    /// Bytes at which the log of the fleet removes the oldest changes. `None` leaves an existing log unchanged, and
    /// creates a new one with 8 GiB.
    pub window_bytes: Option<u64>,
    /// Zone in which the process runs; `None` if no zone is configured.
    pub zone: Option<String>,
    /// Labels of the clusters that collectors of this zone prefer, as long as these collectors have capacity.
    pub prefer: ClusterLabels,
    /// Rules that divide the informers of a cluster among several collectors.
    pub shards: Vec<ShardRule>,
}

/// Defaults of a new log of a fleet, if `replicas` and `window` are not set: number of copies, maximum age and maximum
/// bytes.
pub const NEW_LOG: (usize, Duration, u64) = (1, Duration::from_secs(3600), 8 << 30);

impl FleetConfig {
    /// Returns a configuration with the default values.
    #[must_use]
    pub fn new(name: &str, nats: Vec<String>, roles: Vec<FleetRole>) -> Self {
        let (replicas, window_age, window_bytes) = (None, None, None);
        let (credentials, zone, prefer, shards) = Default::default();
        let name = name.to_owned();
        Self { nats, credentials, name, roles, replicas, window_age, window_bytes, zone, prefer, shards }
    }
}

/// Returns the keys of `[fleet]` whose values differ; `fleet` if only one configuration has the table. The new values
/// take effect only at the next start.
#[must_use]
pub fn fleet_keys_to_restart(old: Option<&FleetConfig>, new: Option<&FleetConfig>) -> Vec<&'static str> {
    let (Some(old), Some(new)) = (old, new) else {
        return if old == new { Vec::new() } else { vec!["fleet"] };
    };
    let FleetConfig { nats, credentials, name, roles, replicas, window_age, window_bytes, zone, prefer, shards } = old;
    let keys = [
        ("fleet.nats", *nats != new.nats),
        ("fleet.credentials", *credentials != new.credentials),
        ("fleet.name", *name != new.name),
        ("fleet.roles", *roles != new.roles),
        ("fleet.replicas", *replicas != new.replicas),
        ("fleet.window.age", *window_age != new.window_age),
        ("fleet.window.bytes", *window_bytes != new.window_bytes),
        ("fleet.zone", *zone != new.zone),
        ("fleet.prefer", *prefer != new.prefer),
        ("fleet.shards", *shards != new.shards),
    ];
    keys.into_iter().filter_map(|(key, differs)| differs.then_some(key)).collect()
}

pub(super) fn fleet(mut table: Table<'_>, resources: &[ResourceConfig]) -> FleetConfig {
    let shapes = [("nats", "nats = [\"nats://…\"]"), ("name", "name = \"prod\""), ("roles", "roles = [\"collect\"]")];
    for (key, shape) in shapes {
        if table.lacks(&[key]) && !table.has(key) {
            table.checker.mistake(&table.path, format!("has no {key}; write {shape}"));
        }
    }
    let is_given = table.has("nats");
    let nats = servers(&mut table);
    if nats.is_empty() && is_given && table.checker.is_clean(&table.path.key("nats")) {
        table.mistake("nats", "is empty; write an address such as \"nats://nats:4222\"");
    }
    let name = table.text("name").unwrap_or_default();
    if !name.is_empty() && !is_name(&name) {
        let rule = "1 to 63 characters out of A-Z, a-z, 0-9, '_' and '-', the first a letter or a digit";
        table.mistake("name", format!("{name:?} is not a valid fleet name; use {rule}"));
    }
    let roles = table.choices("roles", "role", ROLES);
    if roles.as_ref().is_some_and(Vec::is_empty) && table.checker.is_clean(&table.path.key("roles")) {
        table.mistake("roles", "is empty; write [\"collect\"], or remove [fleet]");
    }
    let has = |wanted| roles.iter().flatten().any(|(_, role)| *role == wanted);
    if has(FleetRole::Collect) && (has(FleetRole::Serve) || has(FleetRole::Deliver)) {
        table.mistake("roles", "combines collect with another role; run collect in a process of its own");
    }
    let default = FleetConfig::new(&name, nats, roles.into_iter().flatten().map(|(_, role)| role).collect());
    let replicas = table.number("replicas", REPLICAS);
    if let Some(even) = replicas.filter(|replicas| replicas % 2 == 0) {
        table.mistake("replicas", format!("{even} copies are no safer than {}; write an odd number", even - 1));
    }
    let credentials = table.secret("credentials");
    let (mut age, mut bytes) = (None, None);
    if let Some(mut window) = table.table("window") {
        age = window.duration("age", WINDOW_AGE);
        bytes = window.size("bytes", WINDOW_BYTES);
        window.finish();
    }
    let (zone, prefer) = zone(&mut table);
    let shards = table.table("shards").map(|table| shards(table, resources)).unwrap_or_default();
    table.finish();
    FleetConfig {
        zone,
        prefer,
        shards,
        credentials,
        replicas,
        window_age: age,
        window_bytes: bytes.map(|bytes| bytes as u64),
        ..default
    }
}

/// Reads `zone` and `prefer`, which have an effect only together.
fn zone(table: &mut Table<'_>) -> (Option<String>, ClusterLabels) {
    let (has_zone, has_prefer) = (table.has("zone"), table.has("prefer"));
    let zone = table.text("zone");
    let path = table.path.key("prefer");
    let checker = table.checker;
    let prefer = table.take("prefer").map(|value| labels(checker, &path, value)).unwrap_or_default();
    if has_zone && !has_prefer {
        table.mistake("zone", "has no effect without prefer; write prefer = { region = \"eu\" }");
    }
    if has_prefer && !has_zone {
        table.mistake("prefer", "has no effect without zone; write zone = \"eu-west\"");
    } else if has_prefer && prefer.is_empty() && checker.is_clean(&path) {
        table.mistake("prefer", "has no labels; write { region = \"eu\" }, or remove zone and prefer");
    }
    (zone, prefer)
}

fn servers(table: &mut Table<'_>) -> Vec<String> {
    let texts = table.texts("nats").unwrap_or_default();
    let mut servers = Vec::new();
    for (path, text) in texts {
        match nats_urls(&text, "fleet.credentials") {
            Ok(found) if found.len() == 1 => servers.extend(found),
            Ok(_) => table.checker.mistake(&path, "has several addresses; write each as an entry of its own"),
            Err(problem) => table.checker.mistake(&path, problem),
        }
    }
    servers
}

fn is_name(name: &str) -> bool {
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    name.len() <= 63 && name.bytes().all(is_legal) && !name.starts_with(['_', '-'])
}
