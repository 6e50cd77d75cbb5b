//! Columns and rows of an answer to `query`.

use anyhow::Context;
use serde::Deserialize;

use crate::cli::Misuse;
use crate::cli::objects::Output;
use informer_hub_apiclient::{QueryAnswer, QueryItem, Resource, value_text};
use informer_hub_kubeapi::Printer;
use informer_hub_query as query;
use informer_hub_screen::Column;
use informer_hub_types::clock;

/// Answer to a query, as the cells of a table.
#[derive(Debug)]
pub(super) struct Cells<'a> {
    answer: &'a QueryAnswer<'a>,
    /// Prints objects as the Kubernetes API does.
    printer: Printer,
    is_namespaced: bool,
    /// All columns of the answer; `shown` has the indexes of those that are printed.
    titles: Vec<Title>,
    shown: Vec<usize>,
}

#[derive(Debug)]
struct Title {
    /// Name of the column in CSV: its path as written in the query. For a query that returns whole objects, the
    /// column's title in lower case.
    field: String,
    column: Column,
}

#[derive(Deserialize)]
struct Named {
    metadata: Name,
}

#[derive(Deserialize)]
struct Name {
    name: String,
    namespace: Option<String>,
}

impl<'a> Cells<'a> {
    /// Prepares the cells of an answer to the query `text`.
    ///
    /// # Errors
    /// If the text is not a query.
    pub(super) fn new(
        answer: &'a QueryAnswer<'a>,
        resource: &Resource,
        text: &str,
        output: &Output,
    ) -> anyhow::Result<Self> {
        let printer = Printer::new(&resource.api, None);
        let question: query::Question =
            text.parse().context("cannot read a query that the hub accepted: use the version of the hub")?;
        let titles = match &question.output {
            query::Output::Objects => of_objects(&printer, resource.api.namespaced),
            query::Output::Columns(columns) => of_columns(&columns.iter().map(ToString::to_string).collect::<Vec<_>>()),
            query::Output::CountBy(column) => of_columns(&[column.to_string(), "count".to_owned()]),
            query::Output::Distinct(column) => of_columns(&[column.to_string()]),
            query::Output::Count => of_columns(&["count".to_owned()]),
        };
        let is_basic = *output == Output::Table;
        let shown = (0..titles.len()).filter(|at| !is_basic || titles[*at].column.priority <= 0).collect();
        Ok(Self { answer, printer, is_namespaced: resource.api.namespaced, titles, shown })
    }

    /// Returns the shown columns, as the columns of a table.
    pub(super) fn columns(&self) -> Vec<Column> {
        self.shown.iter().map(|at| self.titles[*at].column.clone()).collect()
    }

    /// Returns the names of the shown columns for CSV.
    pub(super) fn fields(&self) -> Vec<String> {
        self.shown.iter().map(|at| self.titles[*at].field.clone()).collect()
    }

    /// Returns the rows of the answer, as texts of the shown columns.
    pub(super) fn rows(&self) -> impl Iterator<Item = anyhow::Result<Vec<String>>> {
        let now = clock::wall().as_second();
        let answer = self.answer;
        let objects = answer.items.iter().flatten().map(move |item| self.of_item(&QueryItem::parse(item)?, now));
        let rows = answer.rows.iter().flatten().map(|row| Ok(row.iter().map(value_text).collect()));
        let groups = answer.groups.iter().flatten();
        let groups = groups.map(|group| Ok(vec![value_text(&group.value), group.count.to_string()]));
        let values = answer.values.iter().flatten().map(|value| Ok(vec![value_text(value)]));
        let count = answer.count.iter().map(|count| Ok(vec![count.to_string()]));
        objects.chain(rows).chain(groups).chain(values).chain(count)
    }

    /// Returns the names of the objects.
    ///
    /// # Errors
    /// [`Misuse`] if the answer has no objects.
    pub(super) fn names(&self) -> anyhow::Result<Vec<String>> {
        let Some(items) = &self.answer.items else {
            return Err(Misuse::error("-o name prints objects, but the query selects columns or counts"));
        };
        let name = |item| Ok(serde_json::from_str::<Named>(QueryItem::parse(item)?.object.get())?.metadata.name);
        items.iter().map(|item| name(item)).collect()
    }

    fn of_item(&self, item: &QueryItem<'_>, now: i64) -> anyhow::Result<Vec<String>> {
        let json = item.object.get();
        let named: Named = serde_json::from_str(json)?;
        let mut cells = vec![item.cluster.clone()];
        if self.is_namespaced {
            cells.push(named.metadata.namespace.unwrap_or_default());
        }
        cells.extend(self.printer.row(json.as_bytes(), now).cells.iter().map(value_text));
        Ok(self.shown.iter().map(|at| cells.get_mut(*at).map(std::mem::take).unwrap_or_default()).collect())
    }
}

/// Returns the columns for a query that returns whole objects: cluster, namespace if there are any, and the columns
/// that the Kubernetes API shows.
fn of_objects(printer: &Printer, is_namespaced: bool) -> Vec<Title> {
    let place = ["cluster", "namespace"].into_iter().take(if is_namespaced { 2 } else { 1 });
    let title = |name: &str, priority: i64| Title {
        field: name.to_lowercase(),
        column: Column { title: name.to_uppercase(), priority },
    };
    let own = printer.columns().iter().map(|column| title(&column.name, column.priority.into()));
    place.map(|name| title(name, 0)).chain(own).collect()
}

/// Returns the columns for paths of a query. Each is titled by the last part of its path, or by the whole path if
/// another column has the same last part.
fn of_columns(paths: &[String]) -> Vec<Title> {
    let short: Vec<String> = paths.iter().map(|path| last_part(path).to_uppercase()).collect();
    let title = |(at, path): (usize, &String)| {
        let is_only = short.iter().filter(|other| **other == short[at]).count() == 1;
        let title = if is_only { short[at].clone() } else { path.to_uppercase() };
        Title { field: path.clone(), column: Column { title, priority: -1 } }
    };
    paths.iter().enumerate().map(title).collect()
}

/// Returns the last name in a path such as `spec.containers[*].image` or `metadata.labels['example.com/tier']`.
fn last_part(path: &str) -> &str {
    let path = path.trim_end_matches("[*]");
    let quoted = path.strip_suffix("']").or_else(|| path.strip_suffix("\"]"));
    let part = match quoted {
        Some(start) => start.rsplit(['\'', '"']).next(),
        None => path.rsplit('.').next(),
    };
    part.filter(|part| !part.is_empty()).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_the_last_parts_of_paths_unless_two_are_the_same() {
        let paths =
            ["cluster", "spec.containers[*].image", "metadata.labels['example.com/tier']", "spec.a", "status.a"];
        let titles = of_columns(&paths.map(str::to_owned)).into_iter().map(|title| title.column.title);
        assert_eq!(titles.collect::<Vec<_>>(), ["CLUSTER", "IMAGE", "EXAMPLE.COM/TIER", "SPEC.A", "STATUS.A"]);
        assert_eq!((last_part("spec.containers[*]"), last_part("")), ("containers", ""));
    }
}
