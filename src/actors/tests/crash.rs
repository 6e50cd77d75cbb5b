//! A bullet.

use actix::Message;

/// Whom it is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::actors) enum Victim {
    Registry,
    Cluster,
    Discovery,
    Informer,
    Processor,
    Fifo,
    Reflector,
    Listener,
}

/// Goes down the tree to every actor of its kind in every cluster; each panics.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub(in crate::actors) struct Crash(pub(in crate::actors) Victim);

impl Crash {
    /// Strikes if it is for `kind`, and does nothing else.
    ///
    /// # Panics
    /// That is what it is for.
    pub(in crate::actors) fn strike(self, kind: Victim) {
        assert!(self.0 != kind, "the {kind:?} is shot on purpose");
    }
}

/// The same in one cluster.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub(in crate::actors) struct CrashIn(pub(in crate::actors) &'static str, pub(in crate::actors) Crash);
