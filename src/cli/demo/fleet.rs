//! Simulated clusters of the demo: their changes and faults.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::view::{DOWN_TEXT, FRESH, SYNCING, UP_TO_DATE};
use informer_hub_sim::{Churn, Fault, FaultScript, Rule, SimCluster, SimConfig, When, World, WorldConfig};
use informer_hub_types::{ApiResource, ClusterName, Gvr, clock};

/// Maximum number of clusters that change in one step, to limit the load of the demo. More clusters take turns.
const PER_STEP: usize = 10;
/// Maximum number of change times that are stored for each cluster.
const MAX_TIMES: usize = 50_000;
/// One in this many clusters goes down during the demo, counted from the last cluster.
const DOWN_EVERY: usize = 5;
/// Begin and end of the outages, as shares of the whole duration.
const DOWN: (f64, f64) = (0.3, 0.6);

pub(super) fn resources() -> [ApiResource; 3] {
    let resource = |gvr: Gvr, kind: &str, namespaced| ApiResource { gvr, kind: kind.into(), namespaced };
    [
        resource(World::pods(), "Pod", true),
        resource(World::widgets(), "Widget", true),
        resource(World::nodes(), "Node", false),
    ]
}

/// Times at which the latest resource versions of a cluster were assigned, to measure the age of changes.
#[derive(Debug, Default)]
pub(super) struct Times {
    first: u64,
    at: VecDeque<clock::Instant>,
}

impl Times {
    /// Returns how long ago the resource version `version` was assigned; `None` if its time is not stored.
    pub(super) fn age_of(&self, version: u64) -> Option<Duration> {
        let at = self.at.get(usize::try_from(version.checked_sub(self.first)?).ok()?)?;
        Some(at.elapsed())
    }

    fn note(&mut self, before: u64, after: u64) {
        if self.at.is_empty() {
            self.first = before + 1;
        }
        let now = clock::now();
        self.at.extend((before..after).map(|_| now));
        while self.at.len() > MAX_TIMES {
            self.at.pop_front();
            self.first += 1;
        }
    }
}

/// A simulated cluster with its changes and faults.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: ClusterName,
    pub(super) cluster: SimCluster,
    pub(super) times: Arc<Mutex<Times>>,
    pub(super) down: bool,
    churn: Churn,
    /// Whether the cluster goes down during the demo.
    goes_down: bool,
    /// Number of faults injected into the cluster up to the time when the hub's copy was last fresh. If more faults
    /// have been injected since, the copy is stale because a watch has expired.
    past_faults: usize,
}

impl Member {
    /// Describes the situation of the cluster for people.
    pub(super) fn situation(&self, state: &str) -> String {
        let expired = self.cluster.fault_log().len() > self.past_faults;
        let text = match state {
            _ if self.down => DOWN_TEXT,
            FRESH => UP_TO_DATE,
            SYNCING => "first list",
            _ if expired => "watch expired, lists again",
            _ => "reconnecting",
        };
        text.to_owned()
    }

    /// Remembers the present number of faults if the hub's copy of the cluster is fresh.
    pub(super) fn note(&mut self, state: &str) {
        if state == FRESH {
            self.past_faults = self.cluster.fault_log().len();
        }
    }
}

#[derive(Debug)]
pub(super) struct Fleet {
    pub(super) members: Vec<Member>,
    pub(super) operations: u64,
    pub(super) outages: u64,
    turn: usize,
}

impl Fleet {
    pub(super) fn start(count: usize, pods: usize, seed: u64) -> anyhow::Result<Self> {
        let member = |at: usize| {
            let seed = seed.wrapping_mul(1000).wrapping_add(at as u64);
            let world = WorldConfig { seed, pods, small: true, ..WorldConfig::default() };
            let cluster = SimCluster::start(SimConfig { world, ..SimConfig::default() }, &Handle::current());
            let cluster = cluster.context("cannot start a simulated cluster")?;
            // `after` counts the events of one response, which begin with the items of a streaming list.
            let expiry = |more| Rule::new(When::Watch, Fault::ExpireWatch).resource("pods").after(pods + more);
            cluster.set_faults(FaultScript::none().with(expiry(40 + at % 7)).with(expiry(120)));
            anyhow::Ok(Member {
                name: ClusterName::new(format!("cluster-{:0width$}", at + 1, width = count.to_string().len()))?,
                cluster,
                times: Arc::default(),
                down: false,
                past_faults: 0,
                churn: Churn::new(seed),
                goes_down: (count - 1 - at).is_multiple_of(DOWN_EVERY),
            })
        };
        Ok(Self { members: (0..count).map(member).collect::<Result<_, _>>()?, operations: 0, outages: 0, turn: 0 })
    }

    /// Returns names and addresses of the clusters.
    pub(super) fn addresses(&self) -> impl Iterator<Item = (&ClusterName, String)> {
        self.members.iter().map(|member| (&member.name, member.cluster.url()))
    }

    /// Changes some clusters, and starts or ends outages that are due.
    pub(super) async fn step(&mut self, elapsed: Duration, of: Duration) {
        let share = elapsed.as_secs_f64() / of.as_secs_f64().max(f64::EPSILON);
        let down = (DOWN.0..DOWN.1).contains(&share);
        for member in self.members.iter_mut().filter(|member| member.goes_down && member.down != down) {
            if down {
                member.cluster.stop().await;
                self.outages += 1;
            } else {
                member.cluster.restart().await;
            }
            member.down = down;
        }
        let count = self.members.len();
        for _ in 0..PER_STEP.min(count) {
            self.turn = (self.turn + 1) % count;
            let Some(member) = self.members.get_mut(self.turn) else { return };
            let churn = &mut member.churn;
            let times = Arc::clone(&member.times);
            member.cluster.with_world(|world| {
                let before = world.version();
                churn.step(world);
                times.lock().note(before, world.version());
            });
            self.operations += 1;
        }
    }

    pub(super) async fn heal(&mut self) {
        for member in &mut self.members {
            member.cluster.heal();
            if std::mem::take(&mut member.down) {
                member.cluster.restart().await;
            }
        }
    }

    pub(super) fn faults(&self) -> usize {
        self.members.iter().map(|member| member.cluster.fault_log().len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_age_of_a_version_counts_from_its_change() {
        let mut times = Times::default();
        times.note(1000, 1002);
        tokio::time::advance(Duration::from_secs(2)).await;
        times.note(1002, 1003);
        assert_eq!(times.age_of(1000), None, "older than the first stored time");
        assert_eq!(times.age_of(1002), Some(Duration::from_secs(2)));
        assert_eq!(times.age_of(1003), Some(Duration::ZERO));
        assert_eq!(times.age_of(1004), None);
    }
}
