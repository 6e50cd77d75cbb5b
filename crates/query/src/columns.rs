//! What is to be said of each object: read from its head where that has it, else from its bytes.

use smallvec::smallvec;

use super::extract::{Extractor, Values};
use super::head::{Head, HeadPath};
use super::{Column, Unreadable};
use informer_hub_types::FieldPath;

/// Columns made ready to be read of many objects: to sort, group or show them by.
#[derive(Debug)]
pub struct Columns {
    sources: Vec<Source>,
    extractor: Extractor,
    needs_body: bool,
}

/// Where a column comes from.
#[derive(Debug)]
enum Source {
    Cluster,
    /// A path whose value the head has, unless it is empty.
    Head(HeadPath),
    Body,
}

impl Columns {
    /// Makes columns ready.
    #[must_use]
    pub fn new(columns: &[Column]) -> Self {
        let source = |column: &Column| match column {
            Column::Cluster => Source::Cluster,
            Column::Path(path) => HeadPath::of(path).map_or(Source::Body, Source::Head),
        };
        let sources: Vec<_> = columns.iter().map(source).collect();
        let path = |column: &Column| match column {
            Column::Cluster => None,
            Column::Path(path) => Some(path.clone()),
        };
        let paths: Vec<FieldPath> = columns.iter().filter_map(path).collect();
        let needs_body = sources.iter().any(|source| matches!(source, Source::Body));
        Self { sources, extractor: Extractor::new(&paths), needs_body }
    }

    /// Whether there are objects of which only the bytes have all of it.
    #[must_use]
    pub fn needs_body(&self) -> bool {
        self.needs_body
    }

    /// All columns in their order; `None` where only the bytes have one of them.
    pub fn on_head(&self, head: &impl Head) -> Option<Vec<Values>> {
        if self.needs_body {
            return None;
        }
        let value = |source: &Source| match source {
            Source::Cluster => Some(head.cluster().as_str().into()),
            Source::Head(path) => path.value(head).map(Into::into),
            Source::Body => None,
        };
        self.sources.iter().map(|source| Some(smallvec![value(source)?])).collect()
    }

    /// All columns in their order.
    ///
    /// # Errors
    /// [`Unreadable`] when the bytes are not JSON.
    pub fn on_body(&self, head: &impl Head, json: &[u8]) -> Result<Vec<Values>, Unreadable> {
        let mut of_paths = self.extractor.extract(json)?.into_iter();
        let mut values = |source: &Source| match source {
            Source::Cluster => smallvec![head.cluster().as_str().into()],
            Source::Head(_) | Source::Body => of_paths.next().unwrap_or_default(),
        };
        Ok(self.sources.iter().map(&mut values).collect())
    }
}
