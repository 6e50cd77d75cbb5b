//! The shared view of memory: which informers keep objects, and how much more may be read. The governor
//! ([`super::control`]) sets both.

pub(in crate::actors) mod budget;
pub(in crate::actors) mod headroom;
