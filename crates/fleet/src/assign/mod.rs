//! Assignment of shards to collectors: a pure function from loads and the present assignment to a list of moves. The
//! plan moves nothing itself: the collectors claim and release shards (`roles/collect/contender`).
//!
//! # Contract
//! A collector's *share* of the load is in proportion to its capacity. A collector has *room* for a shard if its load
//! would then exceed its share by at most half of [`Balance::tolerance`].
//!
//! - A shard keeps its collector unless that collector is gone or draining, or the loads are out of balance.
//! - After the plan, each collector's load is within the tolerance of its share, as far as single shards allow. A shard
//!   that is heavier than a share stays where it is.
//! - A pinned shard moves to the collector that the operator has chosen, whatever the loads are, and stays there.
//! - A shard that needs another collector goes to its preferred zone if a collector there has room. Moves for balance
//!   take it out of this zone only to relieve an overloaded collector.
//! - Equal input gives an equal plan. Among collectors with room, weighted rendezvous hashing decides. So shards spread
//!   evenly, and a collector that returns gets its former shards.
//! - If a plan is computed again after some of its moves were made, the new plan moves those shards again only for
//!   balance.
//!
//! # Cost
//! The time to place shards grows with the number of shards that need another collector, times the number of
//! collectors. The time to balance loads grows with the number of moves, times the number of shards per collector.

mod loads;
mod rendezvous;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::hash::BuildHasher;

use informer_hub_types::Shard;

use loads::Loads;

/// Shard to assign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardLoad {
    /// Name of the shard.
    pub shard: Shard,
    /// Cost of watching the shard, from its numbers of objects and events. Zero counts as one.
    pub weight: u64,
    /// Zone of the collectors that the shard prefers; `None` for any.
    pub zone: Option<String>,
    /// Name of the collector that the operator has chosen; `None` for any. Ignored if that collector is not alive or is
    /// draining.
    pub pinned: Option<String>,
}

/// Live collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    /// Name, unique in the fleet.
    pub name: String,
    /// Capacity in relation to other collectors: 2 gets twice the load of 1. Zero counts as one.
    pub capacity: u64,
    /// Zone of the collector; `None` if it has none.
    pub zone: Option<String>,
    /// Whether the collector is being drained: all its shards must move to other collectors.
    pub draining: bool,
}

/// Permitted imbalance of the loads of collectors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Balance {
    /// Permitted deviation of a collector's load from its share, as a fraction of the share. Larger deviations cause
    /// moves. Default: 0.15.
    pub tolerance: f64,
    /// Minimum gain of a move for balance, in percent: the receiver's load after the move must be this much below the
    /// giver's present load. So small changes of weights move nothing. Default: 10.
    pub gain: u8,
}

impl Default for Balance {
    fn default() -> Self {
        Self { tolerance: 0.15, gain: 10 }
    }
}

/// Reason of a [`Move`], the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MoveReason {
    /// No live collector has the shard: make all moves with this reason together.
    Orphaned,
    /// The shard's present collector is draining.
    Drain,
    /// The operator has pinned the shard to another collector.
    Pin,
    /// The loads are out of balance.
    Balance,
}

impl fmt::Display for MoveReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Orphaned => "its collector is gone",
            Self::Drain => "its collector is draining",
            Self::Pin => "the operator has chosen the collector",
            Self::Balance => "balance of the load",
        })
    }
}

/// Planned move of one shard to another collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// Shard to move.
    pub shard: Shard,
    /// Collector that has the shard now; `None` if no live collector has the shard.
    pub from: Option<String>,
    /// Collector that receives the shard.
    pub to: String,
    /// Reason for the move.
    pub reason: MoveReason,
}

/// Returns the moves that lead to a balanced assignment, sorted by [`MoveReason`], the most urgent first. Make moves of
/// orphaned shards together, and the other moves one at a time.
///
/// `current` has the name of each shard's collector. A collector that is not among `collectors` is gone. If all
/// collectors are draining, returns no moves.
#[must_use]
pub fn plan<S: BuildHasher>(
    shards: &[ShardLoad],
    collectors: &[Collector],
    current: &HashMap<Shard, String, S>,
    balance: Balance,
) -> Vec<Move> {
    let by_name: HashMap<_, _> = collectors.iter().enumerate().map(|(at, found)| (found.name.as_str(), at)).collect();
    let present: Vec<Option<usize>> = shards
        .iter()
        .map(|load| current.get(&load.shard).and_then(|name| by_name.get(name.as_str()).copied()))
        .collect();
    if collectors.iter().all(|collector| collector.draining) {
        return Vec::new();
    }
    let mut loads = Loads::new(shards, collectors, balance);
    let mut homeless = Vec::new();
    let pinned: Vec<Option<usize>> = shards
        .iter()
        .map(|load| load.pinned.as_ref().and_then(|name| by_name.get(name.as_str()).copied()))
        .map(|at| at.filter(|at| !collectors[*at].draining))
        .collect();
    for (shard, at) in present.iter().enumerate() {
        match (pinned[shard], at) {
            (Some(at), _) => loads.pin(shard, at),
            (None, Some(at)) if !collectors[*at].draining => loads.add(shard, *at),
            _ => homeless.push(shard),
        }
    }
    // The heaviest first: light ones fill the rest evenly.
    homeless.sort_by(|a, b| loads.weight(*b).cmp(&loads.weight(*a)).then(shards[*a].shard.cmp(&shards[*b].shard)));
    for shard in homeless {
        loads.place(shard);
    }
    loads.rebalance();
    let mut moves: Vec<_> = (0..shards.len())
        .filter_map(|shard| {
            let to = loads.collector(shard)?;
            let from = present[shard];
            let reason = match from {
                Some(from) if from == to => return None,
                Some(from) if collectors[from].draining => MoveReason::Drain,
                Some(_) if pinned[shard].is_some() => MoveReason::Pin,
                Some(_) => MoveReason::Balance,
                None => MoveReason::Orphaned,
            };
            let from = from.map(|from| collectors[from].name.clone());
            let to = collectors[to].name.clone();
            Some(Move { shard: shards[shard].shard.clone(), from, to, reason })
        })
        .collect();
    moves.sort_by(|a, b| a.reason.cmp(&b.reason).then(a.shard.cmp(&b.shard)));
    moves
}
