//! Column values of an object. They are read from its head (the fields that are readable without the JSON) if possible,
//! else from the JSON.

use smallvec::smallvec;

use super::extract::{Extractor, Values};
use super::head::{Head, HeadPath};
use super::{Column, Unreadable};
use informer_hub_types::FieldPath;

/// Columns, prepared to read their values from many objects, to sort, group or display them.
#[derive(Debug)]
pub struct Columns {
    sources: Vec<Source>,
    extractor: Extractor,
    needs_body: bool,
}

/// Place that a column's value is read from.
#[derive(Debug)]
enum Source {
    Cluster,
    /// The head, the part of an object that is readable without its JSON. If the value there is empty, it is read from
    /// the JSON.
    Head(HeadPath),
    Body,
}

impl Columns {
    /// Prepares columns for reading.
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

    /// Returns whether at least one column must be read from the JSON of every object, because the head has no field
    /// for it. The head is the part of an object that is readable without the JSON.
    ///
    /// If false, the JSON is needed only for objects whose head has an empty value in one of the columns.
    #[must_use]
    pub fn needs_body(&self) -> bool {
        self.needs_body
    }

    /// Returns the values of all columns, in order; `None` if one of the columns needs the object's JSON.
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

    /// Returns the values of all columns, in order.
    ///
    /// # Errors
    /// [`Unreadable`] if the bytes are not JSON.
    pub fn on_body(&self, head: &impl Head, json: &[u8]) -> Result<Vec<Values>, Unreadable> {
        let mut extracted = self.extractor.extract(json)?.into_iter();
        let mut values = |source: &Source| match source {
            Source::Cluster => smallvec![head.cluster().as_str().into()],
            Source::Head(_) | Source::Body => extracted.next().unwrap_or_default(),
        };
        Ok(self.sources.iter().map(&mut values).collect())
    }
}
