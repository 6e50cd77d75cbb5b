//! Heap statistics of jemalloc for this process.

use serde_json::Value;
use tikv_jemalloc_ctl::{epoch, stats, stats_print, thread};

/// Statistics of jemalloc, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heap {
    /// Allocated bytes, rounded up to size classes, and freed allocations that threads keep for reuse.
    pub allocated: u64,
    /// Pages with at least one allocation: `allocated` and the free space between allocations.
    pub active: u64,
    /// Bookkeeping of jemalloc.
    pub metadata: u64,
    /// `active`, `metadata`, and freed pages that were not returned to the system yet.
    pub resident: u64,
    /// Address space that was returned to the system.
    pub retained: u64,
}

/// Reads the current statistics.
pub fn now() -> Heap {
    epoch::advance().unwrap();
    Heap {
        allocated: stats::allocated::read().unwrap() as u64,
        active: stats::active::read().unwrap() as u64,
        metadata: stats::metadata::read().unwrap() as u64,
        resident: stats::resident::read().unwrap() as u64,
        retained: stats::retained::read().unwrap() as u64,
    }
}

/// Returns the bytes that this thread has allocated minus those that it has freed. Unlike [`Heap::allocated`], they do
/// not include freed allocations that the thread keeps for reuse.
pub fn of_thread() -> i64 {
    let allocated = thread::allocatedp::read().unwrap().get();
    let freed = thread::deallocatedp::read().unwrap().get();
    allocated.cast_signed() - freed.cast_signed()
}

/// Allocations of one size class.
#[derive(Clone, Copy, Debug)]
pub struct SizeClass {
    /// Bytes of one allocation.
    pub size: u64,
    /// Number of live allocations.
    pub live: u64,
    /// Number of allocations that the pages of the class can hold.
    pub room: u64,
}

/// Returns all size classes, smallest first, large ones included.
pub fn size_classes() -> Vec<SizeClass> {
    epoch::advance().unwrap();
    let mut options = stats_print::Options::default();
    options.json_format = true;
    options.skip_per_arena = true;
    options.skip_mutex_statistics = true;
    let mut text = Vec::new();
    stats_print::stats_print(&mut text, options).unwrap();
    let json: Value = serde_json::from_slice(&text).unwrap();
    let merged = &json["jemalloc"]["stats.arenas"]["merged"];
    let constants = &json["jemalloc"]["arenas"];
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let small = merged["bins"].as_array().unwrap().iter().zip(constants["bin"].as_array().unwrap());
    let small = small.map(|(bin, constant)| SizeClass {
        size: number(&constant["size"]),
        live: number(&bin["curregs"]),
        room: number(&bin["curslabs"]) * number(&constant["nregs"]),
    });
    let large = merged["lextents"].as_array().unwrap().iter().zip(constants["lextent"].as_array().unwrap());
    let large = large.map(|(extent, constant)| SizeClass {
        size: number(&constant["size"]),
        live: number(&extent["curlextents"]),
        room: number(&extent["curlextents"]),
    });
    small.chain(large).collect()
}

/// Returns the size class of an allocation of `bytes`.
pub fn size_class(bytes: usize) -> u64 {
    let bytes = (bytes as u64).max(1);
    if bytes <= 8 {
        return 8;
    }
    if bytes <= 128 {
        return bytes.next_multiple_of(16);
    }
    // Four classes for each power of two.
    let step = 1 << ((bytes - 1).ilog2() - 2);
    bytes.next_multiple_of(step)
}
