//! What jemalloc says of this process's heap.

use serde_json::Value;
use tikv_jemalloc_ctl::{epoch, stats, stats_print};

/// jemalloc's own sizes, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heap {
    /// What the program asked for, each piece rounded up to its size class. Depends on the program alone.
    pub allocated: u64,
    /// Pages that hold at least one piece: `allocated` and the free room between the pieces.
    pub active: u64,
    /// jemalloc's own bookkeeping.
    pub metadata: u64,
    /// `active`, `metadata`, and freed pages that were not given back yet.
    pub resident: u64,
    /// Address space given back to the system, which costs nothing.
    pub retained: u64,
}

/// The heap now.
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

/// Live pieces and the room they have, of one size.
#[derive(Clone, Copy, Debug)]
pub struct SizeClass {
    /// Bytes of one piece.
    pub size: u64,
    /// Pieces that are in use.
    pub live: u64,
    /// Pieces that the pages of this size have room for.
    pub room: u64,
}

/// All sizes, smallest first, large ones too.
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

/// What jemalloc gives for a request of so many bytes.
pub fn size_class(bytes: usize) -> u64 {
    let bytes = (bytes as u64).max(1);
    if bytes <= 8 {
        return 8;
    }
    if bytes <= 128 {
        return bytes.next_multiple_of(16);
    }
    // Four classes for each doubling.
    let step = 1 << ((bytes - 1).ilog2() - 2);
    bytes.next_multiple_of(step)
}
