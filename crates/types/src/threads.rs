//! Task spawner for async and blocking work, which a simulation replaces with one deterministic thread.

use std::pin::Pin;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::rng;

/// Maximum delay of blocking work in a simulation, long enough for other tasks to run before it.
const LONGEST: Duration = Duration::from_millis(4);

/// Spawner of async tasks and blocking work on one runtime.
#[derive(Clone, Debug)]
pub struct Threads {
    handle: Handle,
    simulated: bool,
}

impl Threads {
    /// Creates a spawner for a runtime.
    #[must_use]
    pub fn of(handle: Handle) -> Self {
        Self { handle, simulated: false }
    }

    /// Creates a spawner for the current runtime.
    ///
    /// # Panics
    /// Outside of a runtime.
    #[must_use]
    pub fn current() -> Self {
        Self::of(Handle::current())
    }

    /// Creates a spawner that runs everything on the runtime's one thread. Blocking work becomes a task that starts
    /// after a delay of up to 4 ms, drawn with [`rng::unit`].
    ///
    /// With a paused clock and a seeded random number generator, all work runs in the same order each time.
    #[must_use]
    pub fn simulated(handle: Handle) -> Self {
        Self { handle, simulated: true }
    }

    /// Spawns an async task.
    ///
    /// The task is boxed, so that all tasks share code: tokio adds about 6 KB of code for each type of a spawned
    /// future.
    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let task: Pin<Box<dyn Future<Output = F::Output> + Send>> = Box::pin(task);
        self.handle.spawn(task)
    }

    /// Spawns work that may block. The work is boxed, so that all spawned work shares code.
    pub fn spawn_blocking<F, R>(&self, work: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        self.spawn_boxed(Box::new(work))
    }

    fn spawn_boxed<R: Send + 'static>(&self, work: Box<dyn FnOnce() -> R + Send>) -> JoinHandle<R> {
        if !self.simulated {
            return self.handle.spawn_blocking(work);
        }
        let pause = LONGEST.mul_f64(rng::unit());
        self.handle.spawn(async move {
            tokio::time::sleep(pause).await;
            work()
        })
    }
}
