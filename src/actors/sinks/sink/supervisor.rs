//! Keeps a sink's actor alive, and its address current.

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
use crate::actors::sinks::sink::estate::Heir;
use crate::actors::sinks::sink::letters::LetterRequest;
use crate::actors::sinks::sink::{Drain, DrainReport, SinkActor, SinkParams, State, StorePlace, TakeIn};
use crate::actors::subscribe::subscriber::{Deliver, Delivered, Subscriber};
use informer_hub_journal::JournalError;
use informer_hub_sink::{Durability, Event, OpenedStore, SinkHealth, Store};
use informer_hub_types::{Dynamic, Notification, Threads, Traced, Watched, Watcher, clock};

const INTENSITY: RestartIntensity = RestartIntensity { restarts: 5, within: Duration::from_secs(30) };

/// How long a sink whose actor died too often rests. What is for it waits, and coalesces, in its listeners.
const REST: Duration = Duration::from_secs(60);

/// How much longer than its deadline the answer to a drain is waited for.
const DRAIN_SLACK: Duration = Duration::from_millis(500);

type Address = Option<Addr<SinkActor>>;

/// A running sink. Stops when the last handle goes.
#[derive(Clone)]
pub struct Sink {
    address: Watcher<Address>,
    store: Arc<Mutex<Store>>,
    supervisor: Addr<Supervisor>,
    /// Ends the supervisor, and the actor with it.
    _children: Arc<Children>,
}

/// A sink's store that is open, and what its machine goes on from.
#[derive(Debug)]
pub struct OpenStore {
    store: Store,
    durability: Option<Durability>,
}

impl OpenStore {
    /// For a sink without a journal.
    #[must_use]
    pub fn in_memory() -> Self {
        Self { store: Store::in_memory(), durability: None }
    }

    /// Opens a sink's store, and says in the log what was found; blocks for as long as it takes to read it. `knows` says
    /// whether the caches on disk have an event's object; the last events of others come back.
    ///
    /// # Errors
    /// [`JournalError`] when the disk refuses; whoever runs the hub can fix it.
    pub fn open(
        name: &str,
        place: &StorePlace,
        knows: &dyn Fn(&Event) -> bool,
    ) -> Result<(Self, Vec<Event>), JournalError> {
        let (store, OpenedStore { durability, uncheckpointed, recovery }) =
            Store::open(&place.disk, &place.directory, place.limits, place.fsync, knows)?;
        for (what, recovery) in ["journal", "dead letters"].into_iter().zip(&recovery) {
            if !recovery.damaged.is_empty() || recovery.lost > 0 {
                tracing::error!(sink = name, what, ?recovery, "damage was found, and confined to what is named here");
            } else if recovery.pending > 0 {
                tracing::info!(sink = name, what, pending = recovery.pending, "goes on where it was");
            }
        }
        Ok((Self { store, durability: Some(durability) }, uncheckpointed))
    }
}

impl Sink {
    /// Starts a sink's actor under a supervisor of its own.
    #[must_use]
    pub fn start(params: SinkParams, open: OpenStore, env: &Env) -> Self {
        let OpenStore { store, durability } = open;
        if durability.is_some() {
            params.machine.health.show_journal(&store.state());
        }
        let address = Watched::new(None);
        let current = address.subscribe();
        let guard = ExitGuard::new(0, 0, None, &env.census);
        let heir = Heir::new(State::new(&params, durability));
        let store = Arc::new(Mutex::new(store));
        let handle = Children::new();
        let token = handle.token();
        let supervisor = Supervisor {
            env: env.clone(),
            params,
            heir,
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

    /// Does what it does in another way from now on, with all that is pending; its journal stays where and as large as it
    /// is, and it shows what it does where it did. Without effect on a sink that has ended.
    pub async fn reconfigure(&self, params: SinkParams) {
        // An error means that there is nobody to tell.
        let _ = self.supervisor.send(Reconfigure(params)).await;
    }

    /// Asks about its dead letters. `None` when the sink has ended.
    pub async fn letters(&self, request: LetterRequest) -> Option<<LetterRequest as Message>::Result> {
        let mut sink = self.clone();
        sink.living().await?.send(request).await.ok()
    }

    /// What is acknowledged in its journal and has a lower number may go: the caches on disk are not older. Blocks while
    /// the store is at work.
    pub fn release(&self, before: u64) {
        self.store.lock().release(before);
    }

    /// Sees that what it has on disk is still there, and writes it anew where somebody has removed it. Not while the store is
    /// at work, which sees to it itself.
    pub fn tend(&self, health: &SinkHealth) {
        let Some(mut store) = self.store.try_lock() else { return };
        match store.tend() {
            Ok(Some(state)) => health.show_journal(&state),
            Ok(None) => {}
            Err(error) => health.set_journal_trouble(&error),
        }
    }

    /// As somebody to tell. Events that its actor died over are handed to its successor.
    #[must_use]
    pub fn subscriber(&self) -> Subscriber<Dynamic> {
        Subscriber::new(self.clone())
    }

    /// Delivers what is pending, without waiting for more. `None` when the sink has no actor that could.
    pub async fn drain(&self, drain: Drain) -> Option<DrainReport> {
        let mut sink = self.clone();
        let drained = async move { sink.living().await?.send(drain).await.ok() };
        // The actor answers at the deadline; one that dies over it does not.
        tokio::time::timeout_at(drain.deadline + DRAIN_SLACK, drained).await.ok()?
    }

    /// The actor, as soon as there is one; `None` when there will be none any more.
    pub(super) async fn living(&mut self) -> Address {
        let living = |address: &Address| address.as_ref().is_some_and(Addr::connected);
        self.address.wait_for(living).await.ok()?.clone()
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
            while let Some(address) = sink.living().await {
                let message = TakeIn { notifications: notifications.clone(), traced: traced.clone() };
                if address.send(message).await.is_ok() {
                    return Delivered::All;
                }
                // It died with the batch in hand. Of what it had taken in, its successor will have some twice; events
                // have ids for that.
                tokio::task::yield_now().await;
            }
            Delivered::Gone
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
    heir: Heir<State>,
    store: Arc<Mutex<Store>>,
    address: Watched<Address>,
    supervision: Supervision,
    children: Children,
    _guard: ExitGuard,
}

impl Supervisor {
    fn launch(&mut self, ctx: &mut Context<Self>) {
        let Some(state) = self.heir.claim() else { return };
        let guard = ExitGuard::new(0, 0, Some(&ctx.address().recipient()), &self.env.census);
        let (params, token, store) = (self.params.clone(), self.children.token(), Arc::clone(&self.store));
        let address = SinkActor::start_in_arbiter(self.env.arbiter(), move |ctx| {
            stop_with(&token, ctx);
            SinkActor::new(params, state, store, guard)
        });
        self.address.set(Some(address));
    }

    /// A sink with a journal goes on from what that has: whatever was under way is found there, or its sender hears that
    /// it was not taken and sends it again.
    fn relaunch(&mut self, ctx: &mut Context<Self>) {
        let Some(place) = self.params.place.clone() else { return self.launch(ctx) };
        let (store, name) = (Arc::clone(&self.store), Arc::clone(&self.params.machine.name));
        let reopening = self.env.io.spawn_blocking(move || {
            let mut store = store.lock();
            // The caches have all that it told of.
            let (reopened, _) = OpenStore::open(&name, &place, &|_| true)?;
            *store = reopened.store;
            Ok::<_, JournalError>(reopened.durability)
        });
        ctx.spawn(reopening.into_actor(self).map(|reopened, act, ctx| match reopened {
            Ok(Ok(durability)) => {
                let drains = act.heir.claim().map(|mut state| std::mem::take(&mut state.drains)).unwrap_or_default();
                let mut state = State::new(&act.params, durability);
                state.drains = drains;
                act.heir = Heir::new(state);
                act.launch(ctx);
            }
            failed => {
                let error = failed.map_or_else(|join| join.to_string(), |inner| inner.err().map_or_else(String::new, |e| e.to_string()));
                tracing::error!(sink = %act.params.machine.name, error, "the journal cannot be opened again; trying in {REST:?}");
                act.params.machine.health.set_error(format!("the journal cannot be opened again: {error}"));
                ctx.run_later(REST, Self::relaunch);
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
        let rest = if self.supervision.note_death(clock::now()) { Duration::ZERO } else { REST };
        tracing::error!(sink = %self.params.machine.name, "the sink's actor {}; starting it again in {rest:?}", exited.status);
        self.params.machine.health.set_error(format!("the sink's actor {}", exited.status));
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
        let address = self.address.subscribe().see().clone();
        Box::pin(async move {
            // One that is dead, or dies over it, has a successor that is built from the new parameters.
            if let Some(address) = address {
                let _ = address.send(Reconfigure(params)).await;
            }
        })
    }
}
