//! Catalogue of all metrics.
//!
//! Names follow Prometheus' conventions: base units, `_total` on counters. OTLP names derive from them
//! ([`Metric::otlp_name`]).
//!
//! # Cardinality
//! Label values are names from the configuration (cluster, source, resource, sink, subscription, queue) and fixed words
//! (state, reason, outcome, kind). They are never an object, a namespace, an address or an error. Several informers of
//! one resource in one cluster are one series: their sum or the worst value.

/// Kind of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Value that only increases, until the process ends or the labelled object (such as a cluster) is removed.
    Counter,
    /// Value that increases and decreases.
    Gauge,
    /// Number of durations in each bucket.
    Histogram,
}

impl Kind {
    /// Returns the metric type as text, for the `# TYPE` line of Prometheus' text format.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// Definition of a metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Prometheus name.
    pub name: &'static str,
    /// Counter, gauge or histogram.
    pub kind: Kind,
    /// Names of its labels, in order.
    pub labels: &'static [&'static str],
    help: &'static str,
}

impl Metric {
    /// Returns the help text, in one or two sentences.
    #[must_use]
    pub fn help(&self) -> &'static str {
        self.help.trim_ascii()
    }

    /// Returns the name of the metric family in OpenMetrics: without a counter's `_total`.
    #[must_use]
    pub fn family(&self) -> &'static str {
        match self.kind {
            Kind::Counter => self.name.strip_suffix("_total").unwrap_or(self.name),
            Kind::Gauge | Kind::Histogram => self.name,
        }
    }

    /// Returns the base unit at the end of the name; empty if it has none.
    #[must_use]
    pub fn unit(&self) -> &'static str {
        let family = self.family();
        ["seconds", "bytes"].into_iter().find(|unit| family.ends_with(unit)).unwrap_or_default()
    }

    /// Returns the OTLP name: the Prometheus name without unit and `_total`. A translator from OTLP to Prometheus adds
    /// both again, which gives [`Self::name`].
    #[must_use]
    pub fn otlp_name(&self) -> String {
        let bare = self.family().strip_suffix(self.unit()).unwrap_or_default().trim_end_matches('_');
        bare.replacen("informer_hub_", "informer_hub.", 1).replacen("process_", "process.", 1)
    }

    /// Returns the unit in UCUM notation.
    #[must_use]
    pub fn otlp_unit(&self) -> &'static str {
        match self.unit() {
            "seconds" => "s",
            "bytes" => "By",
            _ => "",
        }
    }
}

// The doc comment of each entry is also the metric's help text.
macro_rules! catalogue {
    ($($(#[doc = $help:literal])+ $id:ident: $kind:ident $name:literal [$($label:ident),*];)+) => {
        /// Index of a metric in the [`CATALOGUE`].
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum Id {
            $($(#[doc = $help])+ $id,)+
        }

        impl Id {
            /// All IDs, in the catalogue's order.
            pub(super) const ALL: &[Self] = &[$(Self::$id),+];
        }

        /// All metrics, in the order in which they are exported.
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
    /// Constant 1, with the version as a label.
    BuildInfo: Gauge "informer_hub_build_info" [version];
    /// Whether every informer of every reachable cluster has synced, as in /readyz. 0 while the hub starts.
    Ready: Gauge "informer_hub_ready" [];
    /// Clusters by state.
    Clusters: Gauge "informer_hub_clusters" [state];
    /// Whether a cluster responds. 0 before the first connection.
    ClusterUp: Gauge "informer_hub_cluster_up" [cluster];
    /// When data last arrived from a cluster, bookmarks included; 0 if never.
    ClusterHeard: Gauge "informer_hub_cluster_last_heard_timestamp_seconds" [cluster];
    /// Longest time for which an informer of a cluster has had no open watch; 0 while all are open.
    ClusterStale: Gauge "informer_hub_cluster_stale_seconds" [cluster];
    /// Open connections to a cluster's apiserver.
    ClusterConnections: Gauge "informer_hub_cluster_connections" [cluster];
    /// Running requests to a cluster's apiserver, watches included.
    ClusterRequests: Gauge "informer_hub_cluster_requests" [cluster];
    /// Connections opened to a cluster's apiserver by reason: first, stream_limit (each open connection had as many
    /// streams as the server allows), http1 (one for each request).
    ConnectionsOpened: Counter "informer_hub_cluster_connections_opened_total" [cluster, reason];
    /// Connections to a cluster's apiserver closed by reason: idle, goaway, ping_timeout, stream_limit (the server
    /// allows no further streams on the connection), failed, http1 (any reason over HTTP/1.1).
    ConnectionsClosed: Counter "informer_hub_cluster_connections_closed_total" [cluster, reason];
    /// Changes of an informer from protobuf to JSON by reason: refused (the server answered in JSON), schema (the hub's
    /// schema lacks a part of an object), faulty (answers were not valid protobuf).
    EncodingFallbacks: Counter "informer_hub_encoding_fallbacks_total" [cluster, reason];
    /// Earliest expiry of a cluster's credentials (client certificate, token, CA), if known.
    ClusterCredentials: Gauge "informer_hub_cluster_credentials_expiry_timestamp_seconds" [cluster];
    /// Whether credentials of a cluster expire soon or have expired.
    ClusterExpiring: Gauge "informer_hub_cluster_credentials_expiring" [cluster];
    /// Whether a source of clusters can be read.
    SourceUp: Gauge "informer_hub_cluster_source_up" [source];
    /// Clusters of a source by state: watched, conflicting (another cluster has the name), invalid (the entry is not a
    /// usable cluster), over (more than max_clusters).
    SourceClusters: Gauge "informer_hub_cluster_source_clusters" [source, state];
    /// When a source of clusters was last read; 0 if never.
    SourceRead: Gauge "informer_hub_cluster_source_read_timestamp_seconds" [source];
    /// Earliest expiry of the credentials of a source, if known.
    SourceCredentials: Gauge "informer_hub_cluster_source_credentials_expiry_timestamp_seconds" [source];
    /// Whether credentials of a source expire soon or have expired.
    SourceExpiring: Gauge "informer_hub_cluster_source_credentials_expiring" [source];
    /// Informers of a cluster by state.
    Informers: Gauge "informer_hub_informers" [cluster, state];
    /// Lists of a cluster by reason: first, restart (of an actor), expired (the version), too_large, failed (the
    /// previous watch or list), ended (the previous watch, without a version), malformed, refused, unsupported (no
    /// streaming list).
    Lists: Counter "informer_hub_lists_total" [cluster, reason];
    /// Duration of complete lists.
    ListDuration: Histogram "informer_hub_list_duration_seconds" [cluster];
    /// Duration of watches.
    WatchDuration: Histogram "informer_hub_watch_duration_seconds" [cluster];
    /// Time from reading a change from its watch until it is in the cache; sampled.
    StoreLag: Histogram "informer_hub_store_lag_seconds" [cluster];
    /// Resources that are watched because they match a pattern of the configuration.
    PatternWatched: Gauge "informer_hub_pattern_watched_resources" [cluster, entry];
    /// Resources that are not watched because of a pattern's limit.
    PatternLeftOut: Gauge "informer_hub_pattern_left_out_resources" [cluster, entry];
    /// Objects in the cache.
    Objects: Gauge "informer_hub_objects" [cluster, resource];
    /// Whether the first list is in the cache.
    Synced: Gauge "informer_hub_informer_synced" [cluster, resource];
    /// Time without an open watch; 0 while one is open.
    Stale: Gauge "informer_hub_informer_stale_seconds" [cluster, resource];
    /// Resource version up to which the cache is complete; the lowest of several informers.
    StoredVersion: Gauge "informer_hub_stored_resource_version" [cluster, resource];
    /// Watch events and list items received.
    Events: Counter "informer_hub_events_total" [cluster, resource];
    /// Watch connections opened.
    Watches: Counter "informer_hub_watches_total" [cluster, resource];
    /// Whether all informers of a resource read protobuf; 0 for JSON. Absent before the first answer.
    Protobuf: Gauge "informer_hub_informer_protobuf" [cluster, resource];
    /// Objects skipped because they were malformed, without a name or too large.
    Skipped: Counter "informer_hub_skipped_objects_total" [cluster, resource];
    /// Restarts of an informer's actors after a failure.
    Restarts: Counter "informer_hub_informer_restarts_total" [cluster, resource];
    /// Changes that are not yet in the cache.
    QueuedChanges: Gauge "informer_hub_queued_changes" [cluster, resource];
    /// Bytes of changes that are not yet in the cache.
    QueuedBytes: Gauge "informer_hub_queued_bytes" [cluster, resource];
    /// Memory of an informer's objects, if memory is limited.
    InformerMemory: Gauge "informer_hub_informer_memory_bytes" [cluster, resource];
    /// Bytes that an informer may use while others need memory, if memory is limited.
    InformerShare: Gauge "informer_hub_informer_memory_share_bytes" [cluster, resource];
    /// How much of its objects an informer keeps, if memory is limited: 0 everything, 1 everything compressed, 2 heads
    /// only, 3 heads without watching, 4 nothing.
    InformerStep: Gauge "informer_hub_informer_memory_step" [cluster, resource];
    /// Notifications queued for a subscriber.
    ListenerPending: Gauge "informer_hub_listener_pending_notifications" [cluster, subscription];
    /// Notifications delivered to a subscriber.
    ListenerDelivered: Counter "informer_hub_listener_delivered_notifications_total" [cluster, subscription];
    /// Notifications merged per object because a subscriber was slow.
    ListenerMerged: Counter "informer_hub_listener_merged_notifications_total" [cluster, subscription];
    /// Notifications lost because a subscriber failed to process them.
    ListenerLost: Counter "informer_hub_listener_lost_notifications_total" [cluster, subscription];
    /// Time from reading a change from its watch until a subscriber has processed it; sampled.
    NotificationLag: Histogram "informer_hub_told_lag_seconds" [subscription];
    /// Notifications received by a sink.
    SinkReceived: Counter "informer_hub_sink_received_notifications_total" [sink];
    /// Notifications received by a sink that its selection excludes.
    SinkFiltered: Counter "informer_hub_sink_filtered_notifications_total" [sink];
    /// Notifications whose filter could not be evaluated.
    SinkFilterErrors: Counter "informer_hub_sink_filter_errors_total" [sink];
    /// Notifications lost because no event could be made of them.
    SinkUnreadable: Counter "informer_hub_sink_unreadable_notifications_total" [sink];
    /// Notifications discarded after the receiver disabled the sink.
    SinkDiscarded: Counter "informer_hub_sink_discarded_notifications_total" [sink];
    /// Notifications, repeated after a restart, of events that the journal already had.
    SinkRepeated: Counter "informer_hub_sink_repeated_notifications_total" [sink];
    /// Events dropped in standby because the leader had delivered them.
    SinkElsewhere: Counter "informer_hub_sink_delivered_elsewhere_events_total" [sink];
    /// Whether this process does not deliver a sink, because another process does or none. Only with `[ha]` or the role
    /// `deliver`.
    SinkStandby: Gauge "informer_hub_sink_standby" [sink];
    /// Events merged per object because the journal was full.
    SinkMerged: Counter "informer_hub_sink_merged_events_total" [sink];
    /// Events that are not acknowledged.
    SinkPending: Gauge "informer_hub_sink_pending_events" [sink];
    /// Bytes of a sink's events in memory.
    SinkPendingBytes: Gauge "informer_hub_sink_pending_bytes" [sink];
    /// Notifications waiting for room in a sink, which blocks their senders.
    SinkHeld: Gauge "informer_hub_sink_held_notifications" [sink];
    /// Rejected events until their next attempt, and later ones of the same objects.
    SinkRefused: Gauge "informer_hub_sink_refused_events" [sink];
    /// Events acknowledged by the receiver.
    SinkDelivered: Counter "informer_hub_sink_delivered_events_total" [sink];
    /// Batches acknowledged by the receiver.
    SinkBatches: Counter "informer_hub_sink_delivered_batches_total" [sink];
    /// Delivery attempts that were retries.
    SinkRetries: Counter "informer_hub_sink_retries_total" [sink];
    /// Duration of delivery attempts by outcome: accepted, failed, disabled (by the receiver), broken (the transport
    /// panicked).
    Attempts: Histogram "informer_hub_sink_attempt_duration_seconds" [sink, outcome];
    /// When a batch was last acknowledged; 0 if never.
    SinkLastDelivery: Gauge "informer_hub_sink_last_delivery_timestamp_seconds" [sink];
    /// Whether the receiver has failed five times in a row. One batch at a time is then sent, unless only one batch fails.
    SinkCircuitOpen: Gauge "informer_hub_sink_circuit_open" [sink];
    /// Whether the receiver has disabled the sink.
    SinkDisabled: Gauge "informer_hub_sink_disabled" [sink];
    /// Events given up and moved to the dead letters.
    DeadLettered: Counter "informer_hub_sink_dead_lettered_events_total" [sink];
    /// Dead letters deleted for lack of space.
    DeadLettersForgotten: Counter "informer_hub_sink_dead_letters_forgotten_total" [sink];
    /// Dead letters on disk, if a sink has a journal.
    DeadLetters: Gauge "informer_hub_sink_dead_letters" [sink];
    /// Bytes of a sink's journal.
    JournalBytes: Gauge "informer_hub_sink_journal_bytes" [sink];
    /// Maximum bytes of a sink's journal.
    JournalLimit: Gauge "informer_hub_sink_journal_limit_bytes" [sink];
    /// Whether a sink's journal accepts no events, which blocks their senders.
    JournalTrouble: Gauge "informer_hub_sink_journal_trouble" [sink];
    /// How often files of a sink's journal were removed or replaced and rewritten.
    JournalReplaced: Counter "informer_hub_sink_journal_replaced_total" [sink];
    /// Accepted events that no file contains any more.
    JournalLost: Counter "informer_hub_sink_journal_lost_events_total" [sink];
    /// Expiry of a sink's client certificate, if it has one.
    SinkCertificate: Gauge "informer_hub_sink_certificate_expiry_timestamp_seconds" [sink];
    /// Whether the client certificate of a sink expires soon or has expired.
    SinkExpiring: Gauge "informer_hub_sink_certificate_expiring" [sink];
    /// Expiry of the certificate of the hub's port, if it has one.
    PortCertificate: Gauge "informer_hub_port_certificate_expiry_timestamp_seconds" [];
    /// Whether the certificate of the hub's port expires soon or has expired.
    PortExpiring: Gauge "informer_hub_port_certificate_expiring" [];
    /// Memory limit, if there is one.
    MemoryLimit: Gauge "informer_hub_memory_limit_bytes" [];
    /// Informers that keep less than everything because memory is limited.
    MemoryShort: Gauge "informer_hub_memory_short_informers" [];
    /// Bytes by content: objects (in caches, if memory is limited), changes (queued for caches), events (in sinks). The
    /// process uses more.
    MemoryByKind: Gauge "informer_hub_memory_bytes" [kind];
    /// When all caches on disk were last up to date; 0 if never.
    Checkpoint: Gauge "informer_hub_checkpoint_timestamp_seconds" [];
    /// Whether the last checkpoint could not be written.
    CheckpointFailed: Gauge "informer_hub_checkpoint_failed" [];
    /// Partitions that the last checkpoint left out because durable readers have not acknowledged.
    CheckpointHeld: Gauge "informer_hub_checkpoint_held_partitions" [];
    /// Bytes of the caches on disk.
    StateBytes: Gauge "informer_hub_state_cache_bytes" [];
    /// Objects restored from disk at the start.
    StateRestored: Gauge "informer_hub_state_restored_objects" [];
    /// Duration of the restore from disk at the start.
    StateRestore: Gauge "informer_hub_state_restore_duration_seconds" [];
    /// Damaged parts found on disk at the start.
    StateDamage: Gauge "informer_hub_state_damaged_parts" [];
    /// How often cache files were removed or replaced and rewritten.
    StateReplaced: Counter "informer_hub_state_replaced_total" [];
    /// How often a changed configuration was applied.
    ConfigReloads: Counter "informer_hub_config_reloads_total" [];
    /// How often a changed configuration was invalid.
    ConfigFailures: Counter "informer_hub_config_reload_failures_total" [];
    /// Whether the last configuration that was read is in use.
    ConfigReloaded: Gauge "informer_hub_config_last_reload_successful" [];
    /// When the configuration in use was loaded.
    ConfigSince: Gauge "informer_hub_config_last_reload_success_timestamp_seconds" [];
    /// Keys whose new values need a restart to take effect.
    ConfigRestart: Gauge "informer_hub_config_needs_restart_keys" [];
    /// Whether this replica delivers to sinks, with `[ha]`, or to some of them, with the role `deliver`.
    Leader: Gauge "informer_hub_leader" [];
    /// Whether the last request for the Lease failed.
    LeaseFailing: Gauge "informer_hub_lease_failing" [];
    /// How often the holder of the Lease changed.
    LeaseTransitions: Gauge "informer_hub_lease_transitions" [];
    /// Whether NATS answered the last requests, if `[fleet]` is configured.
    FleetConnected: Gauge "informer_hub_fleet_connected" [];
    /// Clusters of the fleet that this process owns.
    FleetOwned: Gauge "informer_hub_fleet_owned_clusters" [];
    /// Clusters that no process owns, as this process knows it.
    FleetUnowned: Gauge "informer_hub_fleet_unowned_clusters" [];
    /// Clusters whose objects a serving process reads from the log.
    FleetServed: Gauge "informer_hub_fleet_served_clusters" [];
    /// Served clusters without a live collector, or whose log cannot be read.
    FleetStale: Gauge "informer_hub_fleet_stale_clusters" [];
    /// Epoch under which this process owns a cluster or a shard of one. An empty `shard` is the cluster, without its
    /// shards.
    FleetEpoch: Gauge "informer_hub_fleet_epoch" [cluster, shard];
    /// Weight of a cluster or a shard that this process owns. It grows with the number of objects and events.
    FleetWeight: Gauge "informer_hub_fleet_weight" [cluster, shard];
    /// How often this process became the owner of a cluster.
    FleetAcquired: Counter "informer_hub_fleet_acquired_total" [];
    /// How often this process lost a cluster to another one.
    FleetLost: Counter "informer_hub_fleet_lost_total" [];
    /// How often this process handed a cluster over, for balance or because the operator wanted it.
    FleetMoved: Counter "informer_hub_fleet_moved_total" [];
    /// Bytes of changes that the log has not stored yet.
    FleetQueued: Gauge "informer_hub_fleet_queued_bytes" [];
    /// Wait of the oldest change that the log has not stored yet.
    FleetOldest: Gauge "informer_hub_fleet_oldest_append_seconds" [];
    /// Duration of collecting these metrics.
    Collecting: Gauge "informer_hub_metrics_collect_duration_seconds" [];
    /// Number of values in these metrics; a histogram counts as one.
    Series: Gauge "informer_hub_metrics_series" [];
    /// Keys to be processed: waiting for a worker, or added again while in process.
    QueueDepth: Gauge "informer_hub_workqueue_depth" [queue];
    /// Delayed or rate-limited keys.
    QueueDelayed: Gauge "informer_hub_workqueue_delayed" [queue];
    /// Keys added, not counting those already queued.
    QueueAdds: Counter "informer_hub_workqueue_adds_total" [queue];
    /// Keys added with a delay.
    QueueRetries: Counter "informer_hub_workqueue_retries_total" [queue];
    /// Time from a key's addition until a worker took it.
    QueueLatency: Histogram "informer_hub_workqueue_queue_duration_seconds" [queue];
    /// Processing time of keys.
    QueueWork: Histogram "informer_hub_workqueue_work_duration_seconds" [queue];
    /// Total age of the keys in process. If it grows without bound, workers are stuck.
    QueueUnfinished: Gauge "informer_hub_workqueue_unfinished_work_seconds" [queue];
    /// Age of the oldest key in process.
    QueueLongest: Gauge "informer_hub_workqueue_longest_running_processor_seconds" [queue];
    /// Requests to the Kubernetes API. Resources that are not served are `other`.
    ReadRequests: Counter "informer_hub_read_requests_total" [verb, resource];
    /// Responses of the Kubernetes API by HTTP status code.
    ReadResponses: Counter "informer_hub_read_responses_total" [verb, code];
    /// Responses by the first word of the client's `User-Agent`. At most 32 words have a series; the others are
    /// `other`.
    ReadClientResponses: Counter "informer_hub_read_client_responses_total" [client, code];
    /// Open watches by the first word of `User-Agent`.
    ReadClientWatchers: Gauge "informer_hub_read_client_watchers" [client];
    /// Time from a request to the head of its response.
    ReadDuration: Histogram "informer_hub_read_request_duration_seconds" [verb];
    /// Wait of a read for its turn. Turns without a wait are not counted.
    ReadQueue: Histogram "informer_hub_read_queue_duration_seconds" [];
    /// Lists and reads of one object in progress.
    ReadInProgress: Gauge "informer_hub_read_requests_in_progress" [];
    /// Open watches of the Kubernetes API.
    ReadWatchers: Gauge "informer_hub_read_watchers" [resource];
    /// Watch events sent.
    ReadEvents: Counter "informer_hub_read_events_total" [];
    /// Bytes of response bodies sent, after compression.
    ReadBytes: Counter "informer_hub_read_sent_bytes_total" [];
    /// Memory of the recent changes from which watches resume.
    ReadWindow: Gauge "informer_hub_read_window_bytes" [resource];
    /// Requests to the HTTP port that were denied, by reason.
    HttpDenied: Counter "informer_hub_http_denied_requests_total" [reason];
    /// Requests that a limit has refused with 429: requests, watches, scans or bytes_per_second of the reader,
    /// all_requests or all_watches of the hub. Users of certificates, OIDC and service accounts are
    /// `informer-hub:users`.
    ReaderRefused: Counter "informer_hub_reader_refused_requests_total" [reader, limit];
    /// Bytes of answers to readers with `limits.bytes_per_second`.
    ReaderBytes: Counter "informer_hub_reader_sent_bytes_total" [reader];
    /// Time for which answers were delayed because of `limits.bytes_per_second`.
    ReaderDelay: Counter "informer_hub_reader_delay_seconds_total" [reader];
    /// Reviews that clusters were asked for, by kind: access (SubjectAccessReview) or token (TokenReview).
    Reviews: Counter "informer_hub_reviews_total" [kind, outcome];
    /// Reviews whose answer was in the cache or on its way.
    ReviewsCached: Counter "informer_hub_review_cache_hits_total" [kind];
    /// Time until a review was answered or given up.
    ReviewDuration: Histogram "informer_hub_review_duration_seconds" [kind];
    /// Events written to the audit log.
    AuditEvents: Counter "informer_hub_audit_events_total" [];
    /// Events that are lost because the output was too slow or failed.
    AuditLost: Counter "informer_hub_audit_lost_events_total" [];
    /// Events that wait for the output.
    AuditWaiting: Gauge "informer_hub_audit_waiting_events" [];
    /// Processor time used by the process.
    ProcessCpu: Counter "process_cpu_seconds_total" [];
    /// Resident memory of the process.
    ProcessResident: Gauge "process_resident_memory_bytes" [];
    /// Virtual memory of the process.
    ProcessVirtual: Gauge "process_virtual_memory_bytes" [];
    /// Open files and sockets of the process.
    ProcessFds: Gauge "process_open_fds" [];
    /// Maximum number of open files and sockets.
    ProcessMaxFds: Gauge "process_max_fds" [];
    /// When the process started.
    ProcessStart: Gauge "process_start_time_seconds" [];
}

impl Id {
    /// Returns the definition of the metric.
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
    fn names_follow_the_conventions_and_are_unique() {
        let mut names = BTreeSet::new();
        for metric in CATALOGUE {
            let name = metric.name;
            assert!(names.insert(name), "{name} is not unique");
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
    fn labels_have_low_cardinality() {
        let names =
            ["client", "cluster", "source", "entry", "queue", "reader", "resource", "shard", "sink", "subscription"];
        let known = [&names[..], &["state", "reason", "outcome", "kind", "version", "verb", "code", "limit"]].concat();
        for metric in CATALOGUE {
            assert!(metric.labels.len() <= 2, "{}: a product of three", metric.name);
            assert!(metric.labels.iter().all(|label| known.contains(label)), "{}: {:?}", metric.name, metric.labels);
        }
    }

    #[test]
    fn otlp_names_convert_back_to_prometheus_and_are_unique() {
        let mut names = BTreeSet::new();
        for metric in CATALOGUE {
            let mut name = metric.otlp_name().replace('.', "_");
            assert!(names.insert(name.clone()), "{name} is not unique");
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
    fn id_returns_its_own_metric() {
        assert_eq!(Id::BuildInfo.metric().name, "informer_hub_build_info");
        assert_eq!(Id::ProcessStart.metric().name, "process_start_time_seconds");
        assert_eq!(Id::ProcessStart as usize + 1, CATALOGUE.len());
    }
}
