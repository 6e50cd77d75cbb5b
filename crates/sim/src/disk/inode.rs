//! Content of a simulated file, and the effect of a sync, a failed sync and a crash on it.

use std::ops::Range;

use rand::Rng;
use rand::rngs::StdRng;

/// Maximum length of the garbage after a crash, in bytes.
const SECTOR: usize = 512;

#[derive(Debug, Default)]
pub(super) struct Inode {
    /// Bytes that the running process reads.
    pub(super) data: Vec<u8>,
    /// Bytes that survive a crash.
    pub(super) durable: Vec<u8>,
    /// Number of bytes at the start of `data` that have been synced. Up to this length, `durable` equals `data`, except
    /// in the ranges `lost`.
    stable: usize,
    /// Ranges of `data` that a failed sync should have written. A later sync does not make them durable.
    lost: Vec<Range<usize>>,
}

impl Inode {
    pub(super) fn truncate(&mut self, len: usize) {
        self.data.truncate(len);
        self.stable = self.stable.min(len);
        self.lost.retain_mut(|range| {
            range.end = range.end.min(len);
            range.start < range.end
        });
    }

    pub(super) fn sync(&mut self) {
        self.durable.truncate(self.stable);
        self.durable.extend_from_slice(&self.data[self.stable..]);
        self.stable = self.data.len();
        for range in &self.lost {
            self.durable[range.clone()].fill(0);
        }
    }

    /// Marks the unsynced bytes as lost. Reads still return them.
    pub(super) fn lose_unsynced(&mut self) {
        if self.stable < self.data.len() {
            self.lost.push(self.stable..self.data.len());
        }
    }

    pub(super) fn crash(&mut self, rng: &mut StdRng) {
        let mut kept = std::mem::take(&mut self.durable);
        if self.stable < self.data.len() || self.stable < kept.len() {
            // A prefix of the unsynced bytes is kept. An unsynced truncation may be undone.
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
        *self = Self { stable: kept.len(), durable: kept.clone(), data: kept, lost: Vec::new() };
    }
}
