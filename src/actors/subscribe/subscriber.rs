//! Subscribers: an actor that receives batches or single notifications, or a closure.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use actix::dev::ToEnvelope;
use actix::{Actor, Addr, Handler, Recipient};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::Mutex;

use informer_hub_types::{Notification, Notifications, Threads, Traced};

/// Result of delivering a batch to a subscriber.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::actors) enum Delivered {
    /// The subscriber has handled the batch.
    All,
    /// The subscriber failed on this many notifications, which are lost; the others were handled. The text is the
    /// cause.
    Lost(usize, &'static str),
    /// The subscriber has ended without handling this many of the notifications that were sent to it.
    Gone(usize),
}

/// Receiver of notifications. Each informer delivers one batch at a time.
pub(in crate::actors) trait Deliver: Send + Sync + 'static {
    /// Delivers a batch. `traced` is a traced change that may be in the batch. Closures run on the threads `io`.
    fn deliver(&self, batch: Vec<Notification>, traced: Option<Traced>, io: &Threads) -> BoxFuture<'static, Delivered>;
}

/// Receiver of notifications with objects decoded as `K`.
///
/// - From a `Recipient<Notifications<K>>`: batches, the efficient way. An informer sends its next batch when the actor
///   has handled the previous one. An actor that returns a future delays its informers' events until the future is
///   ready.
/// - From a `Recipient<Notification<K>>`: single notifications, for simple handlers and low rates.
/// - [`Subscriber::from_fn`]: a closure that runs on a blocking thread.
///
/// A slow subscriber receives merged notifications (see [`crate::cache`]) and never slows down others. An actor whose
/// mailbox is closed is unsubscribed.
pub struct Subscriber<K = informer_hub_types::Dynamic> {
    pub(in crate::actors) deliver: Arc<dyn Deliver>,
    kind: std::marker::PhantomData<fn() -> K>,
}

impl<K: 'static> Subscriber<K> {
    /// Creates a subscriber that calls `handler` with each notification, one at a time per informer, on a blocking
    /// thread.
    ///
    /// If the handler panics, only that notification is lost; the panic is counted and logged.
    pub fn from_fn(handler: impl FnMut(&Notification<K>) + Send + 'static) -> Self {
        Self::new(Closure { handler: Arc::new(Mutex::new(handler)), kind: std::marker::PhantomData })
    }

    pub(in crate::actors) fn new(deliver: impl Deliver) -> Self {
        Self { deliver: Arc::new(deliver), kind: std::marker::PhantomData }
    }

    /// Returns the same subscriber without the type `K`, so that subscribers of all types can be stored together. It
    /// still decodes objects as `K`.
    pub(in crate::actors) fn erase(self) -> Subscriber {
        Subscriber { deliver: self.deliver, kind: std::marker::PhantomData }
    }
}

impl<K> fmt::Debug for Subscriber<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriber").finish_non_exhaustive()
    }
}

impl<K: 'static> From<Recipient<Notifications<K>>> for Subscriber<K> {
    fn from(recipient: Recipient<Notifications<K>>) -> Self {
        Self::new(Batches(recipient))
    }
}

impl<K: 'static> From<Recipient<Notification<K>>> for Subscriber<K> {
    fn from(recipient: Recipient<Notification<K>>) -> Self {
        Self::new(SingleNotifications(recipient))
    }
}

impl<A, K> From<Addr<A>> for Subscriber<K>
where
    A: Actor + Handler<Notifications<K>>,
    A::Context: ToEnvelope<A, Notifications<K>>,
    K: 'static,
{
    fn from(address: Addr<A>) -> Self {
        Self::from(address.recipient::<Notifications<K>>())
    }
}

struct Batches<K: 'static>(Recipient<Notifications<K>>);

impl<K: 'static> Deliver for Batches<K> {
    fn deliver(&self, batch: Vec<Notification>, _: Option<Traced>, _: &Threads) -> BoxFuture<'static, Delivered> {
        let recipient = self.0.clone();
        let count = batch.len();
        let batch = Notifications(batch.into_iter().map(Notification::cast).collect());
        async move {
            if !recipient.connected() {
                return Delivered::Gone(0);
            }
            match recipient.send(batch).await {
                Ok(()) => Delivered::All,
                Err(_) if recipient.connected() => Delivered::Lost(count, "the handler failed"),
                Err(_) => Delivered::Gone(count),
            }
        }
        .boxed()
    }
}

struct SingleNotifications<K: 'static>(Recipient<Notification<K>>);

impl<K: 'static> Deliver for SingleNotifications<K> {
    fn deliver(&self, batch: Vec<Notification>, _: Option<Traced>, _: &Threads) -> BoxFuture<'static, Delivered> {
        let recipient = self.0.clone();
        async move {
            let mut lost = 0;
            for notification in batch {
                if !recipient.connected() {
                    return Delivered::Gone(lost);
                }
                if recipient.send(notification.cast()).await.is_err() {
                    lost += 1;
                }
            }
            if lost == 0 { Delivered::All } else { Delivered::Lost(lost, "the handler failed") }
        }
        .boxed()
    }
}

struct Closure<K, F> {
    /// Closure under an asynchronous lock, so that calls that wait for the lock occupy no thread. Otherwise a blocking
    /// closure that many informers call could use up all handler threads.
    handler: Arc<Mutex<F>>,
    kind: std::marker::PhantomData<fn() -> K>,
}

impl<K: 'static, F: FnMut(&Notification<K>) + Send + 'static> Deliver for Closure<K, F> {
    fn deliver(&self, batch: Vec<Notification>, _: Option<Traced>, io: &Threads) -> BoxFuture<'static, Delivered> {
        let (handler, io) = (Arc::clone(&self.handler), io.clone());
        let count = batch.len();
        let call = handler.lock_owned().then(move |mut handler| {
            io.spawn_blocking(move || {
                let panics = |notification: Notification| {
                    let notification = notification.cast();
                    catch_unwind(AssertUnwindSafe(|| handler(&notification))).is_err()
                };
                batch.into_iter().map(panics).filter(|panicked| *panicked).count()
            })
        });
        call.map(move |lost| match lost {
            Ok(0) => Delivered::All,
            Ok(lost) => Delivered::Lost(lost, "the handler panicked"),
            Err(_) => Delivered::Lost(count, "the runtime is shutting down"),
        })
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use informer_hub_types::Dynamic;

    struct Panics;

    impl Actor for Panics {
        type Context = actix::Context<Self>;
    }

    impl Handler<Notifications<Dynamic>> for Panics {
        type Result = ();

        fn handle(&mut self, _: Notifications<Dynamic>, _: &mut Self::Context) {
            panic!("on purpose");
        }
    }

    impl Handler<Notification<Dynamic>> for Panics {
        type Result = ();

        fn handle(&mut self, _: Notification<Dynamic>, _: &mut Self::Context) {
            panic!("on purpose");
        }
    }

    #[actix::test]
    async fn notifications_of_a_panicked_actor_are_lost_and_it_is_gone() {
        let origin = crate::cache::testing::origin("eu");
        let batch = || vec![Notification::Synced(Arc::clone(&origin)), Notification::Synced(Arc::clone(&origin))];
        let threads = Threads::current();
        let batches = Subscriber::<Dynamic>::from(Panics.start());
        assert_eq!(batches.deliver.deliver(batch(), None, &threads).await, Delivered::Gone(2));
        assert_eq!(batches.deliver.deliver(batch(), None, &threads).await, Delivered::Gone(0));
        let single = Subscriber::from(Panics.start().recipient::<Notification<Dynamic>>());
        assert_eq!(single.deliver.deliver(batch(), None, &threads).await, Delivered::Gone(1));
    }
}
