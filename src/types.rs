//! Plain data: names, keys, selectors, objects and notifications.

pub use informer_hub_types::{
    ApiResource, BatchParams, CheckpointState, ClusterLabels, ClusterName, ClusterSelector, Compression, Condition,
    CredentialKind, CredentialStatus, DecodeError, Dynamic, EventType, Exclusion, Expiry, FieldPath, Freshness, Fsync,
    Groups, Gvr, Histogram, HistogramState, Initial, InvalidKey, InvalidName, InvalidPath, InvalidPattern,
    InvalidResource, InvalidSelection, InvalidSelector, LabelSelector, Labels, Members, MemoryStep, Notification,
    Notifications, Object, ObjectKey, OnFilterError, Origin, Phase, Preset, RateLimit, Requirement, ResourcePattern,
    ResourceRef, ResourceVersion, RetryParams, Scope, Segment, Selected, SharedStr, StoreLimits, StoredObject,
    TraceParent, Uid, View, clock, rng,
};
