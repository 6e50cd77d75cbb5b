//! Thread pools of a hub: the write path has its own, and scans of queries give way to it.

use std::cell::Cell;
use std::thread;
use std::time::Duration;

use informer_hub_types::Threads;
use informer_hub_types::clock::{self, Instant};

/// Time that a thread of readers works at most before it gives way.
const LONGEST_WORK: Duration = Duration::from_micros(300);

/// Nice value of the threads of readers, for queries and HTTP, above that of the process.
///
/// A thread of nice 10 gets a tenth of a CPU that another one wants, so a busy host does not stop queries.
#[cfg(target_os = "linux")]
pub(in crate::actors) const READER_NICE: i32 = 10;

/// Spawners of a hub's work.
#[derive(Clone, Debug)]
pub struct ThreadPools {
    /// Multi-thread runtime for sockets and decoding. Its blocking threads compress, build indices and write files.
    pub io: Threads,
    /// Blocking threads of a lower priority, for scans of queries.
    pub readers: Threads,
    /// Blocking threads for closures of the embedding program. Separate, so that blocked closures do not stall the hub.
    pub handlers: Threads,
}

impl ThreadPools {
    /// Uses one spawner for everything.
    #[must_use]
    pub fn of(threads: &Threads) -> Self {
        Self { io: threads.clone(), readers: threads.clone(), handlers: threads.clone() }
    }
}

thread_local! {
    /// Start of the thread's work since it last waited. `None` if it never gives way.
    static WORKING_SINCE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Records that the calling thread has waited for work. From the first call on, [`give_way_if_due`] has an effect.
pub(crate) fn begin_work() {
    WORKING_SINCE.set(Some(clock::now()));
}

/// Lets threads of the write path run on this CPU, if the calling thread has worked for long.
pub(crate) fn give_way_if_due() {
    if WORKING_SINCE.get().is_some_and(|since| clock::now() - since >= LONGEST_WORK) {
        give_way();
        begin_work();
    }
}

/// Lets threads of the write path that wait for this thread's CPU run.
///
/// A sleep rather than a yield: Linux charges a yield as a whole time slice, so beside any other work of the machine a
/// reader would hardly advance.
pub(in crate::actors) fn give_way() {
    thread::sleep(Duration::from_micros(1));
}

/// Lowers the priority of the calling thread. On other systems than Linux it does nothing: only a process has a priority.
pub(crate) fn lower_priority() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{getpriority_process, setpriority_process};
        let lowered = getpriority_process(None).and_then(|own| setpriority_process(None, (own + READER_NICE).min(19)));
        if let Err(error) = lowered {
            tracing::warn!(%error, "cannot lower the priority of a thread for readers");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_gives_way_only_after_long_work() {
        give_way_if_due();
        assert_eq!(WORKING_SINCE.get(), None, "a thread that does not record its waits never gives way");
        begin_work();
        let since = |ago: Duration| clock::now().checked_sub(ago).unwrap();
        let long_ago = since(2 * LONGEST_WORK);
        WORKING_SINCE.set(Some(long_ago));
        give_way_if_due();
        assert!(WORKING_SINCE.get() > Some(long_ago), "it has given way");
        let lately = since(Duration::ZERO);
        WORKING_SINCE.set(Some(lately));
        give_way_if_due();
        assert!(WORKING_SINCE.get() == Some(lately) || clock::now() - lately >= LONGEST_WORK);
    }
}
