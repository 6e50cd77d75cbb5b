//! Memory state shared by informers and the governor (`super::control::memory_governor`): registered informers and
//! headroom.

pub(in crate::actors) mod headroom;
pub(in crate::actors) mod members;
