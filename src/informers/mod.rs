//! client-go compatible API: factory, shared informers and event handlers, over all clusters of a hub.
//!
//! This module only adapts: [`crate::cache`] and [`crate::actors`] decide which notifications are sent, and in which order.
//!
//! | client-go | here |
//! |---|---|
//! | `SharedInformerFactory` | [`SharedInformerFactory::informer`] |
//! | `dynamicinformer` | [`SharedInformerFactory::dynamic_informer`] |
//! | `metadatainformer` | [`SharedInformerFactory::metadata_informer`] |
//! | `SharedIndexInformer` | [`SharedInformer`] |
//! | `ResourceEventHandlerFuncs`, `…DetailedFuncs`, `FilteringResourceEventHandler` | the same names |
//! | `ResourceEventHandlerRegistration` | [`HandlerRegistration`] |
//! | `GetIndexer()`, generated listers | [`SharedInformer::indexer`], [`SharedInformer::lister`] |
//! | `SetTransform` | [`SharedInformer::set_transform`] |
//! | `SetWatchErrorHandler` | [`SharedInformer::set_watch_error_handler`] |

mod error;
mod factory;
mod handler;
mod registration;
mod shared_informer;
mod typed;

pub use error::{InformerError, WaitError};
pub use factory::{ListOptions, SharedInformerFactory, SyncResult};
pub use handler::{
    FilteringResourceEventHandler, ResourceEventHandler, ResourceEventHandlerDetailedFuncs, ResourceEventHandlerFuncs,
    dispatch,
};
pub use registration::{HandlerOptions, HandlerRegistration};
pub use shared_informer::SharedInformer;
pub use typed::{api_resource, stored_object};

pub use informer_hub_codec::{ErrorClass, SourceError, Transform};
