//! Messages of the registry ([`Hub::registry`](crate::Hub::registry)) and of caches
//! ([`Hub::cache`](crate::Hub::cache)).

pub use crate::actors::RegistryActor;
pub use crate::actors::messages::{
    AddCluster, AddIndexers, Ask, FindSubscription, GetStatus, InformerFor, KnownResource, RegistryError, Release,
    RemoveCluster, RemoveIndexer, ResourceRequest, SetClusterLabels, SetMemoryLimit, Start, TakeSnapshot, Unsubscribe,
    User, ViewSync, WaitForCacheSync,
};
pub use informer_hub_reflector::{Connector, InformerOptions};
