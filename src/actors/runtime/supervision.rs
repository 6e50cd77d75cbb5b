//! Supervision in the style of Erlang/OTP: exit reports, restart decisions and restart intensity.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use actix::dev::channel::channel;
use actix::{Actor, ActorContext, ActorFutureExt, Addr, ArbiterHandle, AsyncContext, Context, Message, Recipient};
use futures::FutureExt;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::actors::runtime::capacity::CONTROL_MAILBOX;
use informer_hub_types::clock::Instant;

/// Reason why an actor ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExitStatus {
    /// The actor was stopped, or its work was done.
    Stopped,
    /// The actor panicked.
    Panicked,
    /// Another actor, on which this actor depends, had ended.
    Orphaned,
    /// The actor's children died more often than their restart intensity allows.
    GaveUp,
}

impl ExitStatus {
    /// Returns whether the actor died instead of being stopped, so that its supervisor must restart it or give up.
    #[must_use]
    pub fn is_failure(self) -> bool {
        self != Self::Stopped
    }
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stopped => "stopped",
            Self::Panicked => "panicked",
            Self::Orphaned => "a part that it needs has ended",
            Self::GaveUp => "its parts failed too often",
        })
    }
}

/// Maximum number of restarts within a period before a supervisor gives up. The higher a supervisor is in the tree, the
/// smaller is its intensity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::actors) struct RestartIntensity {
    /// Maximum number of restarts.
    pub restarts: usize,
    /// Period in which restarts are counted.
    pub within: Duration,
}

/// Child of a `rest_for_one` supervisor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::actors) struct ChildSpec {
    /// Name in logs.
    pub name: &'static str,
}

/// Decision about the exit of a child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::actors) enum Decision {
    /// Do nothing: the child was stopped, or the exit is of an earlier start (generation) of the child.
    Ignore,
    /// Restart the child with this index and every later one (`rest_for_one`).
    RestartFrom(usize),
    /// Stop all children: they died more often than the restart intensity allows.
    GiveUp,
}

/// State by which one supervisor decides on restarts. Makes no calls to actors.
#[derive(Debug)]
pub(in crate::actors) struct Supervision {
    specs: &'static [ChildSpec],
    intensity: RestartIntensity,
    deaths: VecDeque<Instant>,
    /// Current generation of each child: a number that grows with each start. Exits of earlier generations are ignored.
    generations: Vec<u64>,
}

impl Supervision {
    /// Creates the state for children that start in the order of `specs` and stop in reverse.
    #[must_use]
    pub(in crate::actors) fn new(specs: &'static [ChildSpec], intensity: RestartIntensity) -> Self {
        Self { specs, intensity, deaths: VecDeque::new(), generations: vec![0; specs.len()] }
    }

    /// Begins a new generation of a child, i.e. a new start, and returns its number. From now on, exits of earlier
    /// generations are ignored.
    pub(in crate::actors) fn begin(&mut self, child: usize) -> u64 {
        let Some(generation) = self.generations.get_mut(child) else { return 0 };
        *generation += 1;
        *generation
    }

    /// Returns the name of a child.
    #[must_use]
    pub(in crate::actors) fn name(&self, child: usize) -> &'static str {
        self.specs.get(child).map_or("child", |spec| spec.name)
    }

    /// Decides how to handle an exit.
    pub(in crate::actors) fn on_exit(&mut self, exited: ChildExited, now: Instant) -> Decision {
        if !exited.status.is_failure() || self.generations.get(exited.child) != Some(&exited.generation) {
            return Decision::Ignore;
        }
        if self.note_death(now) { Decision::RestartFrom(exited.child) } else { Decision::GiveUp }
    }

    /// Counts the death of a child. Returns false if the restart intensity (deaths within a period) is exceeded.
    pub(in crate::actors) fn note_death(&mut self, now: Instant) -> bool {
        while self.deaths.front().is_some_and(|death| now.duration_since(*death) > self.intensity.within) {
            self.deaths.pop_front();
        }
        self.deaths.push_back(now);
        self.deaths.len() <= self.intensity.restarts
    }
}

/// Reports that a child has ended.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "()")]
pub struct ChildExited {
    /// Index of the child in its supervisor's specs, or another number the supervisor has assigned.
    pub child: usize,
    /// Generation of the child that ended: the number of its start. The supervisor ignores the exit if a later
    /// generation has begun.
    pub generation: u64,
    /// Reason of the exit.
    pub status: ExitStatus,
}

/// Number of running actors of a hub, for the shutdown report and the leak check of tests.
#[derive(Clone, Debug, Default)]
pub struct ActorCount(Arc<AtomicUsize>);

impl ActorCount {
    /// Returns the number of running actors.
    #[must_use]
    pub fn running(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}

/// Cancellation token that stops the children of a supervisor, on whichever thread they run. It is cancelled when the
/// supervisor ends, even by a panic.
#[derive(Debug)]
pub(in crate::actors) struct Children {
    token: CancellationToken,
    _end: DropGuard,
}

impl Children {
    pub(in crate::actors) fn new() -> Self {
        let token = CancellationToken::new();
        Self { _end: token.clone().drop_guard(), token }
    }

    /// Returns a token that is cancelled when the supervisor ends.
    pub(in crate::actors) fn token(&self) -> CancellationToken {
        self.token.clone()
    }
}

/// Starts an actor in an arbiter and returns its address. Its mailbox is unlimited
/// ([`CONTROL_MAILBOX`](super::capacity::CONTROL_MAILBOX)) even for messages sent before the actor has started.
pub(in crate::actors) fn start_control<A>(
    arbiter: &ArbiterHandle,
    make: impl FnOnce(&mut Context<A>) -> A + Send + 'static,
) -> Addr<A>
where
    A: Actor<Context = Context<A>>,
{
    let (sender, receiver) = channel(CONTROL_MAILBOX);
    arbiter.spawn_fn(move || {
        let mut ctx = Context::with_receiver(receiver);
        let actor = make(&mut ctx);
        actix::spawn(ctx.into_future(actor));
    });
    Addr::new(sender)
}

/// Sends a control message to an actor without waiting for the answer. When this function returns, the message is in
/// the actor's mailbox.
pub(in crate::actors) fn detach<T: 'static>(request: impl Future<Output = T> + 'static) {
    actix::spawn(request.map(drop).boxed_local());
}

/// Stops an actor when its supervisor's token is cancelled.
pub(in crate::actors) fn stop_with<A>(token: &CancellationToken, ctx: &mut Context<A>)
where
    A: Actor<Context = Context<A>>,
{
    let cancelled = token.clone().cancelled_owned();
    ctx.spawn(actix::fut::wrap_future::<_, A>(cancelled).map(|(), _, ctx| ctx.stop()));
}

/// Reports the end of its actor to the supervisor, however the actor ends.
///
/// actix drops a panicking actor while the panic unwinds, which distinguishes a panic from a stop.
pub(in crate::actors) struct ExitGuard {
    exited: ChildExited,
    supervisor: Option<Recipient<ChildExited>>,
    actor_count: ActorCount,
}

impl ExitGuard {
    /// Creates a guard for one child.
    ///
    /// Each guard has its own clone of `supervisor`. A new clone has a reserved mailbox slot, so its single message
    /// always fits.
    #[must_use]
    pub(in crate::actors) fn new(
        child: usize,
        generation: u64,
        supervisor: Option<&Recipient<ChildExited>>,
        actor_count: &ActorCount,
    ) -> Self {
        actor_count.0.fetch_add(1, Ordering::AcqRel);
        let exited = ChildExited { child, generation, status: ExitStatus::Stopped };
        Self { exited, supervisor: supervisor.cloned(), actor_count: actor_count.clone() }
    }

    /// Sets the exit status before the actor stops itself.
    pub(in crate::actors) fn set(&mut self, status: ExitStatus) {
        self.exited.status = status;
    }
}

impl Drop for ExitGuard {
    fn drop(&mut self) {
        self.actor_count.0.fetch_sub(1, Ordering::AcqRel);
        if std::thread::panicking() {
            self.exited.status = ExitStatus::Panicked;
        }
        if let Some(supervisor) = &self.supervisor {
            // A closed mailbox means that the supervisor has ended too.
            let _ = supervisor.try_send(self.exited);
        }
    }
}

impl fmt::Debug for ExitGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExitGuard").field("exited", &self.exited).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use informer_hub_types::clock;

    const SPECS: &[ChildSpec] = &[ChildSpec { name: "a" }, ChildSpec { name: "b" }];
    const INTENSITY: RestartIntensity = RestartIntensity { restarts: 2, within: Duration::from_secs(10) };

    fn death(child: usize, generation: u64, status: ExitStatus) -> ChildExited {
        ChildExited { child, generation, status }
    }

    #[test]
    fn supervision_restarts_from_the_dead_child_until_the_intensity_is_exceeded() {
        let mut supervision = Supervision::new(SPECS, INTENSITY);
        let generation = supervision.begin(1);
        let now = clock::now();
        let panicked = death(1, generation, ExitStatus::Panicked);
        assert_eq!(supervision.on_exit(panicked, now), Decision::RestartFrom(1));
        assert_eq!(supervision.on_exit(panicked, now), Decision::RestartFrom(1));
        assert_eq!(supervision.on_exit(panicked, now), Decision::GiveUp);
        assert_eq!(supervision.on_exit(panicked, now + Duration::from_secs(11)), Decision::RestartFrom(1));
    }

    #[test]
    fn supervision_ignores_stops_and_older_generations() {
        let mut supervision = Supervision::new(SPECS, INTENSITY);
        let old = supervision.begin(0);
        let generation = supervision.begin(0);
        let now = clock::now();
        assert_eq!(supervision.on_exit(death(0, generation, ExitStatus::Stopped), now), Decision::Ignore);
        assert_eq!(supervision.on_exit(death(0, old, ExitStatus::Panicked), now), Decision::Ignore);
    }
}
