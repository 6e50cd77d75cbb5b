//! What checkpoints share: the files on disk, the durable readers, and the plan of what to restore. The actor that
//! writes them is in [`super::control`].

pub(in crate::actors) mod barrier;
pub(in crate::actors) mod keeper;
pub(in crate::actors) mod restore_plan;
