//! Turns: an actor that is told more and more comes to its other work too.
//!
//! actix takes messages as long as there are any, and looks only then at what an actor has begun and waits for: a cluster
//! that is asked for something without a pause would never connect, and its neighbours on the same thread would stand
//! still. So those who may be asked without a pause count, and after so many messages let all else have its turn.

use actix::prelude::*;

/// Messages of a turn.
const TURN: u32 = 64;

/// See the module.
#[derive(Debug, Default)]
pub(in crate::actors) struct Turns(u32);

impl Turns {
    /// A message has come. No message is lost by it, nor does one overtake another.
    pub(in crate::actors) fn note<A: Actor<Context = Context<A>>>(&mut self, ctx: &mut Context<A>) {
        self.0 += 1;
        if self.0 == TURN {
            self.0 = 0;
            ctx.wait(actix::fut::wrap_future(tokio::task::yield_now()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actors::runtime::supervision::detach;

    /// What is asked again and again, as it asks itself.
    struct Asked {
        turns: Turns,
        left: u32,
        /// How many were left when it came to its other work.
        came: Option<tokio::sync::oneshot::Sender<u32>>,
    }

    #[derive(Message)]
    #[rtype(result = "()")]
    struct Again;

    impl Actor for Asked {
        type Context = Context<Self>;

        fn started(&mut self, ctx: &mut Self::Context) {
            detach(ctx.address().send(Again));
            let other = actix::fut::wrap_future::<_, Self>(tokio::task::yield_now());
            ctx.spawn(other.map(|(), act, _| {
                let _ = act.came.take().unwrap().send(act.left);
            }));
        }
    }

    impl Handler<Again> for Asked {
        type Result = ();

        fn handle(&mut self, _: Again, ctx: &mut Self::Context) {
            self.turns.note(ctx);
            self.left -= 1;
            if self.left > 0 {
                detach(ctx.address().send(Again));
            }
        }
    }

    #[actix::test]
    async fn an_actor_that_is_asked_without_a_pause_comes_to_its_other_work_within_a_few_turns() {
        let (came, when) = tokio::sync::oneshot::channel();
        let _asked = Asked { turns: Turns::default(), left: 100 * TURN, came: Some(came) }.start();
        let left = when.await.unwrap();
        assert!(left >= 97 * TURN, "{left} were left");
    }
}
