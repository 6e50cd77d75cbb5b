//! Assignment of clusters to collectors: a pure function from loads and the present assignment to a list of moves.
//!
//! # Contract
//! - A cluster keeps its collector unless that collector is gone or draining, or the loads are out of balance.
//! - After the plan, each collector's load is within [`Balance::tolerance`] of its share, as far as single clusters allow: a
//!   cluster that outweighs a share stays where it is.
//! - A pinned cluster goes to its collector, whatever the loads are, and stays there.
//! - A cluster goes to a collector in its preferred zone while one has room. A move for balance does not take it out of that
//!   zone, unless a collector is overloaded.
//! - Equal input gives an equal plan. Among collectors with room, weighted rendezvous hashing decides, so independent
//!   clusters spread, and a collector that returns gets its former clusters.
//! - A plan that is computed again after some of its moves has no move back.
//!
//! Cost: clusters without a collector, times collectors; and for balance the number of moves times clusters per collector.

mod loads;
mod rendezvous;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::BuildHasher;

use informer_hub_types::ClusterName;

use loads::Loads;

/// Cluster to assign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterLoad {
    /// Name of the cluster.
    pub cluster: ClusterName,
    /// Cost of the cluster, of its objects and events. Zero counts as one.
    pub weight: u64,
    /// Preferred zone of its collector.
    pub zone: Option<String>,
    /// Name of the collector that the operator has chosen. Without effect if it is not alive, or drains.
    pub pinned: Option<String>,
}

/// Live collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    /// Name, unique in the fleet.
    pub name: String,
    /// Its share of the load in relation to other collectors. Zero counts as one.
    pub capacity: u64,
    /// Its zone.
    pub zone: Option<String>,
    /// Whether its clusters must move to other collectors.
    pub draining: bool,
}

/// Permitted imbalance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Balance {
    /// A load beyond this part of a collector's share, above or below, is corrected. Default: 0.15.
    pub tolerance: f64,
    /// A move for balance is made only if it leaves the receiver this percentage below the present load of the giver, so that
    /// small changes of weights move nothing. Default: 10.
    pub gain: u8,
}

impl Default for Balance {
    fn default() -> Self {
        Self { tolerance: 0.15, gain: 10 }
    }
}

/// Reason of a [`Move`]. The order is that of urgency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MoveReason {
    /// No live collector has the cluster: move it at once, together with the others.
    Orphaned,
    /// Its collector is draining.
    Drain,
    /// The operator has chosen another collector.
    Pin,
    /// The loads are out of balance.
    Balance,
}

/// Move of one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// Cluster to move.
    pub cluster: ClusterName,
    /// Present collector, if it is alive.
    pub from: Option<String>,
    /// Next collector.
    pub to: String,
    /// Reason.
    pub reason: MoveReason,
}

/// Returns the moves to a balanced assignment, by urgency. Make the orphans' moves together, of the others one at a time.
///
/// `current` names the collector of each cluster; one that is not among `collectors` is gone. If all collectors drain,
/// clusters stay.
#[must_use]
pub fn plan<S: BuildHasher>(
    clusters: &[ClusterLoad],
    collectors: &[Collector],
    current: &HashMap<ClusterName, String, S>,
    balance: Balance,
) -> Vec<Move> {
    let by_name: HashMap<_, _> = collectors.iter().enumerate().map(|(at, found)| (found.name.as_str(), at)).collect();
    let present: Vec<Option<usize>> = clusters
        .iter()
        .map(|load| current.get(&load.cluster).and_then(|name| by_name.get(name.as_str()).copied()))
        .collect();
    if collectors.iter().all(|collector| collector.draining) {
        return Vec::new();
    }
    let mut loads = Loads::new(clusters, collectors, balance);
    let mut homeless = Vec::new();
    let pinned: Vec<Option<usize>> = clusters
        .iter()
        .map(|load| load.pinned.as_ref().and_then(|name| by_name.get(name.as_str()).copied()))
        .map(|at| at.filter(|at| !collectors[*at].draining))
        .collect();
    for (cluster, at) in present.iter().enumerate() {
        match (pinned[cluster], at) {
            (Some(at), _) => loads.pin(cluster, at),
            (None, Some(at)) if !collectors[*at].draining => loads.add(cluster, *at),
            _ => homeless.push(cluster),
        }
    }
    // The heaviest first: light ones fill the rest evenly.
    homeless
        .sort_by(|a, b| loads.weight(*b).cmp(&loads.weight(*a)).then(clusters[*a].cluster.cmp(&clusters[*b].cluster)));
    for cluster in homeless {
        loads.place(cluster);
    }
    loads.rebalance();
    let mut moves: Vec<_> = (0..clusters.len())
        .filter_map(|cluster| {
            let to = loads.collector(cluster)?;
            let from = present[cluster];
            let reason = match from {
                Some(from) if from == to => return None,
                Some(from) if collectors[from].draining => MoveReason::Drain,
                Some(_) if pinned[cluster].is_some() => MoveReason::Pin,
                Some(_) => MoveReason::Balance,
                None => MoveReason::Orphaned,
            };
            let from = from.map(|from| collectors[from].name.clone());
            let to = collectors[to].name.clone();
            Some(Move { cluster: clusters[cluster].cluster.clone(), from, to, reason })
        })
        .collect();
    moves.sort_by(|a, b| a.reason.cmp(&b.reason).then(a.cluster.cmp(&b.cluster)));
    moves
}
