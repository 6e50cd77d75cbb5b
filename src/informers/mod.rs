//! client-go's way in: event handlers in the shape that people who know its informers expect.
//!
//! Adapters only. What is told, when and in which order is decided by `crate::cache` and `crate::actors`.

mod handler;

pub use handler::{
    FilteringResourceEventHandler, ResourceEventHandler, ResourceEventHandlerDetailedFuncs, ResourceEventHandlerFuncs,
    dispatch,
};
