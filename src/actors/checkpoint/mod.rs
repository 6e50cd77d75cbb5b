//! State that checkpoints share: files on disk, durable readers, restore plan. The actor that writes checkpoints is in
//! `super::control::checkpoint`.

pub(in crate::actors) mod barrier;
pub(in crate::actors) mod restore_plan;
pub(in crate::actors) mod store;
