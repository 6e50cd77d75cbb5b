//! Durable subscribers pass the contract test suite of all sinks.

use actix::{Actor, Addr, Context, Handler, ResponseFuture};
use parking_lot::Mutex;

use super::*;
use informer_hub_sink::contract::{Fault, TestBed, assert_sink_contract};

/// Subscriber with a configurable fault.
struct Subscriber {
    fault: Arc<Mutex<Fault>>,
    taken: Arc<Mutex<Vec<String>>>,
}

impl Actor for Subscriber {
    type Context = Context<Self>;
}

impl Handler<Deliveries> for Subscriber {
    type Result = ResponseFuture<Result<(), Refusal>>;

    fn handle(&mut self, Deliveries(events): Deliveries, _: &mut Context<Self>) -> Self::Result {
        let mut fault = self.fault.lock();
        let answer = match &*fault {
            Fault::Hang => return std::future::pending().boxed_local(),
            Fault::Poison(text) if events.iter().any(|event| event.json().contains(text)) => {
                Err(Refusal::Content("cannot be read".to_owned()))
            }
            Fault::FailOnce => Err(Refusal::Later("not now".to_owned())),
            Fault::None | Fault::Poison(_) => {
                self.taken.lock().extend(events.iter().map(|event| event.json().to_owned()));
                Ok(())
            }
        };
        if *fault == Fault::FailOnce {
            *fault = Fault::None;
        }
        std::future::ready(answer).boxed_local()
    }
}

struct SubscriberBed {
    subscriber: Addr<Subscriber>,
    fault: Arc<Mutex<Fault>>,
    taken: Arc<Mutex<Vec<String>>>,
}

impl SubscriberBed {
    fn start() -> Self {
        let (fault, taken) = (Arc::<Mutex<Fault>>::default(), Arc::<Mutex<Vec<String>>>::default());
        let subscriber = Subscriber { fault: Arc::clone(&fault), taken: Arc::clone(&taken) }.start();
        Self { subscriber, fault, taken }
    }
}

impl TestBed for SubscriberBed {
    fn transport(&self, timeout: Duration) -> Arc<dyn Transport> {
        Arc::new(ActorTransport::new(self.subscriber.clone().recipient(), timeout))
    }

    fn set(&self, fault: Fault) {
        *self.fault.lock() = fault;
    }

    fn accepted(&self) -> Vec<String> {
        self.taken.lock().clone()
    }
}

#[test]
fn durable_subscriber_passes_the_sink_contract() {
    actix_rt::System::new().block_on(assert_sink_contract(|| std::future::ready(SubscriberBed::start())));
}
