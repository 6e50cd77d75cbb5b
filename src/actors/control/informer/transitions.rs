//! Transitions of a running informer: idling while its resource is absent, moving to another origin, and listing again
//! with new settings.
//!
//! Before an informer idles or moves, all changes that it has read are stored and queued for subscribers. An idle
//! informer then stops list and watch. A moved informer keeps its objects and delivery state under the new origin
//! (resource, API version or labels); its first list is compared with the old objects. A relist restarts the pipeline
//! and compares the list with the stored objects.

use std::sync::Arc;

use actix::AtomicResponse;
use actix::prelude::*;
use futures::future::join_all;
use hashbrown::HashSet;

use crate::actors::control::informer::memory::Pending;
use crate::actors::control::informer::{InformerActor, finish_by};
use crate::actors::control::messages::{MoveTo, Relist, WatchMode};
use crate::actors::pipeline::messages::{Process, Stop};
use crate::actors::runtime::capacity::STOP_GRACE;
use crate::cache::Popped;
use informer_hub_types::{Phase, ResourceVersion, clock};

impl InformerActor {
    /// Sets the phase of an idle informer, and deletes its objects if the resource is gone.
    pub(super) fn show_idle(&self) {
        self.parts.health.set_phase(Phase::Absent);
        if self.parts.mode == WatchMode::IdleClear {
            actix::spawn(self.clear());
        }
    }

    /// Deletes all objects and notifies subscribers, as an empty list would.
    fn clear(&self) -> impl Future<Output = ()> + use<> {
        let version = self.parts.health.version();
        let version = version.map_or_else(|| ResourceVersion::new("0"), |version| version.as_ref().clone());
        let batch = vec![Popped::ReplaceEnd { keep: HashSet::new(), version, rewound: false }];
        let process = Process { batch, version: None, followed: None };
        let clearing = self.pipeline.processor.as_ref().map(|processor| processor.send(process));
        async move {
            if let Some(clearing) = clearing {
                // If the processor dies, its successor finds the informer idle and deletes the objects.
                let _ = clearing.await;
            }
        }
    }

    fn set_mode(&mut self, mode: WatchMode, ctx: &mut Context<Self>) -> Pending {
        let before = std::mem::replace(&mut self.parts.mode, mode);
        if self.stopping || before == mode {
            return Box::pin(actix::fut::ready(()));
        }
        if mode == WatchMode::Active {
            self.start_from(1, ctx);
            return Box::pin(actix::fut::ready(()));
        }
        let stopping = self.stop_intake(true);
        Box::pin(stopping.then(|(), act, _| {
            act.parts.health.set_phase(Phase::Absent);
            let clearing = (act.parts.mode == WatchMode::IdleClear).then(|| act.clear());
            async move {
                if let Some(clearing) = clearing {
                    clearing.await;
                }
            }
            .into_actor(act)
        }))
    }

    /// Takes over the objects and pending events of the previous origin (resource, API version or labels).
    pub(super) fn take_over(&mut self) -> Pending {
        let Some(from) = self.parts.moved_from.clone() else { return Box::pin(actix::fut::ready(())) };
        let (caches, to, before) = (self.env.caches.clone(), Arc::clone(&self.parts.origin), Arc::clone(&from));
        let health = Arc::clone(&self.parts.health);
        let moving = self.env.io.spawn_blocking(move || caches.move_partition(&before, &to, &health));
        Box::pin(moving.into_actor(self).map(move |moved, act, _| {
            if let Ok(Some(partition)) = moved {
                for subscription in &act.subscriptions {
                    subscription.move_inbox(&from, &act.parts.origin, partition);
                }
            }
        }))
    }

    /// Stops listeners and processor, after delivering pending events for at most [`STOP_GRACE`].
    fn stop_all(&mut self) -> Pending {
        self.supervision.begin(0);
        let listeners = std::mem::take(&mut self.listeners);
        self.subscriptions = listeners.values().map(|child| Arc::clone(&child.subscription)).collect();
        let stops = join_all(listeners.into_iter().map(|(_, child)| child.address.send(Stop { drain: true })));
        let processor = self.pipeline.processor.take();
        let work = async move {
            let until = clock::now() + STOP_GRACE;
            finish_by(until, stops).await;
            if let Some(processor) = processor {
                finish_by(until, processor.send(Stop { drain: false })).await;
            }
        };
        Box::pin(work.into_actor(self))
    }

    fn move_to(&mut self, to: MoveTo) -> Pending {
        if self.stopping {
            return Box::pin(actix::fut::ready(()));
        }
        let MoveTo { origin, source, mode, renewed } = to;
        let clearing = self.stop_intake(true).then(move |(), act, _| {
            let clearing = renewed.then(|| act.clear());
            async move {
                if let Some(clearing) = clearing {
                    clearing.await;
                }
            }
            .into_actor(act)
        });
        let stopping = clearing.then(|(), act, _| act.stop_all());
        let moving = stopping.then(move |(), act, _| {
            act.parts.moved_from = Some(std::mem::replace(&mut act.parts.origin, origin));
            (act.parts.source, act.parts.mode) = (source, mode);
            act.take_over()
        });
        Box::pin(moving.map(|(), act, ctx| {
            act.partition = None;
            act.join_budget(ctx);
            act.begin(ctx);
        }))
    }
}

impl Handler<Relist> for InformerActor {
    type Result = ();

    fn handle(&mut self, relist: Relist, ctx: &mut Self::Context) {
        let Relist { source, indexes, settings, converted_by } = relist;
        self.converted_by = converted_by.or(self.converted_by);
        (self.parts.source, self.parts.indexes, self.parts.settings) = (source, indexes, settings);
        if !self.stopping {
            // As after a failure: the partition keeps the objects, and the list is compared with them.
            self.stop_from(0);
            self.start_pipeline(ctx);
        }
    }
}

impl Handler<WatchMode> for InformerActor {
    type Result = AtomicResponse<Self, ()>;

    fn handle(&mut self, mode: WatchMode, ctx: &mut Self::Context) -> Self::Result {
        AtomicResponse::new(self.set_mode(mode, ctx))
    }
}

impl Handler<MoveTo> for InformerActor {
    type Result = AtomicResponse<Self, ()>;

    fn handle(&mut self, to: MoveTo, _ctx: &mut Self::Context) -> Self::Result {
        AtomicResponse::new(self.move_to(to))
    }
}
