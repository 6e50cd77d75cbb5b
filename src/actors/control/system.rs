//! Threads of a hub: arbiters for the actors, and runtimes for I/O, queries and closures.
//!
//! A hub has its own actix system, so it can be embedded in any program, with or without actix, on any tokio runtime.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::mpsc;
use std::thread::JoinHandle;

use actix::{Addr, Arbiter, ArbiterHandle, System};
use tokio::runtime::{Handle, Runtime};
use tokio_util::sync::CancellationToken;

use crate::actors::control::registry::RegistryActor;
use crate::actors::env::Env;
use crate::actors::runtime::capacity::Tuning;
use crate::actors::runtime::supervision::start_control;
use crate::actors::runtime::thread_pools::{ThreadPools, lower_priority};
use informer_hub_types::Threads;

/// Maximum number of blocking threads of the shared runtime, for compression, index builds and the disk.
const BLOCKING_THREADS: usize = 32;

/// Maximum number of threads for handler closures of the embedding program, started on demand.
const HANDLER_THREADS: usize = 512;

/// Failure to start the threads of a hub; check the limits of the user or container.
#[derive(Debug, thiserror::Error)]
pub enum SystemError {
    /// A thread or runtime could not be created.
    #[error("cannot start the hub's {what}")]
    Threads {
        /// Name of the thread or runtime.
        what: &'static str,
        /// Error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// The actor system's thread ended during the start.
    #[error("the hub's system thread ended during the start, see the log")]
    Died,
}

/// Running actor system with an empty registry.
pub struct HubSystem {
    registry: Addr<RegistryActor>,
    end: CancellationToken,
    env: Env,
    /// Threads of the hub, which stop when this is dropped. `None` if the hub runs on the caller's thread.
    _threads: Option<HubThreads>,
}

struct HubThreads {
    system: System,
    thread: Option<JoinHandle<()>>,
    /// Runtimes for I/O, queries and closures.
    runtimes: Vec<Runtime>,
}

impl HubSystem {
    /// Starts the threads and the registry: one arbiter and one worker of the shared runtime for each core.
    ///
    /// # Errors
    /// [`SystemError`] if the operating system refuses a thread.
    pub fn start(tuning: Tuning) -> Result<Self, SystemError> {
        let cores = std::thread::available_parallelism().map_or(2, NonZeroUsize::get);
        let io = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(cores)
            .max_blocking_threads(BLOCKING_THREADS)
            .thread_name("hub-io")
            .enable_all()
            .build()
            .map_err(|source| SystemError::Threads { what: "threads", source })?;
        // Queries run on blocking threads only, so this runtime needs no worker threads.
        let readers = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(cores)
            .thread_name("hub-read")
            .on_thread_start(lower_priority)
            .build()
            .map_err(|source| SystemError::Threads { what: "threads for queries", source })?;
        // A handler may spawn tasks and use timers and sockets, which the worker thread runs.
        let handlers = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(HANDLER_THREADS)
            .enable_all()
            .thread_name("hub-handler")
            .build()
            .map_err(|source| SystemError::Threads { what: "threads for handlers", source })?;
        let (started, starting) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("hub-system".to_owned())
            .spawn(move || {
                let system = System::new();
                let arbiters: Vec<_> = (0..cores).map(|_| Arbiter::new()).collect();
                let threads = arbiters.iter().map(Arbiter::handle).collect::<Vec<_>>();
                if started.send((System::current(), threads)).is_ok() {
                    // An error is a stop code other than zero, which is never sent.
                    let _ = system.run();
                }
                for arbiter in arbiters {
                    arbiter.stop();
                    let _ = arbiter.join();
                }
            })
            .map_err(|source| SystemError::Threads { what: "system thread", source })?;
        let (system, arbiters) = starting.recv().map_err(|_| SystemError::Died)?;
        let spawner = |runtime: &Runtime| Threads::of(runtime.handle().clone());
        let pools = ThreadPools { io: spawner(&io), readers: spawner(&readers), handlers: spawner(&handlers) };
        let threads_of_hub = HubThreads { system, thread: Some(thread), runtimes: vec![io, readers, handlers] };
        Ok(Self::with(pools, arbiters, tuning, Some(threads_of_hub)))
    }

    /// Starts the registry on the actix system and runtime of the calling thread, and runs everything there, including
    /// blocking work. For simulations that must be reproducible ([`rng`](informer_hub_types::rng)). The hub ends with
    /// that runtime.
    ///
    /// # Panics
    /// If the thread has no actix system.
    #[must_use]
    pub fn start_here(tuning: Tuning) -> Self {
        let pools = ThreadPools::of(&Threads::simulated(Handle::current()));
        Self::with(pools, vec![Arbiter::current()], tuning, None)
    }

    fn with(
        pools: ThreadPools,
        arbiters: Vec<ArbiterHandle>,
        tuning: Tuning,
        threads_of_hub: Option<HubThreads>,
    ) -> Self {
        let env = Env::new(pools, arbiters, tuning);
        let registry = RegistryActor::new(env.clone());
        let end = registry.end();
        let registry = start_control(env.arbiter(), move |_| registry);
        Self { registry, end, env, _threads: threads_of_hub }
    }

    /// Returns the registry's address.
    #[must_use]
    pub fn registry(&self) -> &Addr<RegistryActor> {
        &self.registry
    }

    /// Completes when the registry has ended, by `Shutdown` or by a failure. After a failure, the clusters may still be
    /// stopping.
    ///
    /// The registry is the root of the tree and is not restarted. The process should then exit and be started again, as
    /// `informer-hub run` does.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        self.end.clone().cancelled_owned()
    }

    /// Returns the threads, caches and limits that the hub's actors share.
    #[must_use]
    pub fn env(&self) -> &Env {
        &self.env
    }
}

/// Separate registry on the threads of a hub.
///
/// Its objects are in caches of their own, which the hub's queries, status, metrics and checkpoints do not include. Its
/// actors count among the hub's actors. It ends by its own `Shutdown` or with the hub.
#[derive(Clone, Debug)]
pub struct SeparateRegistry {
    registry: Addr<RegistryActor>,
    env: Env,
}

impl SeparateRegistry {
    /// Starts a registry without clusters.
    #[must_use]
    pub fn start(env: &Env) -> Self {
        let env = env.separate();
        let registry = RegistryActor::new(env.clone());
        Self { registry: start_control(env.arbiter(), move |_| registry), env }
    }

    /// Returns the registry's address.
    #[must_use]
    pub fn registry(&self) -> &Addr<RegistryActor> {
        &self.registry
    }

    /// Returns the threads, caches and limits that the actors of this registry share.
    #[must_use]
    pub fn env(&self) -> &Env {
        &self.env
    }
}

impl Drop for HubThreads {
    /// Stops the threads immediately. For an orderly stop, send the registry a `Shutdown` first.
    fn drop(&mut self) {
        self.system.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.runtimes.drain(..).for_each(Runtime::shutdown_background);
    }
}

impl fmt::Debug for HubSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HubSystem").field("env", &self.env).finish_non_exhaustive()
    }
}
