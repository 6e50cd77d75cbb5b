//! Failures of a cluster's informers: logs them, with one line per outage, and restarts informers whose actor failed.
//!
//! In an outage, every informer of the cluster reports a failure. Failures of one kind within [`GATHER`] are therefore
//! logged as one line that names the resources.

use std::collections::BTreeMap;
use std::time::Duration;

use actix::prelude::*;

use crate::actors::control::cluster::{ClusterActor, Informer, InformerKey};
use crate::actors::control::messages::WatchMode;
use crate::actors::pipeline::reflector::WatchOutcome;
use crate::actors::runtime::jitter::jittered;
use crate::actors::runtime::supervision::ChildExited;
use informer_hub_reflector::{ErrorClass, SourceError};
use informer_hub_types::{Phase, Scope, clock, first_names};

/// How long a failure waits for others of its kind before it is logged.
const GATHER: Duration = Duration::from_secs(2);

/// Failing informers and the failures already logged. Only keeps this state: the caller logs and runs the timer.
#[derive(Default)]
pub(super) struct FailureLog {
    of: BTreeMap<InformerKey, FailingInformer>,
    /// Whether the timer that logs pending failures is running.
    timer_runs: bool,
}

/// Informer whose list or watch fails.
#[derive(Default)]
struct FailingInformer {
    /// Failures not logged yet, the first of each kind.
    pending: Vec<SourceError>,
    /// Kinds of failure logged since the informer last succeeded.
    logged: Vec<ErrorClass>,
    has_recovered: bool,
}

/// One failure shared by several informers.
struct SharedFailure {
    error: SourceError,
    resources: Vec<String>,
}

/// Returns the kind of failure that the log distinguishes: one common class for all errors of an unreachable cluster,
/// and one for throttling whatever its delay. Other classes are returned unchanged.
pub(in crate::actors) fn kind_of(class: ErrorClass) -> ErrorClass {
    match class {
        _ if class.is_unreachable() => ErrorClass::Transient,
        ErrorClass::Throttled(_) => ErrorClass::Throttled(None),
        other => other,
    }
}

impl FailureLog {
    /// Records a failure, or a success (`None`). Returns whether the caller must start the log timer.
    fn note(&mut self, key: InformerKey, error: Option<SourceError>) -> bool {
        let Some(error) = error else {
            let Some(failing) = self.of.get_mut(&key) else { return false };
            failing.has_recovered = true;
            return !std::mem::replace(&mut self.timer_runs, true);
        };
        let failing = self.of.entry(key).or_default();
        failing.has_recovered = false;
        let kind = kind_of(error.class);
        if failing.logged.contains(&kind) || failing.pending.iter().any(|known| kind_of(known.class) == kind) {
            return false;
        }
        failing.pending.push(error);
        !std::mem::replace(&mut self.timer_runs, true)
    }

    /// Drops informers that no longer exist.
    fn retain(&mut self, is_there: impl Fn(&InformerKey) -> bool) {
        self.of.retain(|key, _| is_there(key));
    }

    /// Returns the failures that were not logged yet, grouped by kind, and counts them as logged.
    fn take_new(&mut self) -> Vec<SharedFailure> {
        let mut new: Vec<SharedFailure> = Vec::new();
        for (key, failing) in &mut self.of {
            for error in std::mem::take(&mut failing.pending) {
                let kind = kind_of(error.class);
                failing.logged.push(kind);
                match new.iter_mut().find(|known| kind_of(known.error.class) == kind) {
                    Some(known) => known.resources.push(name(key)),
                    None => new.push(SharedFailure { error, resources: vec![name(key)] }),
                }
            }
        }
        new
    }

    /// Removes the informers that have recovered. Returns the names of those whose failure was logged.
    fn take_recovered(&mut self) -> Vec<String> {
        let recovered = |(key, failing): (&InformerKey, &FailingInformer)| {
            (failing.has_recovered && !failing.logged.is_empty()).then(|| name(key))
        };
        let names = self.of.iter().filter_map(recovered).collect();
        self.of.retain(|_, failing| !failing.has_recovered);
        names
    }

    /// Removes the pending failures that mean that the cluster does not answer, and returns the first of them. Used
    /// when the whole cluster is unreachable: the log then names the cluster instead of its informers.
    fn take_unreachable(&mut self) -> Option<SourceError> {
        let silences =
            self.of.values_mut().flat_map(|failing| failing.pending.extract_if(.., |it| it.class.is_unreachable()));
        silences.reduce(|first, _| first)
    }
}

/// Returns the name of an informer as the command line writes it.
fn name((gvr, scope): &InformerKey) -> String {
    if *scope == Scope::all() { gvr.to_string() } else { format!("{gvr} ({scope})") }
}

impl ClusterActor {
    fn log_failures(&mut self) {
        self.failures.timer_runs = false;
        let asks = |informer: &Informer| informer.parts.mode == WatchMode::Active;
        self.failures.retain(|key| self.informers.get(key).is_some_and(|informer| asks(informer)));
        if self.is_unanswered()
            && let Some(error) = self.failures.take_unreachable()
        {
            self.log_unreachable(&error);
        }
        let cluster = &self.parts.name;
        for SharedFailure { error, resources } in self.failures.take_new() {
            let resources = first_names(&resources);
            if error.class == ErrorClass::Forbidden {
                tracing::warn!(%cluster, resources, %error, "the cluster forbids list or watch; retrying");
            } else {
                tracing::warn!(%cluster, resources, %error, "list or watch failed; retrying");
            }
        }
        let recovered = self.failures.take_recovered();
        if !recovered.is_empty() {
            tracing::info!(%cluster, resources = first_names(&recovered), "watching again");
        }
        self.log_reachable();
    }

    /// Logs pending failures now instead of when the log timer fires.
    pub(super) fn log_pending_failures(&mut self) {
        if self.failures.timer_runs {
            self.log_failures();
        }
    }

    /// Returns whether the cluster answers none of its active informers; false if there are none.
    pub(super) fn is_unanswered(&self) -> bool {
        let mut asking = self.informers.values().filter(|informer| informer.parts.mode == WatchMode::Active).peekable();
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
        tracing::error!(
            cluster = %name, resource = %key.0, status = %exited.status,
            "informer failed too often; it is degraded and restarts after a minute or more"
        );
        informer.parts.health.set_phase(Phase::Degraded);
        ctx.run_later(jittered(self.env.tuning.degraded_rest), move |act, ctx| {
            // The informer may have been removed, or removed and requested again.
            if act.informers.get(&key).is_some_and(|informer| informer.number == exited.child) {
                act.launch(&key, ctx);
                act.publish_view();
            }
        });
        self.publish_view();
    }
}

impl Handler<WatchOutcome> for ClusterActor {
    type Result = ();

    fn handle(&mut self, WatchOutcome { origin, error }: WatchOutcome, ctx: &mut Self::Context) {
        self.yield_budget.count(ctx);
        if error.is_none() {
            self.probe_server(ctx);
        }
        let key = (origin.resource.gvr.clone(), origin.scope.clone());
        // A late report may be about an informer that has moved or is gone.
        if self.informers.contains_key(&key) && self.failures.note(key, error) {
            ctx.run_later(GATHER, |act, _| act.log_failures());
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

    fn fails(failures: &mut FailureLog, resource: &str, class: ErrorClass) -> bool {
        failures.note(key(resource), Some(SourceError { class, message: format!("{class:?}") }))
    }

    fn logged(failures: &mut FailureLog) -> Vec<(ErrorClass, String)> {
        failures.timer_runs = false;
        failures.take_new().into_iter().map(|it| (it.error.class, it.resources.join(" "))).collect()
    }

    #[test]
    fn failure_log_groups_informers_by_kind_of_failure_and_reports_once() {
        let mut failures = FailureLog::default();
        assert!(fails(&mut failures, "pods", ErrorClass::Transient));
        assert!(!fails(&mut failures, "nodes", ErrorClass::Refused), "the timer runs already");
        assert!(!fails(&mut failures, "secrets", ErrorClass::Forbidden));
        assert_eq!(
            logged(&mut failures),
            [(ErrorClass::Refused, "nodes pods".to_owned()), (ErrorClass::Forbidden, "secrets".to_owned())]
        );
        for class in [ErrorClass::Refused, ErrorClass::Stalled, ErrorClass::Transient] {
            let are_new = ["pods", "nodes"].map(|resource| fails(&mut failures, resource, class));
            assert_eq!(are_new, [false, false], "{class:?} belongs to the outage already logged");
        }
        assert!(fails(&mut failures, "pods", ErrorClass::Forbidden), "another kind of failure");
        assert_eq!(logged(&mut failures), [(ErrorClass::Forbidden, "pods".to_owned())]);
        assert!(failures.take_recovered().is_empty());
        assert!(failures.note(key("pods"), None) && !failures.note(key("nodes"), None));
        assert_eq!(failures.take_recovered(), ["nodes", "pods"]);
        assert!(failures.take_recovered().is_empty());
        failures.timer_runs = false;
        assert!(fails(&mut failures, "pods", ErrorClass::Refused), "it had recovered");
    }

    #[test]
    fn failure_log_omits_unreachable_failures_reported_for_the_cluster() {
        let mut failures = FailureLog::default();
        fails(&mut failures, "pods", ErrorClass::Transient);
        fails(&mut failures, "nodes", ErrorClass::Refused);
        fails(&mut failures, "nodes", ErrorClass::Malformed);
        assert!(failures.take_unreachable().is_some_and(|error| error.class.is_unreachable()));
        assert_eq!(logged(&mut failures), [(ErrorClass::Malformed, "nodes".to_owned())]);
        assert!(failures.take_unreachable().is_none());
        failures.note(key("nodes"), None);
        assert!(fails(&mut failures, "pods", ErrorClass::Refused) || failures.timer_runs);
        assert_eq!(logged(&mut failures), [(ErrorClass::Refused, "pods".to_owned())]);
        assert_eq!(failures.take_recovered(), ["nodes"]);
    }

    #[test]
    fn failure_log_drops_removed_informers() {
        let mut failures = FailureLog::default();
        fails(&mut failures, "pods", ErrorClass::Forbidden);
        failures.retain(|_| false);
        assert!(logged(&mut failures).is_empty() && failures.take_recovered().is_empty());
        assert!(!failures.note(key("pods"), None));
    }

    #[test]
    fn failure_log_names_the_scope_unless_it_is_all() {
        let shop = Scope { namespace: Some("shop".into()), ..Scope::all() };
        assert_eq!(name(&(Gvr::new("apps", "v1", "deployments"), shop)), "deployments.apps (shop)");
    }
}
