//! Events as sinks deliver them, and the state of sinks.

pub use informer_hub_sink::{
    Event, EventData, EventError, EventOptions, EventResource, Filter, InvalidFilter, InvalidRecord, JournalState,
    JournalStatus, Redaction, SinkHealth, SinkStatus, StoreError,
};
