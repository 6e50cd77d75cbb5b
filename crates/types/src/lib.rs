//! Data types shared by all other crates: names, keys, objects, deltas, notifications. Also the clock, randomness,
//! threads and object compression that all of them use.
//!
//! Nothing here does I/O or depends on actors, configuration or a Kubernetes client. The vocabulary is client-go's. A
//! type that differs from client-go's says so in its documentation.

mod backoff;
mod body;
mod bucket;
mod built_in;
mod catalogue;
mod causes;
mod change_trace;
pub mod clock;
mod credential;
mod decode_error;
mod delivery;
mod delta;
mod dictionary;
mod disk_body;
mod encodings;
mod fingerprint;
mod fsync;
mod health;
mod histogram;
mod http_versions;
mod identifier_encoding;
mod intern;
mod key;
mod label_filter;
mod list_reason;
mod members;
mod memory;
mod name;
mod notification;
mod object;
mod packer;
mod path;
pub mod path_tree;
mod pattern;
pub mod pauses;
pub mod printable;
mod protobuf_body;
mod resource;
mod rewinds;
pub mod rng;
mod secret_variables;
mod selector;
mod selector_parse;
mod shard;
mod sink_partition;
mod store_limits;
mod suggest;
mod threads;
mod traffic;
mod uid;
mod version;
mod watch_cell;
mod wildcard;

/// Shared, immutable text behind an 8-byte pointer. An `Arc<str>` takes 16 bytes, and an object holds dozens of them.
pub use arcstr::ArcStr as SharedStr;
pub use backoff::{exponential_backoff, jittered_backoff};
pub use body::PackedTotals;
pub use bucket::TokenBucket;
pub use built_in::{BuiltIn, built_in, built_in_names, is_built_in};
pub use catalogue::{Catalogue, GroupOffer, Offer, ResourceLookup, VersionOffer, nearest};
pub use causes::with_causes;
pub use change_trace::{InvalidTraceParent, SPAN_TARGET, SampledChange, TraceLimiter, TraceParent, Traced};
pub use credential::{Credential, CredentialKind, CredentialStatus, Expiry};
pub use decode_error::DecodeError;
pub use delivery::{BatchParams, Compression, EventType, Initial, OnFilterError, Preset, RateLimit, RetryParams};
pub use delta::{Change, Delta, DeltaKind, Deltas};
pub use dictionary::{CodecError, Dictionary, TrainError};
pub use disk_body::{BodyLoader, DiskPacker, PackedBody, StoredBody};
pub use encodings::{AnswerEncoding, EncodingInUse, Encodings, JsonReason};
pub use fingerprint::Fingerprint;
pub use fsync::Fsync;
pub use health::{CheckpointState, Freshness, InformerHealth, Phase};
pub use histogram::{ClusterTimings, Exemplar, Histogram, HistogramState, LAG_SECONDS, REQUEST_SECONDS};
pub use http_versions::HttpVersions;
pub use intern::Interner;
pub use key::{InvalidKey, ObjectKey};
pub use label_filter::{LabelFilter, LabelNeeds, text_hash};
pub use list_reason::ListReason;
pub use members::Members;
pub use memory::{LEAST_MEMORY_LIMIT, MemoryState, MemoryStep, object_memory};
pub use name::{ClusterLabels, ClusterName, InvalidName, check_name, first_names, is_dns_label};
pub use notification::{Dynamic, Notification, Notifications, Object, Origin};
pub use object::{IndexEntry, Labels, StoredObject, StoredObjectParts};
pub use packer::{PackOutcome, Packer};
pub use path::{FieldPath, InvalidPath, Segment};
pub use pattern::{Exclusion, Groups, InvalidPattern, InvalidSelection, ResourcePattern, Selected};
pub use printable::{
    MAX_QUOTED, position_of, printable, printable_char, printable_end, printable_json, printable_lines,
    printable_start, shortened,
};
pub use resource::{ApiResource, Gvr, InvalidResource, ResourceRef, Scope, View};
pub use rewinds::{Rewind, Rewinds};
pub use secret_variables::{is_secret_variable, mark_secret_variable};
pub use selector::{ClusterSelector, Condition, InvalidSelector, LabelSelector, Requirement};
pub use shard::{Shard, ShardName, ShardRule, ShardRules};
pub use sink_partition::SinkPartition;
pub use store_limits::StoreLimits;
pub use suggest::nearest_name;
pub use threads::Threads;
pub use traffic::{CloseCounts, ClusterTraffic, OpenCounts};
pub use uid::Uid;
pub use version::ResourceVersion;
pub use watch_cell::{WatchCell, WatchClosed, Watcher};
pub use wildcard::matches_wildcard;
