//! Leader and standby: starts and stops the deliveries of a sink whose fence lets it send only while this process holds
//! a lease, i.e. is the leader.

use actix::{Context, Handler, Message};

use crate::actors::sinks::sink::SinkActor;
use informer_hub_sink::{Coverage, SourceVersions};
use informer_hub_types::clock;

/// Reports the events that another process has delivered, and makes the sink check its fence (permission to send while
/// this process is the leader). In standby, the sink drops those of its queued events that the other process has
/// delivered. If the fence is open, the sink then sends its remaining events.
///
/// Answered with the lowest resourceVersion among undelivered events, by cluster and resource; `None` if it is unknown.
#[derive(Debug)]
pub struct Reconcile(
    /// Events that another process has delivered.
    pub Coverage,
);

impl Message for Reconcile {
    type Result = Option<SourceVersions>;
}

impl Handler<Reconcile> for SinkActor {
    type Result = Option<SourceVersions>;

    fn handle(&mut self, Reconcile(coverage): Reconcile, ctx: &mut Context<Self>) -> Self::Result {
        let may_send = self.may_send();
        let machine = &mut self.state.machine;
        machine.drop_covered(&coverage, clock::now());
        machine.set_sending(may_send);
        let lowest = machine.lowest_pending();
        self.pump(ctx);
        lowest
    }
}
