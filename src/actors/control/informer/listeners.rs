//! Listeners of an informer: one per subscription that selects it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use actix::prelude::*;
use futures::FutureExt;

use crate::actors::control::informer::{InformerActor, finish_by};
use crate::actors::control::messages::{AddListener, RemoveListener};
use crate::actors::pipeline::listener::ListenerActor;
use crate::actors::pipeline::messages::{Join, Leave, Stop};
use crate::actors::runtime::capacity::STOP_GRACE;
use crate::actors::runtime::supervision::{ChildExited, ExitGuard, detach};
use crate::actors::subscribe::inbox::Inbox;
use crate::actors::subscribe::subscription::Subscription;
use informer_hub_types::clock;

pub(super) struct ListenerChild {
    pub(super) subscription: Arc<Subscription>,
    inbox: Arc<Inbox>,
    pub(super) address: Addr<ListenerActor>,
    /// Child number in the exit reports of this listener.
    number: usize,
}

impl InformerActor {
    pub(super) fn start_listener(&mut self, subscription: Arc<Subscription>, ctx: &mut Context<Self>) -> ListenerChild {
        self.next_listener += 1;
        let number = self.next_listener;
        let inbox = subscription.inbox_at(&self.parts.origin);
        self.inboxes.add(subscription.id, &inbox);
        let listener = ListenerActor::new(
            self.env.clone(),
            Arc::clone(&self.parts.origin),
            Arc::clone(&inbox),
            Arc::clone(&subscription),
            Arc::clone(&self.parts.health),
            ExitGuard::new(number, 0, Some(&ctx.address().recipient()), &self.env.actor_count),
        );
        let address = self.start_child(listener);
        ListenerChild { subscription, inbox, address, number }
    }

    /// Removes a listener whose subscriber is gone; restarts a failed one with its queue.
    pub(super) fn on_listener_exit(&mut self, exited: ChildExited, ctx: &mut Context<Self>) {
        let Some((&id, _)) = self.listeners.iter().find(|(_, child)| child.number == exited.child) else { return };
        let Some(old) = self.listeners.remove(&id) else { return };
        if exited.status.is_failure() && !self.supervision.note_death(clock::now()) {
            return self.give_up("listener", exited.status, ctx);
        }
        if !exited.status.is_failure() {
            self.inboxes.remove(id);
            if let Some(processor) = &self.pipeline.processor {
                detach(processor.send(Leave(id)));
            }
            return;
        }
        self.parts.health.restarts.fetch_add(1, Relaxed);
        let child = self.start_listener(old.subscription, ctx);
        if let Some(processor) = &self.pipeline.processor {
            detach(processor.send(join_of(&child)));
        }
        self.listeners.insert(id, child);
    }
}

pub(super) fn join_of(child: &ListenerChild) -> Join {
    Join {
        subscription: child.subscription.id,
        listener: child.address.clone().recipient(),
        inbox: Arc::clone(&child.inbox),
        options: child.subscription.options.clone(),
        reader: child.subscription.durable.then(|| child.subscription.name.clone()),
        resync: child.subscription.resync,
    }
}

impl Handler<AddListener> for InformerActor {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, AddListener(subscription): AddListener, ctx: &mut Self::Context) -> Self::Result {
        self.yield_budget.count(ctx);
        let id = subscription.id;
        let known = self.listeners.get(&id).map(|child| &child.subscription);
        if self.stopping || known.is_some_and(|known| known.resync == subscription.resync) {
            return Box::pin(std::future::ready(()));
        }
        let child = match self.listeners.remove(&id) {
            // Joins the processor again, with another resync period. Its queue stays.
            Some(child) => ListenerChild { subscription, ..child },
            None => self.start_listener(subscription, ctx),
        };
        // If there is no processor, the listener joins when one starts.
        let joining = self.pipeline.processor.as_ref().map(|processor| processor.send(join_of(&child)));
        self.listeners.insert(id, child);
        Box::pin(async move {
            if let Some(joining) = joining {
                let _ = joining.await;
            }
        })
    }
}

impl Handler<RemoveListener> for InformerActor {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, remove: RemoveListener, ctx: &mut Self::Context) -> Self::Result {
        self.yield_budget.count(ctx);
        let RemoveListener { subscription: id, drain_until } = remove;
        let Some(child) = self.listeners.remove(&id) else { return Box::pin(std::future::ready(())) };
        self.inboxes.remove(id);
        // If the subscription selects the informer again, it starts with all objects.
        child.subscription.forget(&self.parts.origin);
        let leaving = self.pipeline.processor.as_ref().map(|processor| processor.send(Leave(id)));
        let until = drain_until.unwrap_or_else(|| clock::now() + STOP_GRACE);
        let removing = async move {
            if let Some(leaving) = leaving {
                let _ = leaving.await;
            }
            finish_by(until, child.address.send(Stop { drain: drain_until.is_some() })).await;
            // A late listener stops after the delivery in flight.
            detach(child.address.send(Stop { drain: false }));
        };
        let removing = removing.boxed_local().shared();
        if drain_until.is_some() {
            // A listener that is added next may deliver to the same subscriber, whose events must stay in order.
            let removed = finish_by(clock::now() + STOP_GRACE, removing.clone());
            ctx.wait(removed.into_actor(self));
        }
        Box::pin(removing)
    }
}
