//! Failures of a cluster's informers: logs list and watch failures, and restarts informers that die.
//!
//! In an outage every informer fails by itself. Failures of one kind within [`GATHER`] are therefore logged as one line
//! that names the resources.

use std::collections::BTreeMap;
use std::time::Duration;

use actix::prelude::*;

use crate::actors::control::cluster::{ClusterActor, Informer, InformerKey};
use crate::actors::control::messages::Rest;
use crate::actors::pipeline::reflector::Trouble;
use crate::actors::runtime::jitter::jittered;
use crate::actors::runtime::supervision::ChildExited;
use informer_hub_reflector::{ErrorClass, SourceError};
use informer_hub_types::{Phase, Scope, clock, first_names};

/// How long a failure waits for others of its kind before it is logged.
const GATHER: Duration = Duration::from_secs(2);

/// Failing informers and the failures already logged. Pure.
#[derive(Default)]
pub(super) struct Troubles {
    of: BTreeMap<InformerKey, Failing>,
    /// Whether a log timer is running.
    is_due: bool,
}

/// Informer whose list or watch fails.
#[derive(Default)]
struct Failing {
    /// Failures not logged yet, the first of each kind.
    news: Vec<SourceError>,
    /// Kinds of failure logged since the informer last succeeded.
    told: Vec<ErrorClass>,
    is_over: bool,
}

/// One failure shared by several informers.
struct Outbreak {
    error: SourceError,
    resources: Vec<String>,
}

/// Maps error classes that an operator cannot tell apart to one class.
pub(in crate::actors) fn kind_of(class: ErrorClass) -> ErrorClass {
    match class {
        _ if class.is_silence() => ErrorClass::Transient,
        ErrorClass::Throttled(_) => ErrorClass::Throttled(None),
        other => other,
    }
}

impl Troubles {
    /// Records a failure, or a success (`None`). Returns whether the caller must start the log timer.
    fn note(&mut self, key: InformerKey, error: Option<SourceError>) -> bool {
        let Some(error) = error else {
            let Some(failing) = self.of.get_mut(&key) else { return false };
            failing.is_over = true;
            return !std::mem::replace(&mut self.is_due, true);
        };
        let failing = self.of.entry(key).or_default();
        failing.is_over = false;
        let kind = kind_of(error.class);
        if failing.told.contains(&kind) || failing.news.iter().any(|known| kind_of(known.class) == kind) {
            return false;
        }
        failing.news.push(error);
        !std::mem::replace(&mut self.is_due, true)
    }

    /// Drops informers that no longer exist.
    fn retain(&mut self, is_there: impl Fn(&InformerKey) -> bool) {
        self.of.retain(|key, _| is_there(key));
    }

    /// Returns the new failures, grouped by kind.
    fn begun(&mut self) -> Vec<Outbreak> {
        let mut begun: Vec<Outbreak> = Vec::new();
        for (key, failing) in &mut self.of {
            for error in std::mem::take(&mut failing.news) {
                let kind = kind_of(error.class);
                failing.told.push(kind);
                match begun.iter_mut().find(|known| kind_of(known.error.class) == kind) {
                    Some(known) => known.resources.push(name(key)),
                    None => begun.push(Outbreak { error, resources: vec![name(key)] }),
                }
            }
        }
        begun
    }

    /// Returns the informers that were logged as failing and have recovered.
    fn over(&mut self) -> Vec<String> {
        let over =
            |(key, failing): (&InformerKey, &Failing)| (failing.is_over && !failing.told.is_empty()).then(|| name(key));
        let names = self.of.iter().filter_map(over).collect();
        self.of.retain(|_, failing| !failing.is_over);
        names
    }

    /// Removes the failures that mean that the cluster does not answer, and returns the first. Used when the whole
    /// cluster is unreachable, which is logged instead.
    fn hush(&mut self) -> Option<SourceError> {
        let silences = self.of.values_mut().flat_map(|failing| failing.news.extract_if(.., |it| it.class.is_silence()));
        silences.reduce(|first, _| first)
    }
}

/// Returns the name as the command line writes it.
fn name((gvr, scope): &InformerKey) -> String {
    if *scope == Scope::all() { gvr.to_string() } else { format!("{gvr} ({scope})") }
}

impl ClusterActor {
    fn tell_troubles(&mut self) {
        self.troubles.is_due = false;
        let asks = |informer: &Informer| informer.parts.rest == Rest::No;
        self.troubles.retain(|key| self.informers.get(key).is_some_and(|informer| asks(informer)));
        if self.is_silent()
            && let Some(error) = self.troubles.hush()
        {
            self.tell_out_of_reach(&error);
        }
        let cluster = &self.parts.name;
        for Outbreak { error, resources } in self.troubles.begun() {
            let resources = first_names(&resources);
            if error.class == ErrorClass::Forbidden {
                tracing::warn!(%cluster, resources, %error, "the cluster forbids list or watch; retrying");
            } else {
                tracing::warn!(%cluster, resources, %error, "list or watch failed; retrying");
            }
        }
        let over = self.troubles.over();
        if !over.is_empty() {
            tracing::info!(%cluster, resources = first_names(&over), "watching again");
        }
        self.tell_in_reach();
    }

    /// Logs pending failures at once.
    pub(super) fn tell_last_troubles(&mut self) {
        if self.troubles.is_due {
            self.tell_troubles();
        }
    }

    /// Returns whether all active informers are unanswered.
    pub(super) fn is_silent(&self) -> bool {
        let mut asking = self.informers.values().filter(|informer| informer.parts.rest == Rest::No).peekable();
        asking.peek().is_some() && asking.all(|informer| informer.parts.health.answers() == Some(false))
    }

    pub(super) fn on_informer_exit(&mut self, exited: ChildExited, ctx: &mut Context<Self>) {
        let dead = self.informers.iter_mut().find(|(_, informer)| informer.number == exited.child);
        let Some((key, informer)) = dead else { return };
        informer.address = None;
        let key = key.clone();
        let name = &self.parts.name;
        if self.supervision.note_death(clock::now()) {
            tracing::warn!(cluster = %name, resource = %key.0, status = %exited.status, "informer failed; restarting it");
            return self.launch(&key, ctx);
        }
        tracing::error!(cluster = %name, resource = %key.0, status = %exited.status, "informer failed too often; it is degraded");
        informer.parts.health.set_phase(Phase::Degraded);
        ctx.run_later(jittered(self.env.tuning.degraded_rest), move |act, ctx| {
            // It may have been removed, or removed and requested again.
            if act.informers.get(&key).is_some_and(|informer| informer.number == exited.child) {
                act.launch(&key, ctx);
                act.show();
            }
        });
        self.show();
    }
}

impl Handler<Trouble> for ClusterActor {
    type Result = ();

    fn handle(&mut self, Trouble { origin, error }: Trouble, ctx: &mut Self::Context) {
        self.turns.note(ctx);
        if error.is_none() {
            self.greet(ctx);
        }
        let key = (origin.resource.gvr.clone(), origin.scope.clone());
        // A late report may be about an informer that has moved or is gone.
        if self.informers.contains_key(&key) && self.troubles.note(key, error) {
            ctx.run_later(GATHER, |act, _| act.tell_troubles());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use informer_hub_types::Gvr;

    fn key(resource: &str) -> InformerKey {
        (Gvr::new("", "v1", resource), Scope::all())
    }

    fn fails(troubles: &mut Troubles, resource: &str, class: ErrorClass) -> bool {
        troubles.note(key(resource), Some(SourceError { class, message: format!("{class:?}") }))
    }

    fn told(troubles: &mut Troubles) -> Vec<(ErrorClass, String)> {
        troubles.is_due = false;
        troubles.begun().into_iter().map(|it| (it.error.class, it.resources.join(" "))).collect()
    }

    #[test]
    fn failure_log_groups_informers_by_kind_of_failure_and_reports_once() {
        let mut troubles = Troubles::default();
        assert!(fails(&mut troubles, "pods", ErrorClass::Transient));
        assert!(!fails(&mut troubles, "nodes", ErrorClass::Refused), "somebody will tell");
        assert!(!fails(&mut troubles, "secrets", ErrorClass::Forbidden));
        assert_eq!(
            told(&mut troubles),
            [(ErrorClass::Refused, "nodes pods".to_owned()), (ErrorClass::Forbidden, "secrets".to_owned())]
        );
        for class in [ErrorClass::Refused, ErrorClass::Stalled, ErrorClass::Transient] {
            let are_new = ["pods", "nodes"].map(|resource| fails(&mut troubles, resource, class));
            assert_eq!(are_new, [false, false], "{class:?} is one outage with what was told");
        }
        assert!(fails(&mut troubles, "pods", ErrorClass::Forbidden), "that is something else");
        assert_eq!(told(&mut troubles), [(ErrorClass::Forbidden, "pods".to_owned())]);
        assert!(troubles.over().is_empty());
        assert!(troubles.note(key("pods"), None) && !troubles.note(key("nodes"), None));
        assert_eq!(troubles.over(), ["nodes", "pods"]);
        assert!(troubles.over().is_empty());
        troubles.is_due = false;
        assert!(fails(&mut troubles, "pods", ErrorClass::Refused), "it went well in between");
    }

    #[test]
    fn failure_log_omits_unreachable_failures_reported_for_the_cluster() {
        let mut troubles = Troubles::default();
        fails(&mut troubles, "pods", ErrorClass::Transient);
        fails(&mut troubles, "nodes", ErrorClass::Refused);
        fails(&mut troubles, "nodes", ErrorClass::Malformed);
        assert!(troubles.hush().is_some_and(|error| error.class.is_silence()));
        assert_eq!(told(&mut troubles), [(ErrorClass::Malformed, "nodes".to_owned())]);
        assert!(troubles.hush().is_none());
        troubles.note(key("nodes"), None);
        assert!(fails(&mut troubles, "pods", ErrorClass::Refused) || troubles.is_due);
        assert_eq!(told(&mut troubles), [(ErrorClass::Refused, "pods".to_owned())]);
        assert_eq!(troubles.over(), ["nodes"]);
    }

    #[test]
    fn failure_log_drops_removed_informers() {
        let mut troubles = Troubles::default();
        fails(&mut troubles, "pods", ErrorClass::Forbidden);
        troubles.retain(|_| false);
        assert!(told(&mut troubles).is_empty() && troubles.over().is_empty());
        assert!(!troubles.note(key("pods"), None));
    }

    #[test]
    fn failure_log_names_the_scope_unless_it_is_all() {
        let shop = Scope { namespace: Some("shop".into()), ..Scope::all() };
        assert_eq!(name(&(Gvr::new("apps", "v1", "deployments"), shop)), "deployments.apps (shop)");
    }
}
