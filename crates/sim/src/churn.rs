//! Seeded generator of object changes that keeps a simulated cluster at about its initial size.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;

use super::pods::PHASES;
use super::world::World;
use informer_hub_types::{Gvr, ObjectKey};

/// Relative frequency of each kind of change that [`Churn`] makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    /// Relative frequency of creations of a pod.
    pub create: u32,
    /// Relative frequency of changes of a pod's status.
    pub status: u32,
    /// Relative frequency of changes of a pod's labels.
    pub labels: u32,
    /// Relative frequency of changes of a pod's spec.
    pub spec: u32,
    /// Relative frequency of deletions of a pod.
    pub delete: u32,
    /// Relative frequency of replacements of a pod: it is deleted, and created under the same name with a new UID.
    pub recreate: u32,
    /// Relative frequency of bursts: five to thirty status changes in one step, about half of them to the same pod.
    pub burst: u32,
    /// Relative frequency of changes of a node.
    pub node: u32,
    /// Relative frequency of creations, changes and deletions of a custom resource.
    pub widget: u32,
}

impl Default for Weights {
    fn default() -> Self {
        Self { create: 10, status: 40, labels: 10, spec: 5, delete: 10, recreate: 5, burst: 2, node: 5, widget: 10 }
    }
}

/// Kind of change that one step made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Created a pod.
    Create,
    /// Changed a pod's status.
    Status,
    /// Changed a pod's labels.
    Labels,
    /// Changed a pod's spec.
    Spec,
    /// Deleted a pod.
    Delete,
    /// Recreated a pod.
    Recreate,
    /// Changed the status of several pods.
    Burst,
    /// Changed a node.
    Node,
    /// Created, changed or deleted a custom resource.
    Widget,
}

/// Seeded change generator. Equal seeds make equal changes to simulated clusters with equal states.
#[derive(Debug)]
pub struct Churn {
    rng: StdRng,
    table: [(Operation, u32); 9],
    /// Number of pods at the first step. At half of it or less, pods are created instead of deleted. At twice the
    /// number or more, and at least eight, pods are deleted instead of created.
    initial: Option<usize>,
    steps: u64,
}

impl Churn {
    /// Creates churn with the default weights.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self::weighted(seed, Weights::default())
    }

    /// Creates churn with the given weights.
    #[must_use]
    pub fn weighted(seed: u64, weights: Weights) -> Self {
        let table = [
            (Operation::Create, weights.create),
            (Operation::Status, weights.status),
            (Operation::Labels, weights.labels),
            (Operation::Spec, weights.spec),
            (Operation::Delete, weights.delete),
            (Operation::Recreate, weights.recreate),
            (Operation::Burst, weights.burst),
            (Operation::Node, weights.node),
            (Operation::Widget, weights.widget),
        ];
        Self { rng: StdRng::seed_from_u64(seed), table, initial: None, steps: 0 }
    }

    /// Makes one change to a simulated cluster and returns its kind. Creates a pod if there is none.
    pub fn step(&mut self, world: &mut World) -> Operation {
        self.steps += 1;
        let pods = World::pods();
        let (count, initial) = (world.count(&pods), *self.initial.get_or_insert(world.count(&pods)));
        let operation = match self.draw() {
            _ if count == 0 => Operation::Create,
            Operation::Delete if count <= initial / 2 => Operation::Create,
            Operation::Create if count >= initial.max(4) * 2 => Operation::Delete,
            drawn => drawn,
        };
        self.apply(operation, world, &pods);
        operation
    }

    fn draw(&mut self) -> Operation {
        let total: u32 = self.table.iter().map(|(_, weight)| weight).sum();
        let mut left = self.rng.random_range(0..total.max(1));
        for (operation, weight) in self.table {
            if left < weight {
                return operation;
            }
            left -= weight;
        }
        Operation::Status
    }

    fn apply(&mut self, operation: Operation, world: &mut World, pods: &Gvr) {
        match operation {
            Operation::Create => drop(world.create_pod()),
            Operation::Burst => self.burst(world, pods),
            Operation::Node => self.touch_node(world),
            Operation::Widget => self.touch_widget(world),
            Operation::Status | Operation::Labels | Operation::Spec | Operation::Delete | Operation::Recreate => {
                if let Some(key) = world.random_key(pods, &mut self.rng) {
                    self.touch_pod(operation, world, pods, &key);
                }
            }
        }
    }

    fn touch_pod(&mut self, operation: Operation, world: &mut World, pods: &Gvr, key: &ObjectKey) {
        let step = self.steps;
        match operation {
            Operation::Delete => {
                world.delete(pods, key);
            }
            Operation::Recreate => {
                world.recreate(pods, key);
            }
            Operation::Labels => {
                let tier = ["frontend", "backend", "data"][self.rng.random_range(0..3)];
                let labels = json!({ "tier": tier, "step": step.to_string() });
                world.patch(pods, key, &json!({ "metadata": { "labels": labels } }));
            }
            Operation::Spec => {
                let grace = self.rng.random_range(0..120);
                world.patch(pods, key, &json!({ "spec": { "terminationGracePeriodSeconds": grace } }));
            }
            _ => {
                let phase = PHASES[self.rng.random_range(0..PHASES.len())];
                world.patch(pods, key, &json!({ "status": { "phase": phase, "observedGeneration": step } }));
            }
        }
    }

    fn burst(&mut self, world: &mut World, pods: &Gvr) {
        let favourite = world.random_key(pods, &mut self.rng);
        for _ in 0..self.rng.random_range(5..30) {
            let any = world.random_key(pods, &mut self.rng);
            let key = if self.rng.random_bool(0.5) { favourite.clone() } else { any };
            if let Some(key) = key {
                self.touch_pod(Operation::Status, world, pods, &key);
            }
        }
    }

    fn touch_node(&mut self, world: &mut World) {
        let nodes = World::nodes();
        if let Some(key) = world.random_key(&nodes, &mut self.rng) {
            let ready = if self.rng.random_bool(0.9) { "True" } else { "False" };
            let conditions = json!([{ "type": "Ready", "status": ready, "lastHeartbeatTime": world.time() }]);
            world.patch(&nodes, &key, &json!({ "status": { "conditions": conditions } }));
        }
    }

    fn touch_widget(&mut self, world: &mut World) {
        let widgets = World::widgets();
        let key = world.random_key(&widgets, &mut self.rng);
        let crowded = world.count(&widgets) > 20;
        match (self.rng.random_range(0..4), key) {
            (0, Some(key)) => {
                world.delete(&widgets, &key);
            }
            (1, _) if !crowded => drop(world.create_widget(&format!("widget-{}", 1000 + self.steps))),
            (_, Some(key)) => {
                let size = self.rng.random_range(1..100);
                world.patch(&widgets, &key, &json!({ "spec": { "size": size } }));
            }
            (_, None) => drop(world.create_widget(&format!("widget-{}", 1000 + self.steps))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::world::WorldConfig;
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn churn_makes_every_change_and_keeps_the_world_size() {
        let mut world = World::new(&WorldConfig { pods: 40, ..WorldConfig::default() });
        let mut churn = Churn::new(3);
        let mut seen = HashSet::new();
        for _ in 0..2000 {
            let before = world.version();
            seen.insert(format!("{:?}", churn.step(&mut world)));
            assert!(world.version() > before);
            assert!((20..=82).contains(&world.count(&World::pods())));
        }
        assert_eq!(seen.len(), 9, "{seen:?}");
    }
}
