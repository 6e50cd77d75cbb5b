//! Test message that makes actors panic.

use actix::Message;

/// Kind of actor that panics.
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

/// Makes every actor of one kind panic, in every cluster. Each actor passes the message on to its children.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub(in crate::actors) struct Crash(pub(in crate::actors) Victim);

impl Crash {
    /// Panics if the message is for actors of `kind`.
    ///
    /// # Panics
    /// If `kind` matches.
    pub(in crate::actors) fn strike(self, kind: Victim) {
        assert!(self.0 != kind, "injected crash of the {kind:?}");
    }
}

/// [`Crash`] in one cluster only.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub(in crate::actors) struct CrashIn(pub(in crate::actors) &'static str, pub(in crate::actors) Crash);
