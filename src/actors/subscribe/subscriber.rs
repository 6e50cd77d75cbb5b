//! Who is told: an actor's address, of batches or of single notifications, or a closure.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use actix::dev::ToEnvelope;
use actix::{Actor, Addr, Handler, Recipient};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::Mutex;

use informer_hub_types::{Notification, Notifications, Threads, Traced};

/// What came of a delivery.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::actors) enum Delivered {
    /// The subscriber has handled it.
    All,
    /// The subscriber failed on this many notifications, which are lost; the others were handled.
    Lost(usize, &'static str),
    /// The subscriber is gone for good.
    Gone,
}

/// A subscriber of any kind. One delivery at a time per informer; the next one waits for its end.
pub(in crate::actors) trait Deliver: Send + Sync + 'static {
    /// `traced`: a change that has a trace, and may be in the batch.
    fn deliver(&self, batch: Vec<Notification>, traced: Option<Traced>, io: &Threads) -> BoxFuture<'static, Delivered>;
}

/// Somebody who wants notifications of objects read as `K`.
///
/// - From a `Recipient<Notifications<K>>`: batches, the fast way. The next batch of an informer comes when the actor
///   has handled the last one; an actor that answers a future holds its informers' events back until it is ready.
/// - From a `Recipient<Notification<K>>`: one by one, for handlers that are simple and streams that are slow.
/// - [`Subscriber::from_fn`]: a closure, called on a thread where it may block.
///
/// A subscriber that is slow is told less (see [`crate::cache`]), and never slows another. An actor whose mailbox is
/// closed is unsubscribed.
pub struct Subscriber<K = informer_hub_types::Dynamic> {
    pub(in crate::actors) deliver: Arc<dyn Deliver>,
    kind: std::marker::PhantomData<fn() -> K>,
}

impl<K: 'static> Subscriber<K> {
    /// Calls `handler` with each notification, one at a time per informer, on a thread where it may block.
    ///
    /// A panic of the handler loses the notification that it was called with, and no other; it is counted and logged.
    pub fn from_fn(handler: impl FnMut(&Notification<K>) + Send + 'static) -> Self {
        Self::new(Closure { handler: Arc::new(Mutex::new(handler)), kind: std::marker::PhantomData })
    }

    pub(in crate::actors) fn new(deliver: impl Deliver) -> Self {
        Self { deliver: Arc::new(deliver), kind: std::marker::PhantomData }
    }

    /// Forgets the kind, which matters only to the subscriber itself.
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
        Self::new(Singles(recipient))
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
            match recipient.send(batch).await {
                Ok(()) => Delivered::All,
                Err(_) if recipient.connected() => Delivered::Lost(count, "the handler failed"),
                Err(_) => Delivered::Gone,
            }
        }
        .boxed()
    }
}

struct Singles<K: 'static>(Recipient<Notification<K>>);

impl<K: 'static> Deliver for Singles<K> {
    fn deliver(&self, batch: Vec<Notification>, _: Option<Traced>, _: &Threads) -> BoxFuture<'static, Delivered> {
        let recipient = self.0.clone();
        async move {
            let mut lost = 0;
            for notification in batch {
                if recipient.send(notification.cast()).await.is_err() {
                    if !recipient.connected() {
                        return Delivered::Gone;
                    }
                    lost += 1;
                }
            }
            if lost == 0 { Delivered::All } else { Delivered::Lost(lost, "the handler failed") }
        }
        .boxed()
    }
}

struct Closure<K, F> {
    /// Waited for without a thread: else one closure that is stuck, at as many informers as there are threads for
    /// closures, would hold up everybody's.
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
