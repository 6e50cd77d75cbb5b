//! Discovery actor: tracks the resources that a cluster offers. It runs only while a change of these resources may
//! affect a request.
//!
//! The actor watches the metadata of CustomResourceDefinitions and APIServices. After a change it asks the cluster for
//! its resources; [`Pace`] decides when. If these watches are forbidden, it polls the cluster. The names of
//! CustomResourceDefinitions also show which resources were deleted. A changed `metadata.generation` means a changed
//! schema, after which informers list again (`cluster/relist`).

mod name_watch;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use actix::prelude::*;
use smol_str::SmolStr;

use self::name_watch::{NameChange, NamesChanged, WatchedNames, watch_names};
use crate::actors::control::messages::DiscoveryReport;
use crate::actors::env::Env;
use crate::actors::pipeline::messages::Stop;
use crate::actors::runtime::capacity::MAILBOX;
use crate::actors::runtime::recovery::RecoverySignal;
use crate::actors::runtime::supervision::{ExitGuard, detach};
use crate::actors::status::hub::{DiscoveryState, DiscoveryStatus};
use crate::discovery::{self, Answer, DiscoveryResults, Pace, definition_of};
use informer_hub_codec::Projection;
use informer_hub_reflector::{Connection, Discovered, ErrorClass, InformerOptions, SourceError};
use informer_hub_types::{ApiResource, ClusterName, Scope, clock, rng};

/// Parameters of a discovery actor.
pub(in crate::actors) struct DiscoveryParts {
    pub(in crate::actors) cluster: ClusterName,
    pub(in crate::actors) connection: Arc<dyn Connection>,
    pub(in crate::actors) listener: Recipient<DiscoveryReport>,
    pub(in crate::actors) number: usize,
    /// Signal that the cluster answers again, shared with the cluster's informers.
    pub(in crate::actors) recovery: RecoverySignal,
}

/// State of the watch on the names of CustomResourceDefinitions or APIServices.
#[derive(Debug, Default)]
enum WatchState {
    /// The resource has not been listed yet.
    #[default]
    Starting,
    /// All current names, each with its `metadata.generation`, or zero without one.
    All(BTreeMap<SmolStr, u64>),
    /// The watch failed with this error; the flag is set once it was logged.
    Refused(SourceError, bool),
}

/// Last discovery result.
struct LastDiscovery {
    discovered: Arc<Discovered>,
    /// Served resources, each by the name that its CustomResourceDefinition has or would have (`<plural>.<group>`).
    served: BTreeSet<SmolStr>,
}

impl LastDiscovery {
    fn new(discovered: Discovered) -> Self {
        let served = discovered.catalogue.resources().iter().map(|(it, _)| definition_of(&it.gvr)).collect();
        Self { discovered: Arc::new(discovered), served }
    }
}

/// Tracks the resources that one cluster offers; see the module.
pub(in crate::actors) struct DiscoveryActor {
    env: Env,
    parts: DiscoveryParts,
    pace: Pace,
    known: Option<LastDiscovery>,
    definitions: WatchState,
    services: WatchState,
    view: DiscoveryStatus,
    /// Error of the last discovery request; `None` if it succeeded.
    failed: Option<SourceError>,
    /// Names and generations of CustomResourceDefinitions, as last sent to the cluster actor.
    sent_definitions: Option<Arc<BTreeMap<SmolStr, u64>>>,
    in_flight: bool,
    timer: Option<SpawnHandle>,
    _guard: ExitGuard,
}

impl DiscoveryActor {
    pub(in crate::actors) fn new(env: Env, parts: DiscoveryParts, guard: ExitGuard) -> Self {
        let pace = Pace::new(env.tuning.discovery, clock::now());
        Self {
            env,
            parts,
            pace,
            known: None,
            definitions: WatchState::default(),
            services: WatchState::default(),
            view: DiscoveryStatus::default(),
            failed: None,
            sent_definitions: None,
            in_flight: false,
            timer: None,
            _guard: guard,
        }
    }

    fn watch_names(&self, names: WatchedNames, ctx: &mut Context<Self>) {
        let resource = resource_of(names);
        let options = InformerOptions {
            projection: Projection::Keep(Vec::new()),
            metadata_only: true,
            untraced: true,
            ..InformerOptions::default()
        };
        let source = self.parts.connection.lister_watcher(&resource, &Scope::all(), &options);
        let receiver = ctx.address().recipient();
        let options = self.env.tuning.reflector.clone();
        ctx.spawn(watch_names(names, source, options, receiver, self.parts.recovery.subscribe()).into_actor(self));
    }

    /// Schedules the next discovery request.
    fn schedule(&mut self, ctx: &mut Context<Self>) {
        if self.in_flight {
            return;
        }
        if let Some(timer) = self.timer.take() {
            ctx.cancel_future(timer);
        }
        let delay = self.pace.due().saturating_duration_since(clock::now());
        self.timer = Some(ctx.run_later(delay, Self::ask));
    }

    /// Repeats an unanswered discovery request early, soon after the cluster answers any other request.
    fn listen_for_recovery(&self, ctx: &mut Context<Self>) {
        let answers = futures::stream::unfold(self.parts.recovery.subscribe(), |mut answers| async {
            answers.changed().await.ok().map(|()| ((), answers))
        });
        let checking = answers.into_actor(self).map(|(), act, ctx| {
            if act.failed.as_ref().is_some_and(|error| error.class.is_unreachable()) {
                act.pace.request_soon(clock::now());
                act.schedule(ctx);
            }
        });
        ctx.spawn(checking.finish());
    }

    fn ask(&mut self, ctx: &mut Context<Self>) {
        self.in_flight = true;
        let known = self.known.as_ref().map(|known| Arc::clone(&known.discovered));
        let in_flight = self.parts.connection.catalogue(known).into_actor(self);
        ctx.spawn(in_flight.map(|answer, act, ctx| {
            act.in_flight = false;
            let outcome = match answer {
                Ok(found) => {
                    act.view.asked = Some(clock::wall());
                    act.failed = None;
                    act.known = found.map(LastDiscovery::new).or_else(|| act.known.take());
                    if act.serves_all_definitions() { Answer::Complete } else { Answer::Partial }
                }
                Err(error) => {
                    act.failed = Some(error);
                    Answer::Failed
                }
            };
            act.pace.note_result(outcome, act.is_watched(), clock::now(), &mut rng::unit);
            act.report(Some(act.failed.clone().map_or(Ok(()), Err)));
            act.schedule(ctx);
        }));
    }

    fn serves_all_definitions(&self) -> bool {
        let (WatchState::All(names), Some(known)) = (&self.definitions, &self.known) else { return true };
        names.keys().all(|name| known.served.contains(name))
    }

    fn is_watched(&self) -> bool {
        matches!((&self.definitions, &self.services), (WatchState::All(_), WatchState::All(_)))
    }

    /// Returns whether the last discovery request succeeded.
    fn answers(&self) -> bool {
        self.view.asked.is_some() && self.failed.is_none()
    }

    /// Sends the current discovery status and results to the cluster actor. `outcome` is the result of the discovery
    /// request that has just ended; `None` if the report has another cause.
    fn report(&mut self, outcome: Option<Result<(), SourceError>>) {
        if let WatchState::All(names) = &self.definitions {
            if self.sent_definitions.as_deref() != Some(names) {
                self.sent_definitions = Some(Arc::new(names.clone()));
            }
        } else {
            self.sent_definitions = None;
        }
        self.view.state = match (&self.definitions, &self.services) {
            (WatchState::All(_), WatchState::All(_)) => DiscoveryState::Watching,
            (WatchState::Refused(..), _) | (_, WatchState::Refused(..)) => DiscoveryState::Polling,
            _ => DiscoveryState::Starting,
        };
        let refused = [&self.definitions, &self.services].into_iter().find_map(|watched| match watched {
            WatchState::Refused(error, _) => Some(error.to_string()),
            WatchState::Starting | WatchState::All(_) => None,
        });
        let mut view = self.view.clone();
        view.last_error = self.failed.as_ref().map(ToString::to_string).or(refused);
        view.resources = self.known.as_ref().map(|known| known.served.len());
        let seen = |known: &LastDiscovery| DiscoveryResults {
            catalogue: Arc::clone(&known.discovered.catalogue),
            definitions: self.sent_definitions.clone(),
        };
        let seen = self.known.as_ref().map(seen);
        let report = DiscoveryReport { number: self.parts.number, seen, view, outcome };
        detach(self.parts.listener.send(report));
    }
}

fn resource_of(names: WatchedNames) -> ApiResource {
    match names {
        WatchedNames::Definitions => discovery::definitions(),
        WatchedNames::Services => discovery::services(),
    }
}

impl Actor for DiscoveryActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX);
        self.watch_names(WatchedNames::Definitions, ctx);
        self.watch_names(WatchedNames::Services, ctx);
        self.listen_for_recovery(ctx);
        self.schedule(ctx);
    }
}

impl Handler<NamesChanged> for DiscoveryActor {
    type Result = ();

    fn handle(&mut self, NamesChanged { of, change }: NamesChanged, ctx: &mut Self::Context) {
        let (cluster, answers) = (&self.parts.cluster, self.answers());
        let (watched, other) = match of {
            WatchedNames::Definitions => (&mut self.definitions, &self.services),
            WatchedNames::Services => (&mut self.services, &self.definitions),
        };
        let was_watched = matches!(watched, WatchState::All(_));
        let has_changed = match (change, &mut *watched) {
            // A watch that is being reopened keeps its names.
            (NameChange::Failed(error), WatchState::All(_)) if !error.class.is_refusal() => false,
            (NameChange::Failed(error), was) => {
                let (is_new, mut is_logged) = match was {
                    WatchState::Refused(_, is_logged) => (false, *is_logged),
                    WatchState::Starting | WatchState::All(_) => (true, false),
                };
                // An unreachable cluster is logged once by the cluster actor.
                if !is_logged && (answers || matches!(error.class, ErrorClass::Forbidden | ErrorClass::NotFound)) {
                    is_logged = true;
                    let resource = resource_of(of).gvr;
                    // Permission for both is usually missing together; log only one.
                    if matches!(other, WatchState::Refused(_, true)) {
                        tracing::debug!(
                            %cluster, %resource, %error,
                            "cannot watch the definitions of resource types; running discovery every 30 s instead"
                        );
                    } else {
                        tracing::warn!(
                            %cluster, %resource, %error,
                            "cannot watch for added and removed resource types; running discovery every 30 s instead"
                        );
                    }
                }
                *watched = WatchState::Refused(error, is_logged);
                is_new
            }
            (NameChange::All(names), WatchState::All(known)) if *known == names => false,
            (NameChange::All(names), _) => {
                *watched = WatchState::All(names);
                true
            }
            (NameChange::Added(name, generation), WatchState::All(known)) => {
                known.insert(name, generation);
                true
            }
            (NameChange::Removed(name), WatchState::All(known)) => known.remove(&name).is_some(),
            (NameChange::Added(..) | NameChange::Removed(_), _) => false,
        };
        if has_changed {
            if was_watched {
                self.pace.note_change(clock::now());
            } else {
                self.pace.request_soon(clock::now());
            }
            self.schedule(ctx);
            self.report(None);
        }
    }
}

impl Handler<Stop> for DiscoveryActor {
    type Result = ();

    fn handle(&mut self, _stop: Stop, ctx: &mut Self::Context) {
        ctx.stop();
    }
}

#[cfg(test)]
impl Handler<crate::actors::tests::Crash> for DiscoveryActor {
    type Result = ();

    fn handle(&mut self, crash: crate::actors::tests::Crash, _ctx: &mut Self::Context) {
        crash.strike(crate::actors::tests::Victim::Discovery);
    }
}
