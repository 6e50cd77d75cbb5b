//! The one definition of each metric.
//!
//! Names are Prometheus': base units, `_total` on counters. OTLP names follow from them ([`Metric::otlp_name`]).
//!
//! # Cardinality
//! Labels are names from the configuration (cluster, source, resource, sink, subscription, queue) and words from here (state, reason,
//! outcome, kind): never an object, a namespace, an address or an error. Informers of one resource in one cluster
//! (several namespaces, several views) are one series, their sum or the worst of them.

/// What a value does over time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// It only grows, until the process ends or what it counts is removed.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Durations by bucket.
    Histogram,
}

impl Kind {
    /// The word after `# TYPE`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// What a metric is.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// The name as Prometheus has it.
    pub name: &'static str,
    /// What its values do.
    pub kind: Kind,
    /// The labels of each of its series, in order.
    pub labels: &'static [&'static str],
    help: &'static str,
}

impl Metric {
    /// What it means, in a sentence.
    #[must_use]
    pub fn help(&self) -> &'static str {
        self.help.trim_ascii()
    }

    /// The name of its family in OpenMetrics: without a counter's `_total`.
    #[must_use]
    pub fn family(&self) -> &'static str {
        match self.kind {
            Kind::Counter => self.name.strip_suffix("_total").unwrap_or(self.name),
            Kind::Gauge | Kind::Histogram => self.name,
        }
    }

    /// The base unit that its name ends with; empty where it counts things.
    #[must_use]
    pub fn unit(&self) -> &'static str {
        let family = self.family();
        ["seconds", "bytes"].into_iter().find(|unit| family.ends_with(unit)).unwrap_or_default()
    }

    /// The name over OTLP, which has the unit in a field of its own and no `_total`. Who translates it back for Prometheus
    /// adds both, and has [`Self::name`].
    #[must_use]
    pub fn otlp_name(&self) -> String {
        let bare = self.family().strip_suffix(self.unit()).unwrap_or_default().trim_end_matches('_');
        bare.replacen("informer_hub_", "informer_hub.", 1).replacen("process_", "process.", 1)
    }

    /// The unit as UCUM writes it.
    #[must_use]
    pub fn otlp_unit(&self) -> &'static str {
        match self.unit() {
            "seconds" => "s",
            "bytes" => "By",
            _ => "",
        }
    }
}

/// The help is the metric's documentation here.
macro_rules! catalogue {
    ($($(#[doc = $help:literal])+ $id:ident: $kind:ident $name:literal [$($label:ident),*];)+) => {
        /// A metric's place in the [`CATALOGUE`].
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum Id {
            $($(#[doc = $help])+ $id,)+
        }

        impl Id {
            /// All of them, in the catalogue's order.
            pub(super) const ALL: &[Self] = &[$(Self::$id),+];
        }

        /// All metrics, in the order in which they are written.
        pub const CATALOGUE: &[Metric] = &[$(
            Metric {
                name: $name,
                kind: Kind::$kind,
                labels: &[$(stringify!($label)),*],
                help: concat!($($help),+),
            },
        )+];
    };
}

catalogue! {
    /// Always 1; the version of the program.
    BuildInfo: Gauge "informer_hub_build_info" [version];
    /// Whether every informer of every cluster that can be reached has synced, as /readyz says: 0 while the hub starts.
    Ready: Gauge "informer_hub_ready" [];
    /// Clusters by what they are doing.
    Clusters: Gauge "informer_hub_clusters" [state];
    /// Whether a cluster answers: 0 while it is connected to for the first time, and while it is unreachable.
    ClusterUp: Gauge "informer_hub_cluster_up" [cluster];
    /// When anything last came from a cluster, bookmarks included; 0 before anything has.
    ClusterHeard: Gauge "informer_hub_cluster_last_heard_timestamp_seconds" [cluster];
    /// For how long the informer of a cluster that is furthest behind has had no open watch: what is answered for it is as
    /// old as that. 0 while all watches are open.
    ClusterStale: Gauge "informer_hub_cluster_stale_seconds" [cluster];
    /// When the first of the credentials ends that a cluster is reached with (client certificate, token, CA). Absent where none
    /// has an end that can be read.
    ClusterCredentials: Gauge "informer_hub_cluster_credentials_expiry_timestamp_seconds" [cluster];
    /// Whether credentials of a cluster end soon, or have ended, and nothing has replaced them.
    ClusterExpiring: Gauge "informer_hub_cluster_credentials_expiring" [cluster];
    /// Whether it is known what a source of clusters says now: 0 while it cannot be looked at, and keeps what it had.
    SourceUp: Gauge "informer_hub_cluster_source_up" [source];
    /// What a source of clusters finds, by what becomes of it: watched, conflicting (somebody else has the name), invalid (no
    /// cluster can be made of it), over (more than max_clusters).
    SourceClusters: Gauge "informer_hub_cluster_source_clusters" [source, state];
    /// When it was last known what a source of clusters says; 0 before that.
    SourceRead: Gauge "informer_hub_cluster_source_read_timestamp_seconds" [source];
    /// When the first of the credentials ends that the management cluster of a source is reached with. Absent where none has
    /// an end that can be read.
    SourceCredentials: Gauge "informer_hub_cluster_source_credentials_expiry_timestamp_seconds" [source];
    /// Whether credentials of a source end soon, or have ended, and nothing has replaced them.
    SourceExpiring: Gauge "informer_hub_cluster_source_credentials_expiring" [source];
    /// Informers of a cluster by what they are doing.
    Informers: Gauge "informer_hub_informers" [cluster, state];
    /// Lists begun at a cluster, by reason: first, restart (an actor was restarted), expired (the version is too old),
    /// too_large, failed (the watch or list before it), ended (the watch ended and had no version), malformed, refused,
    /// unsupported (no streaming list).
    Lists: Counter "informer_hub_lists_total" [cluster, reason];
    /// Duration of lists that were complete, from the first request to the last object.
    ListDuration: Histogram "informer_hub_list_duration_seconds" [cluster];
    /// Duration of watches, from their opening to their end.
    WatchDuration: Histogram "informer_hub_watch_duration_seconds" [cluster];
    /// Time from reading a change off its watch until it is in the cache, in samples: one at a time of each informer.
    StoreLag: Histogram "informer_hub_store_lag_seconds" [cluster];
    /// Resources that a pattern means and that are watched for it.
    PatternWatched: Gauge "informer_hub_pattern_watched_resources" [cluster, entry];
    /// Resources that a pattern means and that are not watched, for its limit.
    PatternLeftOut: Gauge "informer_hub_pattern_left_out_resources" [cluster, entry];
    /// Objects in the cache.
    Objects: Gauge "informer_hub_objects" [cluster, resource];
    /// Whether the first list is in the cache.
    Synced: Gauge "informer_hub_informer_synced" [cluster, resource];
    /// For how long there has been no open watch; 0 while there is one.
    Stale: Gauge "informer_hub_informer_stale_seconds" [cluster, resource];
    /// Resource version up to which the cache is complete; the lowest where several informers watch a resource.
    StoredVersion: Gauge "informer_hub_stored_resource_version" [cluster, resource];
    /// Watch events and list items taken in.
    Events: Counter "informer_hub_events_total" [cluster, resource];
    /// Watch connections opened.
    Watches: Counter "informer_hub_watches_total" [cluster, resource];
    /// Objects that could not be taken in: malformed, without a name, too large.
    Skipped: Counter "informer_hub_skipped_objects_total" [cluster, resource];
    /// Times that an actor of an informer died and was restarted.
    Restarts: Counter "informer_hub_informer_restarts_total" [cluster, resource];
    /// Objects with changes that wait for the cache: how far an informer is behind what it has read.
    QueuedChanges: Gauge "informer_hub_queued_changes" [cluster, resource];
    /// Bytes of the changes that wait for the cache.
    QueuedBytes: Gauge "informer_hub_queued_bytes" [cluster, resource];
    /// Memory of an informer's objects, where memory has a limit.
    InformerMemory: Gauge "informer_hub_informer_memory_bytes" [cluster, resource];
    /// Bytes that an informer may use while others want memory too, where memory has a limit.
    InformerShare: Gauge "informer_hub_informer_memory_share_bytes" [cluster, resource];
    /// How much of its objects an informer keeps, where memory has a limit: 0 everything, 1 everything compressed, 2 heads
    /// alone, 3 heads without watching, 4 nothing.
    InformerStep: Gauge "informer_hub_informer_memory_step" [cluster, resource];
    /// Notifications that wait for a subscriber: how far it is behind the cache.
    ListenerPending: Gauge "informer_hub_listener_pending_notifications" [cluster, subscription];
    /// Notifications handed to a subscriber.
    ListenerDelivered: Counter "informer_hub_listener_delivered_notifications_total" [cluster, subscription];
    /// Notifications merged into others of their object because a subscriber was behind.
    ListenerMerged: Counter "informer_hub_listener_merged_notifications_total" [cluster, subscription];
    /// Notifications that a subscriber failed on.
    ListenerLost: Counter "informer_hub_listener_lost_notifications_total" [cluster, subscription];
    /// From when a change was read off its watch to a subscriber's answer for it, in samples: one at a time of each informer
    /// and subscriber.
    ToldLag: Histogram "informer_hub_told_lag_seconds" [subscription];
    /// Notifications that came to a sink.
    SinkReceived: Counter "informer_hub_sink_received_notifications_total" [sink];
    /// Of these, not for the sink by its selection.
    SinkFiltered: Counter "informer_hub_sink_filtered_notifications_total" [sink];
    /// Notifications whose filter could not be evaluated.
    SinkFilterErrors: Counter "informer_hub_sink_filter_errors_total" [sink];
    /// Notifications lost because no event could be made of them.
    SinkUnreadable: Counter "informer_hub_sink_unreadable_notifications_total" [sink];
    /// Notifications thrown away because the receiver has disabled the sink.
    SinkDiscarded: Counter "informer_hub_sink_discarded_notifications_total" [sink];
    /// Notifications not taken because the journal has told of them before a restart.
    SinkRepeated: Counter "informer_hub_sink_repeated_notifications_total" [sink];
    /// Events merged into others of their object because the journal was full.
    SinkMerged: Counter "informer_hub_sink_merged_events_total" [sink];
    /// Events that are not acknowledged.
    SinkPending: Gauge "informer_hub_sink_pending_events" [sink];
    /// Bytes of a sink's events in memory.
    SinkPendingBytes: Gauge "informer_hub_sink_pending_bytes" [sink];
    /// Notifications that wait for room in a sink, their senders with them.
    SinkHeld: Gauge "informer_hub_sink_held_notifications" [sink];
    /// Events that wait after a refusal: refused ones until their next attempt, and later ones of the same objects.
    SinkRefused: Gauge "informer_hub_sink_refused_events" [sink];
    /// Events that the receiver acknowledged.
    SinkDelivered: Counter "informer_hub_sink_delivered_events_total" [sink];
    /// Batches that the receiver acknowledged.
    SinkBatches: Counter "informer_hub_sink_delivered_batches_total" [sink];
    /// Attempts that were repetitions.
    SinkRetries: Counter "informer_hub_sink_retries_total" [sink];
    /// How long attempts to deliver a batch took, by what came of them: accepted, failed, disabled (by the receiver), broken
    /// (the transport panicked).
    Attempts: Histogram "informer_hub_sink_attempt_duration_seconds" [sink, outcome];
    /// When a batch was last acknowledged; 0 before the first.
    SinkLastDelivery: Gauge "informer_hub_sink_last_delivery_timestamp_seconds" [sink];
    /// Whether deliveries are suspended but for one lane that probes, since the receiver keeps failing.
    SinkCircuitOpen: Gauge "informer_hub_sink_circuit_open" [sink];
    /// Whether the receiver has said that it wants no more.
    SinkDisabled: Gauge "informer_hub_sink_disabled" [sink];
    /// Events given up.
    DeadLettered: Counter "informer_hub_sink_dead_lettered_events_total" [sink];
    /// Dead letters that were forgotten, since there was no room for them.
    DeadLettersForgotten: Counter "informer_hub_sink_dead_letters_forgotten_total" [sink];
    /// Dead letters that are kept on disk, where a sink has a journal.
    DeadLetters: Gauge "informer_hub_sink_dead_letters" [sink];
    /// Bytes of a sink's journal.
    JournalBytes: Gauge "informer_hub_sink_journal_bytes" [sink];
    /// The most that a sink's journal may take.
    JournalLimit: Gauge "informer_hub_sink_journal_limit_bytes" [sink];
    /// Whether a sink's journal takes nothing in: who tells the sink waits.
    JournalTrouble: Gauge "informer_hub_sink_journal_trouble" [sink];
    /// How often the files of a sink's journal were found to be removed or replaced by somebody else, and were written anew.
    JournalReplaced: Counter "informer_hub_sink_journal_replaced_total" [sink];
    /// Events that a journal had accepted and that are in no file any more.
    JournalLost: Counter "informer_hub_sink_journal_lost_events_total" [sink];
    /// When the client certificate of a sink ends, where it has one.
    SinkCertificate: Gauge "informer_hub_sink_certificate_expiry_timestamp_seconds" [sink];
    /// Whether the client certificate of a sink ends soon, or has ended, and nothing has replaced it.
    SinkExpiring: Gauge "informer_hub_sink_certificate_expiring" [sink];
    /// When the certificate of the hub's own port ends, where it has one.
    PortCertificate: Gauge "informer_hub_port_certificate_expiry_timestamp_seconds" [];
    /// Whether the certificate of the hub's own port ends soon, or has ended, and nothing has replaced it.
    PortExpiring: Gauge "informer_hub_port_certificate_expiring" [];
    /// The memory limit, where there is one.
    MemoryLimit: Gauge "informer_hub_memory_limit_bytes" [];
    /// Informers that keep less than everything, where memory has a limit.
    MemoryShort: Gauge "informer_hub_memory_short_informers" [];
    /// Bytes by what they hold: objects (in caches, where memory has a limit), changes (that wait for caches), events (in
    /// sinks). The process has more.
    MemoryByKind: Gauge "informer_hub_memory_bytes" [kind];
    /// When all caches were last found to be, or brought, up to date on disk; 0 before that.
    Checkpoint: Gauge "informer_hub_checkpoint_timestamp_seconds" [];
    /// Whether the last checkpoint could not be written.
    CheckpointFailed: Gauge "informer_hub_checkpoint_failed" [];
    /// Partitions that the last checkpoint left as they were, since durable readers have not answered.
    CheckpointHeld: Gauge "informer_hub_checkpoint_held_partitions" [];
    /// Bytes that caches take on disk.
    StateBytes: Gauge "informer_hub_state_cache_bytes" [];
    /// Objects that were on disk at the start.
    StateRestored: Gauge "informer_hub_state_restored_objects" [];
    /// How long it took to have them back.
    StateRestore: Gauge "informer_hub_state_restore_duration_seconds" [];
    /// What was found damaged on disk at the start.
    StateDamage: Gauge "informer_hub_state_damaged_parts" [];
    /// How often a checkpoint found files of caches removed or replaced by somebody else, and wrote all anew.
    StateReplaced: Counter "informer_hub_state_replaced_total" [];
    /// How often a changed configuration was applied.
    ConfigReloads: Counter "informer_hub_config_reloads_total" [];
    /// How often a changed configuration could not be read or applied.
    ConfigFailures: Counter "informer_hub_config_reload_failures_total" [];
    /// Whether the configuration that was read last is the one in use.
    ConfigReloaded: Gauge "informer_hub_config_last_reload_successful" [];
    /// Since when the configuration in use is what it is.
    ConfigSince: Gauge "informer_hub_config_last_reload_success_timestamp_seconds" [];
    /// Keys whose new values are not in use, since they are read at the start alone.
    ConfigRestart: Gauge "informer_hub_config_needs_restart_keys" [];
    /// How long it took to collect these metrics, without writing them.
    Collecting: Gauge "informer_hub_metrics_collect_duration_seconds" [];
    /// Values in these metrics; a histogram is one.
    Series: Gauge "informer_hub_metrics_series" [];
    /// Keys of a work queue that wait for a worker, those included that were added again while they are worked on.
    QueueDepth: Gauge "informer_hub_workqueue_depth" [queue];
    /// Keys that a work queue adds later: delayed or rate-limited.
    QueueDelayed: Gauge "informer_hub_workqueue_delayed" [queue];
    /// Keys added to a work queue; a key that already waits does not count.
    QueueAdds: Counter "informer_hub_workqueue_adds_total" [queue];
    /// Keys added to a work queue with a delay, for a retry or otherwise.
    QueueRetries: Counter "informer_hub_workqueue_retries_total" [queue];
    /// Time that keys waited in a work queue until a worker took them.
    QueueLatency: Histogram "informer_hub_workqueue_queue_duration_seconds" [queue];
    /// Time that the work on keys of a work queue took.
    QueueWork: Histogram "informer_hub_workqueue_work_duration_seconds" [queue];
    /// Age of all unfinished work of a work queue, added up; growth without end means stuck workers.
    QueueUnfinished: Gauge "informer_hub_workqueue_unfinished_work_seconds" [queue];
    /// Age of the oldest unfinished work of a work queue.
    QueueLongest: Gauge "informer_hub_workqueue_longest_running_processor_seconds" [queue];
    /// Processor time that the process has used.
    ProcessCpu: Counter "process_cpu_seconds_total" [];
    /// Memory that the process has resident.
    ProcessResident: Gauge "process_resident_memory_bytes" [];
    /// Memory that the process has mapped.
    ProcessVirtual: Gauge "process_virtual_memory_bytes" [];
    /// Files and sockets that the process has open.
    ProcessFds: Gauge "process_open_fds" [];
    /// The most that it may have open.
    ProcessMaxFds: Gauge "process_max_fds" [];
    /// When the process started.
    ProcessStart: Gauge "process_start_time_seconds" [];
}

impl Id {
    /// What the metric is.
    #[must_use]
    pub fn metric(self) -> &'static Metric {
        &CATALOGUE[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_keep_to_the_conventions_and_are_each_there_once() {
        let mut names = BTreeSet::new();
        for metric in CATALOGUE {
            let name = metric.name;
            assert!(names.insert(name), "{name} is there twice");
            assert!(name.starts_with("informer_hub_") || name.starts_with("process_"), "{name}");
            assert_eq!(metric.kind == Kind::Counter, name.ends_with("_total"), "{name}");
            assert!(metric.kind != Kind::Histogram || metric.unit() == "seconds", "{name}");
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
            for suffix in ["_count", "_sum", "_bucket", "_created", "_info"] {
                assert!(
                    !metric.family().ends_with(suffix) || name == "informer_hub_build_info",
                    "{name} ends with {suffix}"
                );
            }
            let help = metric.help();
            assert!(help.len() > 15 && help.ends_with('.') && !help.contains(['\n', '\\', '"']), "{name}: {help:?}");
        }
    }

    #[test]
    fn labels_are_of_few_words() {
        let names = ["cluster", "source", "entry", "queue", "resource", "sink", "subscription"];
        let known = [&names[..], &["state", "reason", "outcome", "kind", "version"]].concat();
        for metric in CATALOGUE {
            assert!(metric.labels.len() <= 2, "{}: a product of three", metric.name);
            assert!(metric.labels.iter().all(|label| known.contains(label)), "{}: {:?}", metric.name, metric.labels);
        }
    }

    #[test]
    fn a_name_over_otlp_becomes_prometheus_again_and_is_nobody_elses() {
        let mut names = BTreeSet::new();
        for metric in CATALOGUE {
            let mut name = metric.otlp_name().replace('.', "_");
            assert!(names.insert(name.clone()), "{name} is there twice");
            if !metric.unit().is_empty() {
                name = format!("{name}_{}", metric.unit());
            }
            if metric.kind == Kind::Counter {
                name += "_total";
            }
            assert_eq!(name, metric.name);
        }
    }

    #[test]
    fn an_id_finds_its_own_metric() {
        assert_eq!(Id::BuildInfo.metric().name, "informer_hub_build_info");
        assert_eq!(Id::ProcessStart.metric().name, "process_start_time_seconds");
        assert_eq!(Id::ProcessStart as usize + 1, CATALOGUE.len());
    }
}
