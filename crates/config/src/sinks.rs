//! Parser of `[sinks.<name>]`.

use std::num::{NonZeroU16, NonZeroU32};
use std::ops::RangeInclusive;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use super::clusters::{KnownClusters, meet, selector};
use super::error::suggestion;
use super::rules::is_identity;
use super::spans::KeyPath;
use super::table::{Checker, Table};
use super::transports::transport;
use super::units::HumanDuration;
use super::{
    AuditConfig, AuditOutputConfig, BatchConfig, ClusterConfig, EventType, Initial, OnFilterError, RateLimitConfig,
    ResourceConfig, RetryConfig, SinkConfig, SinkMatch, TransportConfig,
};
use informer_hub_types::{FieldPath, StoreLimits, check_name, is_dns_label};

pub(super) const EVENTS_PER_BATCH: RangeInclusive<usize> = 1..=10_000;
pub(super) const BYTES_PER_BATCH: RangeInclusive<u64> = 1024..=64 << 20;
pub(super) const BATCH_WAIT: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(60);
pub(super) const RETRY_DELAY: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(24 * 3600);
pub(super) const REFUSED: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(30 * 24 * 3600);
pub(super) const GIVE_UP: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(30 * 24 * 3600);
/// Bounds of `journal_limit` and `dead_letter_limit`, in bytes. A journal below the minimum could not store one large
/// object.
pub(super) const FILES: RangeInclusive<u64> = 1 << 20..=1 << 50;
/// Bounds of the partitions of a sink. Each partition has a lease, which every process that delivers reads about every
/// 2 s.
pub(super) const PARTITIONS: RangeInclusive<usize> = 1..=64;
pub(super) const RATE: RangeInclusive<usize> = 1..=1_000_000;

impl Default for SinkMatch {
    fn default() -> Self {
        Self {
            resources: Vec::new(),
            clusters: informer_hub_types::ClusterSelector::All,
            namespaces: Vec::new(),
            events: vec![EventType::Added, EventType::Updated, EventType::Deleted],
        }
    }
}

const EVENTS: &[(&str, EventType)] = &[
    ("added", EventType::Added),
    ("updated", EventType::Updated),
    ("deleted", EventType::Deleted),
    ("synced", EventType::Synced),
];

const INITIAL: &[(&str, Initial)] = &[("skip", Initial::Skip), ("replay", Initial::Replay)];

const ON_FILTER_ERROR: &[(&str, OnFilterError)] = &[("deliver", OnFilterError::Deliver), ("drop", OnFilterError::Drop)];

/// Reads all sinks, sorted by name.
pub(super) fn sinks(
    table: Table<'_>,
    clusters: KnownClusters<'_>,
    resources: &[ResourceConfig],
    names: &[String],
    audit: Option<&AuditConfig>,
) -> Vec<SinkConfig> {
    let checker = table.checker;
    let mut found: Vec<SinkConfig> = Vec::new();
    let mut outputs: Vec<_> = audit.and_then(audit_output).into_iter().collect();
    for (name, path, value) in table.entries() {
        if let Err(wrong) = check_name("sink name", &name) {
            checker.mistake(&path, format!("is not a valid sink name; use {}", wrong.rule));
        }
        let mut table = Table::new(checker, path.clone(), value);
        let (transport, body) = transport(&mut table);
        let partitions = partitions(&mut table, &transport);
        let filter = table.text("filter");
        table.probe("filter", filter.as_deref(), |probes, filter| (probes.filter)(filter));
        let on_filter_error = table.choice("on_filter_error", "choice", ON_FILTER_ERROR);
        if on_filter_error.is_some() && filter.is_none() && checker.is_clean(&path.key("filter")) {
            table.mistake("on_filter_error", "requires filter, which is missing");
        }
        let sink = SinkConfig {
            select: select(&mut table, clusters, names),
            filter,
            changed: table.parsed_list("changed").into_iter().flatten().map(|(_, path)| path).collect(),
            on_filter_error: on_filter_error.unwrap_or_default(),
            initial: table.choice("initial", "choice", INITIAL).unwrap_or_default(),
            include_old: table.boolean("include_old").unwrap_or(true),
            redact: redact(&mut table),
            rate_limit: rate_limit(&mut table),
            journal_limit: limit(&mut table, "journal_limit").unwrap_or(StoreLimits::default().journal),
            dead_letter_limit: limit(&mut table, "dead_letter_limit").unwrap_or(StoreLimits::default().letters),
            batch: batch(&mut table, body.is_single()),
            body,
            retry: retry(&mut table),
            transport,
            name,
            partition: None,
        };
        table.finish();
        if partitions.is_some() && sink.select.events.contains(&EventType::Synced) {
            let problem = "does not work with match.events = [\"synced\"]: a partition cannot know when the others are \
                           synced";
            checker.mistake(&path.key("partitions"), problem);
        }
        let is_known = !clusters.is_open && !clusters.tables.is_empty();
        if is_known && checker.is_clean(&path) && !reaches(&sink.select, clusters.tables, resources) {
            checker.mistake(&path.key("match"), "matches nothing: none of its resources is watched in its clusters");
        }
        output_is_free(checker, &path.key("path"), &sink, &mut outputs);
        let before = found.len();
        match partitions {
            Some(count) => found.extend(sink.partitions(count)),
            None => found.push(sink),
        }
        names_are_free(checker, &path, &found, before);
    }
    found
}

/// File that a sink or the audit log writes and rotates.
struct OutputFile {
    /// Configuration table of the sink or audit log that writes it.
    table: String,
    /// Absolute path of the file, without `.` and `..`.
    path: PathBuf,
    keep: usize,
}

impl OutputFile {
    fn new(table: String, path: &Path, keep: usize) -> Self {
        Self { table, path: normalised(path), keep }
    }

    /// Returns whether rotation renames the file to a path.
    fn rotates_to(&self, path: &Path) -> bool {
        let rest = path.as_os_str().as_encoded_bytes().strip_prefix(self.path.as_os_str().as_encoded_bytes());
        let number = rest.and_then(|rest| str::from_utf8(rest.strip_prefix(b".")?).ok());
        let is_ours = |number: &str| {
            let parsed = number.parse::<usize>().ok().filter(|number| (1..=self.keep).contains(number));
            parsed.is_some_and(|parsed| parsed.to_string() == number)
        };
        number.is_some_and(is_ours)
    }
}

/// Returns an absolute path without `.` and `..`. Symbolic links are not resolved.
fn normalised(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut normal = PathBuf::new();
    for component in absolute.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => _ = normal.pop(),
            component => normal.push(component),
        }
    }
    normal
}

/// Returns the file of the audit log; `None` if the log goes to the standard output.
fn audit_output(audit: &AuditConfig) -> Option<OutputFile> {
    match &audit.output {
        AuditOutputConfig::File { path, keep, .. } => Some(OutputFile::new("hub.audit".to_owned(), path, *keep)),
        AuditOutputConfig::Stdout => None,
    }
}

/// Reports a mistake if another sink or the audit log writes to the sink's file. Also reports if rotation of one file
/// would overwrite the other.
///
/// `others` are the output files so far. The sink's file is added to them.
fn output_is_free(checker: &Checker<'_>, at: &KeyPath, sink: &SinkConfig, others: &mut Vec<OutputFile>) {
    let TransportConfig::File(file) = &sink.transport else { return };
    let Some(path) = sink.transport.output_file() else { return };
    let own = OutputFile::new(format!("sinks.{}", sink.name), path, file.keep);
    for other in &*others {
        let table = &other.table;
        if other.path == own.path {
            checker.mistake(at, format!("is also the path of {table}; write different paths"));
        } else if other.rotates_to(&own.path) {
            checker.mistake(at, format!("is a name to which {table} rotates its file; write different paths"));
        } else if own.rotates_to(&other.path) {
            checker.mistake(at, format!("when rotated, would replace the file of {table}; write different paths"));
        }
    }
    others.push(own);
}

/// Reads `partitions`; `None` if the sink is not divided. Only webhook and NATS sinks have partitions, since the
/// partitions of a file would all write to the same path.
fn partitions(table: &mut Table<'_>, transport: &TransportConfig) -> Option<NonZeroU16> {
    if !matches!(transport, TransportConfig::Webhook(_) | TransportConfig::Nats(_)) {
        return None;
    }
    let count = table.number("partitions", PARTITIONS)?;
    NonZeroU16::new(u16::try_from(count).ok()?).filter(|count| count.get() > 1)
}

/// Reports a mistake if a sink in `all[first..]` has the name of an earlier sink, or a name that is too long.
fn names_are_free(checker: &Checker<'_>, path: &KeyPath, all: &[SinkConfig], first: usize) {
    let (others, added) = all.split_at(first);
    for sink in added {
        if let Some(other) = others.iter().find(|other| other.name == sink.name) {
            let (name, other) = (&sink.name, other.table());
            let problem =
                format!("has the name {name}, as sinks.{other} or one of its partitions; rename one of the two");
            checker.mistake(path, problem);
        } else if sink.partition.is_some() && check_name("sink name", &sink.name).is_err() && checker.is_clean(path) {
            let name = &sink.name;
            let problem =
                format!("its partition {name} has a name of more than 63 characters; shorten the name of the sink");
            checker.mistake(path, problem);
        }
    }
}

fn limit(table: &mut Table<'_>, key: &'static str) -> Option<u64> {
    table.size(key, FILES).map(|bytes| bytes as u64)
}

fn rate_limit(table: &mut Table<'_>) -> Option<RateLimitConfig> {
    let mut table = table.table("rate_limit")?;
    if table.lacks(&["events_per_second"]) {
        table.checker.mistake(&table.path, "has no events_per_second; write { events_per_second = 100 }");
    }
    let number = |n: usize| u32::try_from(n).ok().and_then(NonZeroU32::new);
    let events_per_second = table.number("events_per_second", RATE).and_then(number);
    let burst = table.number("burst", RATE).and_then(number);
    table.finish();
    let events_per_second = events_per_second?;
    Some(RateLimitConfig { events_per_second, burst: burst.unwrap_or(events_per_second) })
}

fn redact(table: &mut Table<'_>) -> Vec<FieldPath> {
    let checker = table.checker;
    let mut paths = Vec::new();
    for (at, path) in table.parsed_list::<FieldPath>("redact").into_iter().flatten() {
        if is_identity(&path) {
            checker.mistake(&at, format!("{path:?} identifies the object and cannot be redacted"));
        }
        paths.push(path);
    }
    paths
}

fn select(table: &mut Table<'_>, clusters: KnownClusters<'_>, names: &[String]) -> SinkMatch {
    let mut select = SinkMatch::default();
    let Some(mut table) = table.table("match") else { return select };
    let checker = table.checker;
    if let Some(resources) = table.texts("resources") {
        if resources.is_empty() {
            table.mistake("resources", "is empty; remove the key to select all resources");
        }
        for (path, name) in resources {
            if !names.contains(&name) {
                let suggestion = suggestion(&name, names.iter().map(String::as_str));
                checker.mistake(&path, format!("there is no [resources.{name}]{suggestion}"));
            } else if select.resources.contains(&name) {
                checker.mistake(&path, format!("{name:?} is in the list twice"));
            } else {
                select.resources.push(name);
            }
        }
    }
    select.clusters = selector(&mut table, clusters);
    if let Some(namespaces) = table.texts("namespaces") {
        if namespaces.is_empty() {
            table.mistake("namespaces", "is empty; remove the key to select all namespaces");
        }
        for (path, name) in namespaces {
            if !is_dns_label(&name) {
                checker.mistake(&path, format!("{name:?} is not the name of a namespace"));
            } else if select.namespaces.contains(&name) {
                checker.mistake(&path, format!("{name:?} is in the list twice"));
            } else {
                select.namespaces.push(name);
            }
        }
    }
    if let Some(events) = table.choices("events", "event", EVENTS) {
        if events.is_empty() && checker.is_clean(&table.path.key("events")) {
            table.mistake("events", "is empty; remove the key to select added, updated and deleted");
        }
        select.events.clear();
        for (path, event) in events {
            if select.events.contains(&event) {
                checker.mistake(&path, "is in the list twice");
            } else {
                select.events.push(event);
            }
        }
    }
    table.finish();
    select
}

fn batch(table: &mut Table<'_>, single: bool) -> BatchConfig {
    let mut batch = BatchConfig::default();
    if single {
        (batch.max_events, batch.max_wait) = (1, Duration::ZERO);
    }
    let Some(mut table) = table.table("batch") else { return batch };
    let max_events = table.number("max_events", EVENTS_PER_BATCH);
    if single && max_events.is_some_and(|max| max > 1) {
        table.mistake("max_events", "a template or preset sends one event at a time; remove the key");
    }
    batch.max_events = max_events.unwrap_or(batch.max_events);
    batch.max_bytes = table.size("max_bytes", BYTES_PER_BATCH).unwrap_or(batch.max_bytes);
    batch.max_wait = table.duration("max_wait", BATCH_WAIT).unwrap_or(batch.max_wait);
    table.finish();
    batch
}

/// Reads `retry`. Missing values adapt to given ones: `give_up_after = "1m"` alone also shortens the longest delay.
fn retry(table: &mut Table<'_>) -> RetryConfig {
    let default = RetryConfig::default();
    let Some(mut table) = table.table("retry") else { return default };
    let first = table.duration("first", RETRY_DELAY);
    let max = table.duration("max", RETRY_DELAY);
    let give_up_after = table.duration("give_up_after", GIVE_UP);
    let refused_for = table.duration("refused_for", REFUSED);
    let too_long = |key: &str, one: Option<Duration>, than: &str, other: Option<Duration>| {
        if let (Some(one), Some(other)) = (one, other)
            && one > other
        {
            table.mistake(
                key,
                format!("{} is longer than {than}, which is {}", HumanDuration(one), HumanDuration(other)),
            );
        }
    };
    too_long("first", first, "max", max);
    too_long("max", max, "give_up_after", give_up_after);
    too_long("refused_for", refused_for, "give_up_after", give_up_after);
    if max.is_none() {
        too_long("first", first, "give_up_after", give_up_after);
    }
    table.finish();
    let longest = max.or(first).max(refused_for).unwrap_or_default();
    let give_up_after = give_up_after.unwrap_or_else(|| default.give_up_after.max(longest));
    let max = max.unwrap_or_else(|| default.max.max(first.unwrap_or_default()).min(give_up_after));
    let refused_for = refused_for.unwrap_or_else(|| default.refused_for.min(give_up_after));
    RetryConfig { first: first.unwrap_or_else(|| default.first.min(max)), max, give_up_after, refused_for }
}

/// Returns whether a sink can receive events: a resource that it selects is watched in a cluster that it selects.
///
/// Also true if `[resources]` has none of the selected names, because that mistake is reported by another check.
fn reaches(select: &SinkMatch, clusters: &[ClusterConfig], resources: &[ResourceConfig]) -> bool {
    let is_selected =
        |resource: &&ResourceConfig| select.resources.is_empty() || select.resources.contains(&resource.name);
    let mut selected = resources.iter().filter(is_selected).peekable();
    selected.peek().is_none() || selected.any(|resource| meet(&select.clusters, &resource.clusters, clusters).is_some())
}
