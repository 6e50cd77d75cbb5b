//! The threads of a hub: arbiters for the actors, a shared runtime for everything that waits for the outside.
//!
//! A hub brings its own actix system, so that it can be embedded in any program, with or without actix, on any
//! tokio runtime.

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
use informer_hub_types::Threads;

/// Threads of the shared runtime that may block: closures, scans, compression.
const BLOCKING_THREADS: usize = 32;

/// Threads that a program's closures may block at the same time, each made when it is needed.
const HANDLER_THREADS: usize = 512;

/// The operating system refused what a hub needs.
#[derive(Debug, thiserror::Error)]
pub enum SystemError {
    /// No thread, or no runtime.
    #[error("cannot start the hub's {what}")]
    Threads {
        /// Which.
        what: &'static str,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The system's thread ended before it was up.
    #[error("the hub's actor system ended while it started")]
    Died,
}

/// A running actor system with a registry, and nothing in it yet.
pub struct HubSystem {
    registry: Addr<RegistryActor>,
    end: CancellationToken,
    env: Env,
    /// `None` for one on its caller's thread.
    _house: Option<House>,
}

/// The threads of a hub.
struct House {
    system: System,
    thread: Option<JoinHandle<()>>,
    /// What runs I/O, and what lends its blocking threads to closures.
    runtimes: Vec<Runtime>,
}

impl HubSystem {
    /// Starts the threads and the registry: as many arbiters, and as many threads of the shared runtime, as there
    /// are cores.
    ///
    /// # Errors
    /// [`SystemError`] when the operating system refuses a thread.
    pub fn start(tuning: Tuning) -> Result<Self, SystemError> {
        let cores = std::thread::available_parallelism().map_or(2, NonZeroUsize::get);
        let io = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(cores)
            .max_blocking_threads(BLOCKING_THREADS)
            .thread_name("hub-io")
            .enable_all()
            .build()
            .map_err(|source| SystemError::Threads { what: "runtime", source })?;
        // It runs nothing by itself, so it needs no thread of its own.
        let handlers = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(HANDLER_THREADS)
            .thread_name("hub-handler")
            .build()
            .map_err(|source| SystemError::Threads { what: "runtime for handlers", source })?;
        let (started, starting) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("hub-system".to_owned())
            .spawn(move || {
                let system = System::new();
                let arbiters: Vec<_> = (0..cores).map(|_| Arbiter::new()).collect();
                let threads = arbiters.iter().map(Arbiter::handle).collect::<Vec<_>>();
                if started.send((System::current(), threads)).is_ok() {
                    // An error is a stop code other than zero, which nobody sends.
                    let _ = system.run();
                }
                for arbiter in arbiters {
                    arbiter.stop();
                    let _ = arbiter.join();
                }
            })
            .map_err(|source| SystemError::Threads { what: "system thread", source })?;
        let (system, arbiters) = starting.recv().map_err(|_| SystemError::Died)?;
        let threads = [&io, &handlers].map(|runtime| Threads::of(runtime.handle().clone()));
        let house = House { system, thread: Some(thread), runtimes: vec![io, handlers] };
        Ok(Self::with(threads, arbiters, tuning, Some(house)))
    }

    /// Starts the registry on the actix system and the runtime of the calling thread, and runs everything there, what
    /// blocks included: for simulations that are to happen in the same order each time
    /// ([`chance`](informer_hub_types::rng)). It ends with that runtime.
    ///
    /// # Panics
    /// On a thread without an actix system.
    #[must_use]
    pub fn start_here(tuning: Tuning) -> Self {
        let threads = Threads::simulated(Handle::current());
        Self::with([threads.clone(), threads], vec![Arbiter::current()], tuning, None)
    }

    fn with([io, handlers]: [Threads; 2], arbiters: Vec<ArbiterHandle>, tuning: Tuning, house: Option<House>) -> Self {
        let env = Env::new(io, handlers, arbiters, tuning);
        let registry = RegistryActor::new(env.clone());
        let end = registry.end();
        let registry = start_control(env.arbiter(), move |_| registry);
        Self { registry, end, env, _house: house }
    }

    /// The registry's address.
    #[must_use]
    pub fn registry(&self) -> &Addr<RegistryActor> {
        &self.registry
    }

    /// Completes when the registry has ended: by its `Shutdown`, or because it died, and with it every cluster.
    ///
    /// The registry is the root of the tree, and nobody is above it to restart it; whoever runs the hub should end
    /// the process then, as `informer-hub run` does, and have it started anew.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        self.end.clone().cancelled_owned()
    }

    /// What the actors share.
    #[must_use]
    pub fn env(&self) -> &Env {
        &self.env
    }
}

/// A registry beside the hub's, on the same threads: what it watches is in caches of its own, which no question, status,
/// metric or checkpoint of the hub sees. It counts among the hub's actors, and ends by its own `Shutdown` or with them.
#[derive(Clone, Debug)]
pub struct Apart {
    registry: Addr<RegistryActor>,
    env: Env,
}

impl Apart {
    /// Starts one that watches nothing yet.
    #[must_use]
    pub fn start(env: &Env) -> Self {
        let env = env.apart();
        let registry = RegistryActor::new(env.clone());
        Self { registry: start_control(env.arbiter(), move |_| registry), env }
    }

    /// The registry's address.
    #[must_use]
    pub fn registry(&self) -> &Addr<RegistryActor> {
        &self.registry
    }

    /// What its actors share.
    #[must_use]
    pub fn env(&self) -> &Env {
        &self.env
    }
}

impl Drop for House {
    /// Ends the threads at once. For an orderly end, send the registry its `Shutdown` before.
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
