//! Resources in a reload: requests new and changed resources, then releases removed resources.
//! `actors/control/cluster/replace` replaces the informers.

use futures::future::join_all;

use super::plan::Difference;
use super::{ReloadError, RunningHub};
use crate::actors::messages::{Release, ReplaceInformers, User};
use crate::app::convert;
use informer_hub_config::Config;

impl RunningHub {
    /// Requests new and changed resources, then releases removed ones. So an informer that both configurations request
    /// continues.
    pub(super) async fn exchange_resources(&self, config: &Config, changes: &Difference) -> Result<(), ReloadError> {
        let is_requested = |name: &String| changes.added.contains(name) || changes.changed.contains(name);
        let requested = config.resources.iter().filter(|resource| is_requested(&resource.name));
        let requests = requested.map(|resource| ReplaceInformers(convert::demand(resource, &config.resources)));
        // Concurrently, because each may have to wait for its subscribers.
        for requested in join_all(requests.map(|request| self.registry.send(request))).await {
            requested?;
        }
        let releases = changes.removed.iter().map(|name| Release(User::Config(name.clone())));
        for released in join_all(releases.map(|release| self.registry.send(release))).await {
            released?;
        }
        Ok(())
    }
}
