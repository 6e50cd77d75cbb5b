//! A whole fleet, as `fleet status` shows it.

use serde::Serialize;

use super::sharing::Sharing;
use super::view::FleetOverview;
use crate::cli::fit::note;

/// Collectors, clusters, deliverers and sinks of a fleet at one moment.
#[derive(Debug, Serialize)]
pub(super) struct FleetReport {
    #[serde(flatten)]
    pub(super) overview: FleetOverview,
    #[serde(flatten)]
    pub(super) sharing: Sharing,
}

impl FleetReport {
    pub(super) fn text(&self, width: Option<usize>, colours: bool) -> String {
        let tables = self.overview.tables().into_iter().chain(self.sharing.tables());
        let rendered = tables.map(|table| {
            let (text, left_out) = table.render(width, colours);
            text + &note(&left_out, width).map(|note| format!("\n\n{note}")).unwrap_or_default()
        });
        rendered.collect::<Vec<_>>().join("\n\n") + "\n"
    }
}
