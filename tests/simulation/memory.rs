//! How much memory a simulation has: the allocator's own counts, by thread, since everything of a life is on one.

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

/// Adds up what its thread has allocated and not freed, once everything else of the thread is gone.
struct Meter {
    sum: Arc<AtomicI64>,
    before: i64,
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.sum.fetch_add(net() - self.before, Relaxed);
    }
}

/// Adds to `sum` what this thread has allocated and not freed when it ends. What a thread has of its own goes in the reverse
/// of the order in which it came: this is to be the first.
pub(crate) fn measure(sum: &Arc<AtomicI64>) {
    METER.set(Some(Meter { sum: Arc::clone(sum), before: net() }));
}

/// Bytes that this thread has allocated, without those that it has freed, whoever had allocated them.
pub(crate) fn net() -> i64 {
    let allocated = thread::allocatedp::read().unwrap().get();
    let freed = thread::deallocatedp::read().unwrap().get();
    allocated.cast_signed() - freed.cast_signed()
}
