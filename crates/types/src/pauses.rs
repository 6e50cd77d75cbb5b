//! Pauses of threads that answer queries, which let threads of the write path run on the same CPU.

use std::cell::Cell;
use std::thread;
use std::time::Duration;

use crate::clock::{self, Instant};

/// How long a thread that answers queries may work before [`give_way_if_due`] pauses it.
const LONGEST_WORK: Duration = Duration::from_micros(300);

thread_local! {
    /// When the thread last began to work after a wait; `None` for a thread that never pauses.
    static WORKING_SINCE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Records that the calling thread has waited for work. From the first call on, [`give_way_if_due`] has an effect.
pub fn begin_work() {
    WORKING_SINCE.set(Some(clock::now()));
}

/// Pauses the calling thread if it has worked for 300 µs, so that threads of the write path can run on its CPU.
pub fn give_way_if_due() {
    if WORKING_SINCE.get().is_some_and(|since| clock::now() - since >= LONGEST_WORK) {
        give_way();
        begin_work();
    }
}

/// Pauses the calling thread, so that threads of the write path that wait for its CPU can run.
///
/// A sleep rather than a yield: Linux counts a yield as a whole time slice, so a reader would hardly advance on a busy
/// machine.
pub fn give_way() {
    thread::sleep(Duration::from_micros(1));
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
