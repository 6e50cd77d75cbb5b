//! Data path of one informer, in order: reflector, fifo, processor (which writes the cache), listener.

pub(in crate::actors) mod fifo;
pub(in crate::actors) mod listener;
pub(in crate::actors) mod messages;
pub(in crate::actors) mod processor;
pub(in crate::actors) mod reflector;
