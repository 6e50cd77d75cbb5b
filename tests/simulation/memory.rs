//! Memory accounting of a simulation by the allocator's per-thread counters, as each run uses one thread.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use tikv_jemalloc_ctl::thread;
use tikv_jemallocator::Jemalloc;

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
        self.sum.fetch_add(net() - self.before, Relaxed);
    }
}

/// Adds to `sum` the bytes that this thread has allocated and not freed when it ends. Thread-locals are dropped in
/// reverse order of creation, so this must be the first.
pub(crate) fn measure(sum: &Arc<AtomicI64>) {
    METER.set(Some(Meter { sum: Arc::clone(sum), before: net() }));
}

/// Returns the bytes that this thread has allocated minus those that it has freed.
pub(crate) fn net() -> i64 {
    let allocated = thread::allocatedp::read().unwrap().get();
    let freed = thread::deallocatedp::read().unwrap().get();
    allocated.cast_signed() - freed.cast_signed()
}
