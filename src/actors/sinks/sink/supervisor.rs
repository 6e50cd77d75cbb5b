//! Sink supervisor: restarts a sink's actor and publishes its address.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;

use crate::actors::env::Env;
use crate::actors::runtime::supervision::{
    ChildExited, Children, ExitGuard, ExitStatus, RestartIntensity, Supervision, stop_with,
};
use crate::actors::sinks::sink::dead_letters::LetterRequest;
use crate::actors::sinks::sink::recoverable::RecoverySlot;
use crate::actors::sinks::sink::{
    AcceptNotifications, Drain, DrainReport, Reconcile, SinkActor, SinkParams, State, StorePlace,
};
use crate::actors::subscribe::subscriber::{Deliver, Delivered, Subscriber};
use informer_hub_journal::JournalError;
use informer_hub_sink::{Coverage, Durability, Event, OpenedStore, SinkHealth, SourceVersions, Store};
use informer_hub_types::{Dynamic, Notification, Threads, Traced, WatchCell, Watcher, clock, with_causes};

const INTENSITY: RestartIntensity = RestartIntensity { restarts: 5, within: Duration::from_secs(30) };

/// Delay before a sink actor that died too often is restarted, and before another attempt to reopen its journal.
/// Meanwhile listeners queue and coalesce the sink's notifications.
const RESTART_DELAY: Duration = Duration::from_secs(60);

/// Additional time to wait for the answer to a drain after its deadline.
const DRAIN_SLACK: Duration = Duration::from_millis(500);

type Address = Option<Addr<SinkActor>>;

/// Handle to a running sink, which stops when the last handle is dropped.
#[derive(Clone)]
pub struct Sink {
    address: Watcher<Address>,
    store: Arc<Mutex<Store>>,
    supervisor: Addr<Supervisor>,
    /// Stops the supervisor and the actor when dropped.
    _children: Arc<Children>,
}

/// Opened store (journal and dead letters) of a sink, and the state to resume from.
#[derive(Debug)]
pub struct OpenStore {
    store: Store,
    durability: Option<Durability>,
}

impl OpenStore {
    /// Creates a store without a journal.
    #[must_use]
    pub fn in_memory() -> Self {
        Self { store: Store::in_memory(), durability: None }
    }

    /// Opens a sink's store (journal and dead letters) and logs what was found. Blocks while it reads.
    ///
    /// `knows` returns whether the caches on disk contain the object of an event. For each object that they do not
    /// contain, also returns the object's last event in the store.
    ///
    /// # Errors
    /// [`JournalError`] if the disk fails; the operator can fix it.
    pub fn open(
        name: &str,
        place: &StorePlace,
        knows: &dyn Fn(&Event) -> bool,
    ) -> Result<(Self, Vec<Event>), JournalError> {
        let (store, OpenedStore { durability, uncheckpointed, recovery }) =
            Store::open(&place.disk, &place.directory, place.limits, place.fsync, knows)?;
        for (what, recovery) in ["journal", "dead letters"].into_iter().zip(&recovery) {
            if !recovery.damaged.is_empty() || recovery.lost > 0 {
                tracing::error!(
                    sink = name,
                    what,
                    ?recovery,
                    "found damaged records; they are skipped and counted as lost"
                );
            } else if recovery.pending > 0 && what == "journal" {
                tracing::info!(
                    sink = name,
                    pending = recovery.pending,
                    "resuming with the pending events of the journal"
                );
            } else if recovery.pending > 0 {
                tracing::info!(sink = name, kept = recovery.pending, "found dead letters of an earlier run");
            }
        }
        Ok((Self { store, durability: Some(durability) }, uncheckpointed))
    }
}

impl Sink {
    /// Starts a sink actor with its own supervisor.
    #[must_use]
    pub fn start(params: SinkParams, open: OpenStore, env: &Env) -> Self {
        let OpenStore { store, durability } = open;
        if durability.is_some() {
            params.machine.health.show_journal(&store.state());
        }
        let address = WatchCell::new(None);
        let current = address.subscribe();
        let guard = ExitGuard::new(0, 0, None, &env.actor_count);
        let slot = RecoverySlot::new(State::new(&params, durability, &env.rewinds));
        let store = Arc::new(Mutex::new(store));
        let handle = Children::new();
        let token = handle.token();
        let supervisor = Supervisor {
            env: env.clone(),
            params,
            slot,
            is_reconfigured: false,
            store: Arc::clone(&store),
            address,
            supervision: Supervision::new(&[], INTENSITY),
            children: Children::new(),
            _guard: guard,
        };
        let supervisor = Supervisor::start_in_arbiter(env.arbiter(), move |ctx| {
            stop_with(&token, ctx);
            supervisor
        });
        Self { address: current, store, supervisor, _children: Arc::new(handle) }
    }

    /// Applies a new configuration and keeps all pending events. The journal keeps its directory and limits, and the
    /// counters in the sink's status continue. Does nothing if the sink has ended.
    pub async fn reconfigure(&self, params: SinkParams) {
        // An error means that the sink has ended.
        let _ = self.supervisor.send(Reconfigure(params)).await;
    }

    /// Sends a request about dead letters. Returns `None` if the sink has ended.
    pub async fn letters(&self, request: LetterRequest) -> Option<<LetterRequest as Message>::Result> {
        let mut sink = self.clone();
        sink.running().await?.send(request).await.ok()
    }

    /// Releases acknowledged journal records with numbers lower than `before`, because the caches on disk contain their
    /// changes. Blocks while the store is busy.
    pub fn release(&self, before: u64) {
        self.store.lock().release(before);
    }

    /// Rewrites the sink's files if they were removed. Does nothing while another thread uses the store; the next write
    /// to the journal then checks the files.
    pub fn check_files(&self, health: &SinkHealth) {
        let Some(mut store) = self.store.try_lock() else { return };
        match store.check_files() {
            Ok(Some(state)) => health.show_journal(&state),
            Ok(None) => {}
            Err(error) => health.set_journal_trouble(&error),
        }
    }

    /// Returns a subscriber that delivers to this sink. If the actor dies, unanswered notifications are sent to its
    /// successor.
    #[must_use]
    pub fn subscriber(&self) -> Subscriber<Dynamic> {
        Subscriber::new(self.clone())
    }

    /// Sends a [`Reconcile`], which reports events that another process has delivered. Returns the lowest undelivered
    /// resourceVersion by cluster and resource; `None` if it is unknown or the sink has ended.
    pub async fn reconcile(&self, coverage: Coverage) -> Option<SourceVersions> {
        let mut sink = self.clone();
        sink.running().await?.send(Reconcile(coverage)).await.ok()?
    }

    /// Delivers pending events without waiting for full batches. Returns `None` if the sink has ended, or if its actor
    /// has not answered 500 ms after the deadline.
    pub async fn drain(&self, drain: Drain) -> Option<DrainReport> {
        let mut sink = self.clone();
        let drained = async move { sink.running().await?.send(drain).await.ok() };
        // The actor answers at the deadline, unless it dies.
        tokio::time::timeout_at(drain.deadline + DRAIN_SLACK, drained).await.ok()?
    }

    /// Waits until the sink's actor runs and returns its address; `None` if the sink has ended.
    pub(super) async fn running(&mut self) -> Address {
        let running = |address: &Address| address.as_ref().is_some_and(Addr::connected);
        self.address.wait_for(running).await.ok()?.clone()
    }
}

impl Deliver for Sink {
    fn deliver(
        &self,
        notifications: Vec<Notification>,
        traced: Option<Traced>,
        _: &Threads,
    ) -> BoxFuture<'static, Delivered> {
        let mut sink = self.clone();
        async move {
            while let Some(address) = sink.running().await {
                let message = AcceptNotifications { notifications: notifications.clone(), traced: traced.clone() };
                if address.send(message).await.is_ok() {
                    return Delivered::All;
                }
                // The actor died before it answered. Events that it had accepted may be delivered twice, with the same
                // IDs.
                tokio::task::yield_now().await;
            }
            Delivered::Gone(0)
        }
        .boxed()
    }
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink").finish_non_exhaustive()
    }
}

#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct Reconfigure(pub(super) SinkParams);

struct Supervisor {
    env: Env,
    params: SinkParams,
    slot: RecoverySlot<State>,
    store: Arc<Mutex<Store>>,
    address: WatchCell<Address>,
    /// Whether the parameters have changed since the start.
    is_reconfigured: bool,
    supervision: Supervision,
    children: Children,
    _guard: ExitGuard,
}

impl Supervisor {
    fn launch(&mut self, ctx: &mut Context<Self>) {
        let Some(mut state) = self.slot.claim() else { return };
        if self.is_reconfigured {
            // The actor before may have died without these parameters.
            state.machine.reconfigure(self.params.machine.clone(), clock::now());
        }
        let guard = ExitGuard::new(0, 0, Some(&ctx.address().recipient()), &self.env.actor_count);
        let (params, token, store) = (self.params.clone(), self.children.token(), Arc::clone(&self.store));
        let address = SinkActor::start_in_arbiter(self.env.arbiter(), move |ctx| {
            stop_with(&token, ctx);
            SinkActor::new(params, state, store, guard)
        });
        self.address.set(Some(address));
    }

    /// Restarts the actor. With a journal, the state is read from the journal. Senders whose notifications are not in
    /// the journal get an error and send again.
    fn relaunch(&mut self, ctx: &mut Context<Self>) {
        let Some(place) = self.params.place.clone() else { return self.launch(ctx) };
        let (store, name) = (Arc::clone(&self.store), Arc::clone(&self.params.machine.name));
        let reopening = self.env.io.spawn_blocking(move || {
            let mut store = store.lock();
            // The caches already have all events of the journal.
            let (reopened, _) = OpenStore::open(&name, &place, &|_| true)?;
            *store = reopened.store;
            Ok::<_, JournalError>(reopened.durability)
        });
        ctx.spawn(reopening.into_actor(self).map(|reopened, act, ctx| match reopened {
            Ok(Ok(durability)) => {
                let mut state = State::new(&act.params, durability, &act.env.rewinds);
                if let Some(mut before) = act.slot.claim() {
                    state.drains = std::mem::take(&mut before.drains);
                    state.attempts = before.attempts.clone();
                }
                act.slot = RecoverySlot::new(state);
                act.launch(ctx);
            }
            failed => {
                let error = failed.map_or_else(
                    |join| join.to_string(),
                    |inner| inner.err().map_or_else(String::new, |e| with_causes(&e)),
                );
                tracing::error!(
                    sink = %act.params.machine.name, error, retry_in = ?RESTART_DELAY,
                    "cannot reopen the journal; retrying"
                );
                act.params.machine.health.set_error(format!("cannot reopen the journal: {error}"));
                ctx.run_later(RESTART_DELAY, Self::relaunch);
            }
        }));
    }
}

impl Actor for Supervisor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.launch(ctx);
    }
}

impl Handler<ChildExited> for Supervisor {
    type Result = ();

    fn handle(&mut self, exited: ChildExited, ctx: &mut Self::Context) {
        if exited.status == ExitStatus::Stopped {
            return;
        }
        let rest = if self.supervision.note_death(clock::now()) { Duration::ZERO } else { RESTART_DELAY };
        tracing::error!(
            sink = %self.params.machine.name, status = %exited.status, restart_in = ?rest,
            "sink actor failed; restarting it"
        );
        self.params.machine.health.set_error(format!("sink actor failed ({})", exited.status));
        self.address.set(None);
        ctx.run_later(rest, Self::relaunch);
    }
}

impl Handler<Reconfigure> for Supervisor {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, Reconfigure(mut params): Reconfigure, _ctx: &mut Self::Context) -> Self::Result {
        params.machine.health = Arc::clone(&self.params.machine.health);
        params.place.clone_from(&self.params.place);
        self.params = params.clone();
        self.is_reconfigured = true;
        let address = self.address.subscribe().read_latest().clone();
        Box::pin(async move {
            // A dead actor's successor is created with the new parameters.
            if let Some(address) = address {
                let _ = address.send(Reconfigure(params)).await;
            }
        })
    }
}
