//! Memory state shared by informers and the governor (`super::control::memory_governor`): registered informers, and
//! headroom (bytes that may still be read).

pub(in crate::actors) mod headroom;
pub(in crate::actors) mod members;
