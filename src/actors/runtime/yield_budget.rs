//! Yield budget: lets an actor with a busy mailbox run its timers and futures.
//!
//! actix processes messages as long as there are any, before it polls an actor's futures. A cluster actor that receives
//! messages without a pause would never connect, and would block other actors on its thread. Such actors count messages
//! and yield after a fixed number.

use actix::prelude::*;

/// Messages between two yields.
const MESSAGES: u32 = 64;

/// Message counter of one actor; see the module.
#[derive(Debug, Default)]
pub(in crate::actors) struct YieldBudget(u32);

impl YieldBudget {
    /// Counts a message, and yields when the budget is used up. Messages are neither lost nor reordered.
    pub(in crate::actors) fn count<A: Actor<Context = Context<A>>>(&mut self, ctx: &mut Context<A>) {
        self.0 += 1;
        if self.0 == MESSAGES {
            self.0 = 0;
            ctx.wait(actix::fut::wrap_future(tokio::task::yield_now()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actors::runtime::supervision::detach;

    /// Actor that keeps sending messages to itself.
    struct BusyActor {
        yield_budget: YieldBudget,
        left: u32,
        /// Channel that reports when another future of the actor first runs. The future sends the number of messages
        /// that the actor has not processed yet.
        other_ran: Option<tokio::sync::oneshot::Sender<u32>>,
    }

    #[derive(Message)]
    #[rtype(result = "()")]
    struct Continue;

    impl Actor for BusyActor {
        type Context = Context<Self>;

        fn started(&mut self, ctx: &mut Self::Context) {
            detach(ctx.address().send(Continue));
            let other = actix::fut::wrap_future::<_, Self>(tokio::task::yield_now());
            ctx.spawn(other.map(|(), act, _| {
                let _ = act.other_ran.take().unwrap().send(act.left);
            }));
        }
    }

    impl Handler<Continue> for BusyActor {
        type Result = ();

        fn handle(&mut self, _: Continue, ctx: &mut Self::Context) {
            self.yield_budget.count(ctx);
            self.left -= 1;
            if self.left > 0 {
                detach(ctx.address().send(Continue));
            }
        }
    }

    #[actix::test]
    async fn yield_budget_lets_a_busy_actor_run_its_futures() {
        let (other_ran, when) = tokio::sync::oneshot::channel();
        let _actor =
            BusyActor { yield_budget: YieldBudget::default(), left: 100 * MESSAGES, other_ran: Some(other_ran) }
                .start();
        let left = when.await.unwrap();
        assert!(left >= 97 * MESSAGES, "{left} messages left");
    }
}
