//! Who runs what waits, and what blocks.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::rng;

/// How long what blocks takes at most in a simulation: long enough for a lot to come in between.
const LONGEST: Duration = Duration::from_millis(4);

/// A runtime's tasks, and its threads that may block.
#[derive(Clone, Debug)]
pub struct Threads {
    handle: Handle,
    simulated: bool,
}

impl Threads {
    /// Those of a runtime.
    #[must_use]
    pub fn of(handle: Handle) -> Self {
        Self { handle, simulated: false }
    }

    /// Those of the runtime that calls this.
    ///
    /// # Panics
    /// Outside of one.
    #[must_use]
    pub fn current() -> Self {
        Self::of(Handle::current())
    }

    /// All on the runtime's one thread: what blocks is a task among the others, begun after a pause that
    /// [`chance`] decides on. With a paused clock, and chance decided by a seed, everything happens in the same order
    /// each time.
    #[must_use]
    pub fn simulated(handle: Handle) -> Self {
        Self { handle, simulated: true }
    }

    /// Runs what waits.
    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.handle.spawn(task)
    }

    /// Runs what may block.
    pub fn spawn_blocking<F, R>(&self, work: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
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
