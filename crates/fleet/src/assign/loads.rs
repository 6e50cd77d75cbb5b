//! Loads of collectors under an assignment of shards that is being changed.

use std::collections::BTreeSet;

use super::rendezvous::{name_hash, score};
use super::{Balance, Collector, ShardLoad};

/// Relative load of a collector that has exactly its fair share of the load. The share is in proportion to the
/// capacity.
const SHARE: u64 = 1_000_000;

/// Assignment of shards to collectors, with the resulting loads. A shard is an index into `shards`, a collector an
/// index into `collectors`.
pub(super) struct Loads<'a> {
    shards: &'a [ShardLoad],
    collectors: &'a [Collector],
    hashes: Vec<u64>,
    assigned: Vec<Option<usize>>,
    /// For each collector, its movable shards as pairs of weight and shard index.
    owned: Vec<BTreeSet<(u64, usize)>>,
    sums: Vec<u128>,
    /// Collectors that are not draining, as pairs of relative load and collector index.
    by_load: BTreeSet<(u64, usize)>,
    total_weight: f64,
    total_capacity: f64,
    /// Limits of a collector's relative load. A load below `low` or above `high` causes moves, which bring the load
    /// between `target_low` and `target_high` if possible.
    low: u64,
    high: u64,
    target_low: u64,
    target_high: u64,
    /// Minimum gain of a move in percent: the receiver's load after the move must be this much below the giver's load
    /// before the move.
    gain: u64,
}

/// Returns the sum of the numbers, at least 1. A zero among them counts as 1.
fn total(numbers: impl Iterator<Item = u64>) -> f64 {
    let sum = numbers.map(|number| u128::from(number.max(1))).sum::<u128>().max(1);
    #[expect(clippy::cast_precision_loss, reason = "loads are compared by parts in a million")]
    let sum = sum as f64;
    sum
}

impl<'a> Loads<'a> {
    pub(super) fn new(shards: &'a [ShardLoad], collectors: &'a [Collector], balance: Balance) -> Self {
        let tolerance = balance.tolerance.clamp(0.0, 0.99);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "it is between 0 and 0.99"
        )]
        let slack = |part: f64| (tolerance * part * SHARE as f64) as u64;
        let live: Vec<_> = (0..collectors.len()).filter(|at| !collectors[*at].draining).collect();
        Self {
            shards,
            collectors,
            hashes: collectors.iter().map(|collector| name_hash(&collector.name)).collect(),
            assigned: vec![None; shards.len()],
            owned: vec![BTreeSet::new(); collectors.len()],
            sums: vec![0; collectors.len()],
            by_load: live.iter().map(|at| (0, *at)).collect(),
            total_weight: total(shards.iter().map(|load| load.weight)),
            total_capacity: total(live.iter().map(|at| collectors[*at].capacity)),
            // Slightly less than the tolerance, so that rounding does not exceed it.
            low: SHARE - slack(0.98),
            high: SHARE + slack(0.98),
            target_low: SHARE - slack(0.5),
            target_high: SHARE + slack(0.5),
            gain: balance.gain.min(50).into(),
        }
    }

    pub(super) fn weight(&self, shard: usize) -> u64 {
        self.shards[shard].weight.max(1)
    }

    pub(super) fn collector(&self, shard: usize) -> Option<usize> {
        self.assigned[shard]
    }

    /// Assigns a shard that the operator has pinned, so that it never moves.
    pub(super) fn pin(&mut self, shard: usize, collector: usize) {
        self.assigned[shard] = Some(collector);
        self.set_load(collector, self.sums[collector] + u128::from(self.weight(shard)));
    }

    pub(super) fn add(&mut self, shard: usize, collector: usize) {
        let weight = self.weight(shard);
        if let Some(from) = self.assigned[shard].replace(collector) {
            self.owned[from].remove(&(weight, shard));
            self.set_load(from, self.sums[from] - u128::from(weight));
        }
        self.owned[collector].insert((weight, shard));
        self.set_load(collector, self.sums[collector] + u128::from(weight));
    }

    /// Assigns a shard to the collector with the highest rendezvous score. Considers only collectors whose load would
    /// stay within `target_high`, and prefers those in the shard's preferred zone.
    ///
    /// If there is no such collector, assigns the shard to the least loaded one.
    pub(super) fn place(&mut self, shard: usize) {
        let (weight, hash) = (self.weight(shard), name_hash(&self.shards[shard].shard.to_string()));
        let mut best: Option<(bool, f64, usize)> = None;
        for (at, collector) in self.collectors.iter().enumerate() {
            if collector.draining || self.relative(at, self.sums[at] + u128::from(weight)) > self.target_high {
                continue;
            }
            let candidate = (self.prefers(shard, at), score(hash, self.hashes[at], collector.capacity.max(1)), at);
            if best.is_none_or(|best| (candidate.0, candidate.1) > (best.0, best.1)) {
                best = Some(candidate);
            }
        }
        let least = || self.by_load.first().map(|(_, at)| *at);
        if let Some(collector) = best.map(|(_, _, at)| at).or_else(least) {
            self.add(shard, collector);
        }
    }

    /// Moves shards until all collectors are in balance or no move helps.
    pub(super) fn rebalance(&mut self) {
        // Each move lowers the higher of two loads, so this ends. The bound guards against errors in that reasoning.
        for _ in 0..self.shards.len().saturating_mul(16) {
            let Some((shard, to)) = self.relief().or_else(|| self.supply()) else { return };
            self.add(shard, to);
        }
    }

    /// Returns a shard to move from an overloaded collector, and the collector that receives it. Returns `None` if no
    /// collector is overloaded or no move helps.
    ///
    /// Considers the 16 least loaded collectors as receivers. A shard leaves the zone that it prefers only if no other
    /// move from that collector helps.
    fn relief(&self) -> Option<(usize, usize)> {
        let overloaded = self.by_load.iter().rev().take_while(|(load, _)| *load > self.high);
        overloaded.map(|(_, from)| *from).find_map(|from| {
            let receivers = || self.by_load.iter().map(|(_, to)| *to).filter(|to| *to != from).take(16);
            receivers()
                .find_map(|to| self.best(from, to, false))
                .or_else(|| receivers().find_map(|to| self.best(from, to, true)))
        })
    }

    /// Returns a shard to move to an underloaded collector, and that collector. Returns `None` if no collector is
    /// underloaded or no move helps.
    ///
    /// Considers the 64 most loaded collectors as givers. No shard leaves the zone that it prefers.
    fn supply(&self) -> Option<(usize, usize)> {
        let underloaded = self.by_load.iter().take_while(|(load, _)| *load < self.low);
        underloaded.map(|(_, to)| *to).find_map(|to| {
            let givers = self.by_load.iter().rev().map(|(_, from)| *from).filter(|from| *from != to);
            givers.take(64).find_map(|from| self.best(from, to, false).map(|found| (found.0, to)))
        })
    }

    /// Returns the best shard to move from collector `from` to collector `to`, and `to`. Returns `None` if no move
    /// brings enough gain.
    ///
    /// A shard leaves its preferred zone only if `out_of_zone` is true. The best shard is chosen by these rules, in
    /// this order:
    ///
    /// - a shard that enters its preferred zone;
    /// - a shard whose move leaves `from` at least `target_low` and `to` at most `target_high`, the heaviest first;
    /// - the lightest shard.
    fn best(&self, from: usize, to: usize, out_of_zone: bool) -> Option<(usize, usize)> {
        let present = self.relative(from, self.sums[from]);
        let limit = present - present / 100 * self.gain;
        let mut best: Option<((bool, bool, u64), usize)> = None;
        for (weight, shard) in &self.owned[from] {
            let (here, there) = (self.prefers(*shard, from), self.prefers(*shard, to));
            let weight_of = u128::from(*weight);
            let (left, grown) =
                (self.relative(from, self.sums[from] - weight_of), self.relative(to, self.sums[to] + weight_of));
            if grown >= limit || (here && !there && !out_of_zone) {
                continue;
            }
            let fits = left >= self.target_low && grown <= self.target_high;
            // Of shards that do not fit, the lightest is the best.
            let rank = (there && !here, fits, if fits { *weight } else { u64::MAX - *weight });
            if best.is_none_or(|(other, _)| rank > other) {
                best = Some((rank, *shard));
            }
        }
        best.map(|(_, shard)| (shard, to))
    }

    fn prefers(&self, shard: usize, collector: usize) -> bool {
        self.shards[shard].zone.as_ref().is_some_and(|zone| self.collectors[collector].zone.as_ref() == Some(zone))
    }

    /// Returns a load in relation to the collector's share; [`SHARE`] means exactly the share.
    fn relative(&self, collector: usize, load: u128) -> u64 {
        let capacity = self.collectors[collector].capacity.max(1);
        #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let relative = (load as f64 / self.total_weight * self.total_capacity / capacity as f64 * SHARE as f64) as u64;
        relative
    }

    fn set_load(&mut self, collector: usize, load: u128) {
        let live = self.by_load.remove(&(self.relative(collector, self.sums[collector]), collector));
        self.sums[collector] = load;
        if live {
            self.by_load.insert((self.relative(collector, load), collector));
        }
    }
}
