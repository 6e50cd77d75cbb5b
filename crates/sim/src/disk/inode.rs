//! The bytes of a simulated file, and what a sync, one that fails, and a crash make of them.

use std::ops::Range;

use rand::Rng;
use rand::rngs::StdRng;

/// Bytes that garbage comes in.
const SECTOR: usize = 512;

/// Bytes as a running process sees them, and as a crash leaves them.
#[derive(Debug, Default)]
pub(super) struct Inode {
    pub(super) data: Vec<u8>,
    pub(super) durable: Vec<u8>,
    /// Up to where `durable` is what `data` is.
    stable: usize,
    /// What a failed sync has thrown away.
    forgotten: Vec<Range<usize>>,
}

// === impl Inode ===

impl Inode {
    pub(super) fn truncate(&mut self, len: usize) {
        self.data.truncate(len);
        self.stable = self.stable.min(len);
        self.forgotten.retain_mut(|range| {
            range.end = range.end.min(len);
            range.start < range.end
        });
    }

    pub(super) fn sync(&mut self) {
        self.durable.truncate(self.stable);
        self.durable.extend_from_slice(&self.data[self.stable..]);
        self.stable = self.data.len();
        for range in &self.forgotten {
            self.durable[range.clone()].fill(0);
        }
    }

    pub(super) fn forget(&mut self) {
        if self.stable < self.data.len() {
            self.forgotten.push(self.stable..self.data.len());
        }
    }

    pub(super) fn crash(&mut self, rng: &mut StdRng) {
        let mut kept = std::mem::take(&mut self.durable);
        if self.stable < self.data.len() || self.stable < kept.len() {
            // Of what was not synced a prefix is there; a cut that was not synced may not have been made.
            if self.stable == kept.len() || rng.random_bool(0.5) {
                kept.truncate(self.stable);
                let torn = rng.random_range(self.stable..=self.data.len());
                kept.extend_from_slice(&self.data[self.stable..torn]);
                if torn > self.stable && rng.random_bool(0.3) {
                    let from = rng.random_range(self.stable..torn);
                    let to = torn.min(from + SECTOR);
                    rng.fill(&mut kept[from..to]);
                }
            }
        }
        *self = Self { stable: kept.len(), durable: kept.clone(), data: kept, forgotten: Vec::new() };
    }
}
