//! Printer of the pages of a list and of the events of a watch.

use super::target::Target;
use crate::cli::objects::Page;
use informer_hub_apiclient::Resource;

/// Prints a list, and the events of a watch.
pub(super) trait Sink {
    /// Type of the pages: tables or objects.
    type Page: Page;

    /// Prepares the printer for the resources that will be listed.
    fn prepare(&mut self, targets: &[Target<'_>]);

    fn page(&mut self, resource: &Resource, page: Self::Page) -> anyhow::Result<()>;

    /// Prints a watch event. `object` is its JSON: a table with one row if the pages are tables, else the object.
    fn event(&mut self, resource: &Resource, object: &str) -> anyhow::Result<()>;

    /// Ends the list of a resource. Events may follow.
    fn end_of(&mut self, resource: &Resource) -> anyhow::Result<()>;

    fn end(&mut self) -> anyhow::Result<()>;
}
