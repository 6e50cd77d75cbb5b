//! Memory accounting of a simulation by the allocator's per-thread counters, as each run uses one thread.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use tikv_jemallocator::Jemalloc;

#[path = "../../benches/common/heap.rs"]
#[allow(dead_code, unreachable_pub, reason = "the benchmarks use more of it")]
mod heap;

pub(crate) use heap::of_thread;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

thread_local! {
    static METER: RefCell<Option<Meter>> = const { RefCell::new(None) };
}

/// Adds the bytes that its thread has allocated and not freed to a sum when it is dropped.
struct Meter {
    sum: Arc<AtomicI64>,
    before: i64,
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.sum.fetch_add(of_thread() - self.before, Relaxed);
    }
}

/// Adds to `sum` the bytes that this thread has allocated and not freed when it ends. Thread-locals are dropped in
/// reverse order of creation, so this must be the first.
pub(crate) fn measure(sum: &Arc<AtomicI64>) {
    METER.set(Some(Meter { sum: Arc::clone(sum), before: of_thread() }));
}
