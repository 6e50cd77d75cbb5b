//! Lists, read page by page, so that memory depends on the page and not on the list.

use anyhow::Context;

use super::warnings::Warnings;
use crate::cli::client::{Client, Refused, Request};
use informer_hub_apiclient::{ListPage, PageMeta, Resource, TABLE, TablePage};

/// Maximum number of objects in a page.
const PAGE: usize = 500;
/// Maximum size of a page in bytes.
const LONGEST: usize = 512 << 20;

/// A page of a list.
pub(in crate::cli) trait Page: Sized {
    /// `Accept` header with which this type of page is requested.
    const ACCEPT: &'static str;

    /// Reads a page.
    ///
    /// # Errors
    /// If the JSON is not a page of this type.
    fn parse(json: &[u8]) -> Result<Self, serde_json::Error>;

    fn meta(&self) -> &PageMeta;

    fn len(&self) -> usize;
}

impl Page for TablePage {
    const ACCEPT: &'static str = TABLE;

    fn parse(json: &[u8]) -> Result<Self, serde_json::Error> {
        Self::parse(json)
    }

    fn meta(&self) -> &PageMeta {
        &self.metadata
    }

    fn len(&self) -> usize {
        self.rows.len()
    }
}

impl Page for ListPage {
    const ACCEPT: &'static str = "application/json";

    fn parse(json: &[u8]) -> Result<Self, serde_json::Error> {
        Self::parse(json)
    }

    fn meta(&self) -> &PageMeta {
        &self.metadata
    }

    fn len(&self) -> usize {
        self.items.len()
    }
}

/// List of one resource to request, page by page.
#[derive(Clone, Debug)]
pub(in crate::cli) struct List<'l> {
    pub(in crate::cli) resource: &'l Resource,
    pub(in crate::cli) root: [&'l str; 2],
    pub(in crate::cli) namespace: Option<&'l str>,
    /// Parameters that select objects.
    pub(in crate::cli) selectors: Vec<(&'l str, String)>,
    /// Maximum number of objects; `None` for all.
    pub(in crate::cli) limit: Option<usize>,
}

/// Result of reading a list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(in crate::cli) struct Ended {
    /// Number of objects that were read.
    pub(in crate::cli) count: usize,
    /// Whether the limit has cut off objects.
    pub(in crate::cli) is_cut: bool,
    /// Number of objects beyond the limit, if the hub knows it.
    pub(in crate::cli) remaining: Option<u64>,
    /// Resource version of the list, from which a watch may start.
    pub(in crate::cli) version: String,
}

impl<'l> List<'l> {
    /// Returns a request for the list.
    pub(in crate::cli) fn request(&self, accept: &'static str) -> Request<'l> {
        let path = self.resource.path(self.root, self.namespace);
        Request { path, query: self.selectors.clone(), accept, ..Request::default() }
    }

    /// Reads all pages and passes each to `take`.
    ///
    /// # Errors
    /// If the hub does not answer or refuses, or `take` fails.
    pub(in crate::cli) async fn read<P: Page>(
        &self,
        client: &Client,
        warnings: &mut Warnings,
        mut take: impl FnMut(P) -> anyhow::Result<()>,
    ) -> anyhow::Result<Ended> {
        let mut ended = Ended::default();
        let mut continuation = String::new();
        loop {
            let size = self.limit.map_or(PAGE, |limit| (limit - ended.count).min(PAGE));
            let mut request = self.request(P::ACCEPT);
            request.query.push(("limit", size.to_string()));
            if !continuation.is_empty() {
                request.query.push(("continue", std::mem::take(&mut continuation)));
            }
            let (json, texts) = client.whole(&request, LONGEST).await.map_err(|error| explained(error, &ended))?;
            warnings.print(texts);
            let page = P::parse(&json).with_context(|| format!("the server at {} sends no list", client.address()))?;
            drop(json);
            let meta = page.meta();
            ended.version.clone_from(&meta.resource_version);
            continuation.clone_from(&meta.continuation);
            let remaining = meta.remaining_item_count;
            ended.count += page.len();
            take(page)?;
            if continuation.is_empty() {
                return Ok(ended);
            }
            if self.limit.is_some_and(|limit| ended.count >= limit) {
                (ended.is_cut, ended.remaining) = (true, remaining);
                return Ok(ended);
            }
        }
    }
}

/// Replaces the error of a list that cannot continue (410, the hub no longer has the list's resource version) by one
/// that explains it.
fn explained(error: anyhow::Error, ended: &Ended) -> anyhow::Error {
    let is_gone = error.downcast_ref::<Refused>().is_some_and(|refused| refused.refusal.code == 410);
    if !is_gone || ended.count == 0 {
        return error;
    }
    let text = format!(
        "the hub no longer has the state at which the list began, so the list ends after {} objects; repeat the command, \
         read its output faster, or select less",
        ended.count
    );
    anyhow::anyhow!(text)
}
