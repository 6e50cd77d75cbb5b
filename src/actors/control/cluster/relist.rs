//! Relists of running informers, because the settings or the CRD of their resource have changed.

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;

use crate::actors::control::cluster::{ClusterActor, InformerKey, RequestKey, declared_by};
use crate::actors::control::messages::{Relist, WatchMode};
use crate::actors::runtime::jitter::jittered;
use crate::actors::runtime::supervision::detach;
use crate::actors::subscribe::subscription::Subscription;
use crate::actors::subscribe::user::User;
use informer_hub_reflector::InformerOptions;

/// Delay between a change of a CRD and the relist; up to half of it is added at random. All apiservers must have read
/// the new CRD by then.
const DEFINITION_DELAY: Duration = Duration::from_secs(5);

impl ClusterActor {
    /// Applies the configured settings of a request to its informer, if the informer runs with other settings.
    ///
    /// Settings that keep only parts of objects are not applied while the embedding program uses the informer, because
    /// the program decodes whole objects.
    pub(super) fn apply_settings(&mut self, key: &RequestKey) {
        let Some(request) = self.requests.get(key) else { return };
        let is_configured = request.users.iter().any(|user| matches!(user, User::Config(_)));
        let Some(informer_key) = self.informer_key(key).filter(|_| is_configured) else { return };
        let options = Arc::clone(&request.options);
        let Some(informer) = self.informers.get(&informer_key) else { return };
        if informer.parts.settings == options.fingerprint().unwrap_or(0) {
            return;
        }
        let resource = &informer.parts.origin.resource.gvr;
        if options.is_partial() && self.is_used_by_code(&informer_key) {
            tracing::warn!(
                cluster = %self.parts.name, %resource,
                "cannot apply the configured settings while the embedding program uses the resource; its present \
                 settings stay in use"
            );
            return;
        }
        tracing::info!(cluster = %self.parts.name, %resource, "the settings of the resource have changed; listing it again");
        self.relist(&informer_key, &options, None);
    }

    /// Returns whether the embedding program requested an informer or subscribed to its resource.
    fn is_used_by_code(&self, key: &InformerKey) -> bool {
        let is_configured = |user: &User| matches!(user, User::Config(_));
        let is_of = |asked: &RequestKey| self.informer_key(asked).as_ref() == Some(key);
        let is_requested = self.requests.iter().any(|(asked, it)| is_of(asked) && !it.users.iter().all(is_configured));
        let is_selected = |one: &Subscription| one.own_request().is_some() && self.informers_of(one).contains(key);
        is_requested || self.attached.values().any(|subscription| is_selected(subscription))
    }

    fn relist(&mut self, key: &InformerKey, options: &InformerOptions, converted_by: Option<u64>) {
        let (Some(connection), Some(informer)) = (&self.connection, self.informers.get_mut(key)) else { return };
        let source = connection.lister_watcher(&informer.parts.origin.resource, &key.1, options);
        let parts = &mut informer.parts;
        parts.health.set_omitted(options.omitted());
        (parts.source, parts.indexes) = (Arc::clone(&source), declared_by(options));
        parts.settings = options.fingerprint().unwrap_or(0);
        let (indexes, settings) = (Arc::clone(&parts.indexes), parts.settings);
        if let Some(address) = &informer.address {
            detach(address.send(Relist { source, indexes, settings, converted_by }));
        }
    }

    /// Lists a resource after its CRD has changed. A new default, for example, changes objects without a new
    /// resourceVersion.
    fn relist_defined(&mut self, key: &InformerKey, generation: u64) {
        let Some(informer) = self.informers.get(key) else { return };
        let (health, resource) = (&informer.parts.health, &informer.parts.origin.resource);
        let is_due = informer.generation == Some(generation) && informer.parts.mode == WatchMode::Active;
        if !is_due || health.definition_generation() == generation {
            return;
        }
        let request = self.requests.iter().find(|(asked, _)| self.informer_key(asked).as_ref() == Some(key));
        let Some((asked, request)) = request else { return };
        let options = Arc::clone(self.options_of(asked, resource).unwrap_or(&request.options));
        tracing::info!(
            cluster = %self.parts.name, resource = %resource.gvr,
            "the CRD of the resource has changed; listing it again"
        );
        self.relist(key, &options, Some(generation));
    }

    /// Records the generation of the CRD of a watched resource. Lists the resource again if its objects were read under
    /// another generation.
    pub(super) fn note_generation(&mut self, key: &InformerKey, generation: u64, ctx: &mut Context<Self>) {
        let Some(informer) = self.informers.get_mut(key) else { return };
        if informer.generation.replace(generation) == Some(generation) {
            return;
        }
        let health = &informer.parts.health;
        match health.definition_generation() {
            0 => health.set_definition_generation(generation),
            known if known == generation => {}
            _ => {
                let key = key.clone();
                ctx.run_later(jittered(DEFINITION_DELAY), move |act, _| act.relist_defined(&key, generation));
            }
        }
    }
}
