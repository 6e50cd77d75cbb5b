//! Discovery: follows what a cluster offers, for as long as something is watched of it that may come and go.
//!
//! Definitions of custom resources and API services are watched, their metadata alone, as signals that something has
//! changed; what has, the cluster is asked then ([`Pace`] says when). Where they may not be watched it is asked now and
//! then. The definitions' names tell besides what has been deleted.

mod names;

use std::collections::BTreeSet;
use std::sync::Arc;

use actix::prelude::*;
use smol_str::SmolStr;

use self::names::{Heard, Names, News, follow};
use crate::actors::control::messages::Surveyed;
use crate::actors::env::Env;
use crate::actors::pipeline::messages::Stop;
use crate::actors::runtime::capacity::MAILBOX;
use crate::actors::runtime::recovery::Answered;
use crate::actors::runtime::supervision::ExitGuard;
use crate::actors::status::hub::{SurveyState, SurveyStatus};
use crate::discovery::{self, Answer, Pace, Seen, definition_of};
use informer_hub_reflector::{Connection, Discovered, ErrorClass, InformerOptions, Projection, SourceError};
use informer_hub_types::{ApiResource, ClusterName, Scope, clock, rng};

/// What a discovery actor is made of.
pub(in crate::actors) struct DiscoveryParts {
    pub(in crate::actors) cluster: ClusterName,
    pub(in crate::actors) connection: Arc<dyn Connection>,
    pub(in crate::actors) listener: Recipient<Surveyed>,
    pub(in crate::actors) number: usize,
    /// Shared with the informers of the cluster.
    pub(in crate::actors) answered: Answered,
}

/// What is known of names that are watched.
#[derive(Debug, Default)]
enum Watched {
    /// Nothing yet.
    #[default]
    Starting,
    /// All of them.
    All(BTreeSet<SmolStr>),
    /// They cannot be watched, and why; whether that was said.
    Refused(SourceError, bool),
}

/// What the cluster has answered last.
struct Known {
    discovered: Arc<Discovered>,
    /// As definitions are named.
    served: BTreeSet<SmolStr>,
}

impl Known {
    fn new(discovered: Discovered) -> Self {
        let served = discovered.catalogue.resources().iter().map(|(it, _)| definition_of(&it.gvr)).collect();
        Self { discovered: Arc::new(discovered), served }
    }
}

/// See the module.
pub(in crate::actors) struct DiscoveryActor {
    env: Env,
    parts: DiscoveryParts,
    pace: Pace,
    known: Option<Known>,
    definitions: Watched,
    services: Watched,
    view: SurveyStatus,
    /// Why the last look was in vain.
    failed: Option<SourceError>,
    /// What was told last of definitions.
    told: Option<Arc<BTreeSet<SmolStr>>>,
    asking: bool,
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
            definitions: Watched::default(),
            services: Watched::default(),
            view: SurveyStatus::default(),
            failed: None,
            told: None,
            asking: false,
            timer: None,
            _guard: guard,
        }
    }

    fn follow(&self, names: Names, ctx: &mut Context<Self>) {
        let resource = resource_of(names);
        let options = InformerOptions {
            projection: Projection::Keep(Vec::new()),
            metadata_only: true,
            untraced: true,
            ..InformerOptions::default()
        };
        let source = self.parts.connection.lister_watcher(&resource, &Scope::all(), &options);
        let teller = ctx.address().recipient();
        let options = self.env.tuning.reflector.clone();
        ctx.spawn(follow(names, source, options, teller, self.parts.answered.subscribe()).into_actor(self));
    }

    /// Asks what the cluster offers when that is due.
    fn schedule(&mut self, ctx: &mut Context<Self>) {
        if self.asking {
            return;
        }
        if let Some(timer) = self.timer.take() {
            ctx.cancel_future(timer);
        }
        let rest = self.pace.due().saturating_duration_since(clock::now());
        self.timer = Some(ctx.run_later(rest, Self::ask));
    }

    /// Asks soon, where the last answer is missing, whenever the cluster answers something else.
    fn hear_answers(&self, ctx: &mut Context<Self>) {
        let answers = futures::stream::unfold(self.parts.answered.subscribe(), |mut answers| async {
            answers.changed().await.ok().map(|()| ((), answers))
        });
        let checking = answers.into_actor(self).map(|(), act, ctx| {
            if act.failed.as_ref().is_some_and(|error| error.class.is_silence()) {
                act.pace.request_soon(clock::now());
                act.schedule(ctx);
            }
        });
        ctx.spawn(checking.finish());
    }

    fn ask(&mut self, ctx: &mut Context<Self>) {
        self.asking = true;
        let known = self.known.as_ref().map(|known| Arc::clone(&known.discovered));
        let asking = self.parts.connection.catalogue(known).into_actor(self);
        ctx.spawn(asking.map(|answer, act, ctx| {
            act.asking = false;
            let outcome = match answer {
                Ok(found) => {
                    act.view.asked = Some(clock::wall());
                    act.failed = None;
                    act.known = found.map(Known::new).or_else(|| act.known.take());
                    if act.serves_what_is_defined() { Answer::Complete } else { Answer::Partial }
                }
                Err(error) => {
                    act.failed = Some(error);
                    Answer::Failed
                }
            };
            act.pace.note_result(outcome, act.is_watched(), clock::now(), &mut rng::unit);
            act.tell(Some(act.failed.clone().map_or(Ok(()), Err)));
            act.schedule(ctx);
        }));
    }

    fn serves_what_is_defined(&self) -> bool {
        let (Watched::All(names), Some(known)) = (&self.definitions, &self.known) else { return true };
        names.is_subset(&known.served)
    }

    fn is_watched(&self) -> bool {
        matches!((&self.definitions, &self.services), (Watched::All(_), Watched::All(_)))
    }

    /// Whether the cluster has said what it offers, when it was asked last.
    fn answers(&self) -> bool {
        self.view.asked.is_some() && self.failed.is_none()
    }

    /// Tells the cluster's actor what is known, where that is something new.
    fn tell(&mut self, looked: Option<Result<(), SourceError>>) {
        if let Watched::All(names) = &self.definitions {
            if self.told.as_deref() != Some(names) {
                self.told = Some(Arc::new(names.clone()));
            }
        } else {
            self.told = None;
        }
        self.view.state = match (&self.definitions, &self.services) {
            (Watched::All(_), Watched::All(_)) => SurveyState::Watching,
            (Watched::Refused(..), _) | (_, Watched::Refused(..)) => SurveyState::Polling,
            _ => SurveyState::Starting,
        };
        let refused = [&self.definitions, &self.services].into_iter().find_map(|watched| match watched {
            Watched::Refused(error, _) => Some(error.to_string()),
            Watched::Starting | Watched::All(_) => None,
        });
        let mut view = self.view.clone();
        view.last_error = self.failed.as_ref().map(ToString::to_string).or(refused);
        view.resources = self.known.as_ref().map(|known| known.served.len());
        let seen =
            |known: &Known| Seen { catalogue: Arc::clone(&known.discovered.catalogue), definitions: self.told.clone() };
        let seen = self.known.as_ref().map(seen);
        let surveyed = Surveyed { number: self.parts.number, seen, view, looked };
        crate::actors::runtime::supervision::detach(self.parts.listener.send(surveyed));
    }
}

fn resource_of(names: Names) -> ApiResource {
    match names {
        Names::Definitions => discovery::definitions(),
        Names::Services => discovery::services(),
    }
}

impl Actor for DiscoveryActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(MAILBOX);
        self.follow(Names::Definitions, ctx);
        self.follow(Names::Services, ctx);
        self.hear_answers(ctx);
        self.schedule(ctx);
    }
}

impl Handler<Heard> for DiscoveryActor {
    type Result = ();

    fn handle(&mut self, Heard { of, news }: Heard, ctx: &mut Self::Context) {
        let (cluster, answers) = (&self.parts.cluster, self.answers());
        let (watched, other) = match of {
            Names::Definitions => (&mut self.definitions, &self.services),
            Names::Services => (&mut self.services, &self.definitions),
        };
        let was_watched = matches!(watched, Watched::All(_));
        let is_news = match (news, &mut *watched) {
            // What is known stays so while a watch that was open is opened again.
            (News::Failed(error), Watched::All(_)) if !error.class.is_refusal() => false,
            (News::Failed(error), was) => {
                let (is_new, mut is_told) = match was {
                    Watched::Refused(_, is_told) => (false, *is_told),
                    Watched::Starting | Watched::All(_) => (true, false),
                };
                // That a cluster does not answer at all is told once, and not by each who asks.
                if !is_told && (answers || matches!(error.class, ErrorClass::Forbidden | ErrorClass::NotFound)) {
                    is_told = true;
                    let resource = resource_of(of).gvr;
                    // Whoever may not watch the one mostly may not watch the other.
                    if matches!(other, Watched::Refused(_, true)) {
                        tracing::debug!(%cluster, %resource, %error, "nor can these be watched");
                    } else {
                        tracing::warn!(%cluster, %resource, %error, "changes of what the cluster offers cannot be heard of; it is asked every half minute");
                    }
                }
                *watched = Watched::Refused(error, is_told);
                is_new
            }
            (News::All(names), Watched::All(known)) if *known == names => false,
            (News::All(names), _) => {
                *watched = Watched::All(names);
                true
            }
            (News::Came(name), Watched::All(known)) => {
                known.insert(name);
                true
            }
            (News::Went(name), Watched::All(known)) => known.remove(&name),
            (News::Came(_) | News::Went(_), _) => false,
        };
        if is_news {
            if was_watched {
                self.pace.note_change(clock::now());
            } else {
                self.pace.request_soon(clock::now());
            }
            self.schedule(ctx);
            self.tell(None);
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
