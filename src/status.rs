//! Status types of the hub, its clusters, informers, sinks and cluster sources.

pub use crate::actors::{
    ClusterSeen, ClusterState, ClusterStatus, DiscoveryState, DiscoveryStatus, FleetView, HubStatus, InformerMemory,
    InformerSeen, InformerStatus, InformerSync, InformersOf, ListenerSeen, ListenerStatus, MemoryStatus, NotSynced,
    PatternStatus, StateStatus, SyncScope, SyncView,
};
pub use crate::app::{
    ClusterSourceState, ClusterSourceStatus, ElectionStatus, FleetCluster, FleetStatus, HubReport, ReloadStatus,
    Reporter, Role, SinkReport,
};
