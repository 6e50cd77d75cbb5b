//! Output of `get` as tables and CSV.

use super::Args;
use super::sink::Sink;
use super::sort::{SortKey, Sorted};
use super::target::Target;
use crate::cli::objects::{Output, TableWriter, csv_line};
use crate::cli::print::out;
use informer_hub_apiclient::{Resource, TableColumn, TablePage, TableRow, parse_deep};
use informer_hub_screen::{CellKey, Column};

#[derive(Debug)]
pub(super) struct Rows<'a> {
    args: &'a Args,
    writer: TableWriter,
    /// Columns of the current resource; `None` before its first page.
    shape: Option<Shape>,
    sorted: Sorted<Vec<String>>,
    /// Whether names are preceded by the kind of the object, because several resources are listed.
    has_kinds: bool,
}

/// Columns of a table: those that the hub sends, and a namespace column that this program inserts.
#[derive(Debug)]
struct Shape {
    /// Indexes of the shown columns among those that the hub sends.
    shown: Vec<usize>,
    /// Position of the inserted namespace column among the shown columns; `None` if there is none.
    namespace_at: Option<usize>,
    /// Index of the name column among those that the hub sends.
    name_at: Option<usize>,
    /// Position of the column to sort by, among the shown columns; `None` to sort by a path or not at all.
    sort_at: Option<usize>,
}

impl<'a> Rows<'a> {
    pub(super) fn new(args: &'a Args) -> Self {
        Self { args, writer: TableWriter::new(!args.no_headers), shape: None, sorted: Sorted::new(), has_kinds: false }
    }

    fn begin(&mut self, resource: &Resource, columns: &[TableColumn]) -> anyhow::Result<()> {
        let is_basic = self.args.output == Output::Table;
        let is_shown = |at: &usize| !is_basic || columns[*at].priority == 0;
        let shown: Vec<usize> = (0..columns.len()).filter(is_shown).collect();
        let column = |at: &usize| Column { title: columns[*at].name.to_uppercase(), priority: columns[*at].priority };
        let mut titles: Vec<Column> = shown.iter().map(column).collect();
        let has_cluster = titles.first().is_some_and(|first| first.title == "CLUSTER");
        let has_namespace = resource.api.namespaced && self.args.place.namespace.is_none();
        let namespace_at = has_namespace.then_some(usize::from(has_cluster));
        if let Some(at) = namespace_at {
            titles.insert(at, Column { title: "NAMESPACE".to_owned(), priority: 0 });
        }
        let names: Vec<String> = titles.iter().map(|column| column.title.clone()).collect();
        let sort_at = self.args.sort_by.as_ref().map(|key| key.column(&names)).transpose()?.flatten();
        if self.args.output == Output::Csv {
            if !self.args.no_headers {
                let names: Vec<String> = names.iter().map(|name| name.to_lowercase()).collect();
                out(&csv_line(names.iter().map(String::as_str)))?;
            }
        } else {
            self.writer.begin(titles)?;
        }
        let name_at = columns.iter().position(|column| column.name == "Name");
        self.shape = Some(Shape { shown, namespace_at, name_at, sort_at });
        Ok(())
    }

    fn row(&mut self, resource: &Resource, row: TableRow) -> anyhow::Result<()> {
        let Some(shape) = &self.shape else { return Ok(()) };
        let TableRow { mut cells, namespace, object, .. } = row;
        if let Some(name) = shape.name_at.filter(|_| self.has_kinds).and_then(|at| cells.get_mut(at)) {
            *name = format!("{}/{name}", resource.prefix());
        }
        let mut cells: Vec<String> =
            shape.shown.iter().map(|at| cells.get_mut(*at).map(std::mem::take).unwrap_or_default()).collect();
        if let Some(at) = shape.namespace_at {
            cells.insert(at.min(cells.len()), namespace);
        }
        match (&self.args.sort_by, shape.sort_at) {
            (None, _) => self.print(cells),
            (Some(_), Some(at)) => {
                self.sorted.push(CellKey::of_cell(&cells[at]), cells);
                Ok(())
            }
            (Some(SortKey::Path(path)), None) => {
                let object = parse_deep(object.get().as_bytes()).unwrap_or_default();
                self.sorted.push(CellKey::of_value(path.first(&object)), cells);
                Ok(())
            }
            (Some(SortKey::Title(_)), None) => Ok(()),
        }
    }

    fn print(&mut self, cells: Vec<String>) -> anyhow::Result<()> {
        match self.args.output {
            Output::Csv => out(&csv_line(cells.iter().map(String::as_str))),
            _ => self.writer.row(cells),
        }
    }
}

impl Sink for Rows<'_> {
    type Page = TablePage;

    fn prepare(&mut self, targets: &[Target<'_>]) {
        self.has_kinds = targets.len() > 1;
    }

    fn page(&mut self, resource: &Resource, page: TablePage) -> anyhow::Result<()> {
        if self.shape.is_none() && !page.columns.is_empty() {
            self.begin(resource, &page.columns)?;
        }
        page.rows.into_iter().try_for_each(|row| self.row(resource, row))
    }

    fn event(&mut self, resource: &Resource, object: &str) -> anyhow::Result<()> {
        self.page(resource, TablePage::parse(object.as_bytes())?)?;
        self.writer.flush()
    }

    fn end_of(&mut self, resource: &Resource) -> anyhow::Result<()> {
        let (rows, over) = self.sorted.take(self.args.desc, self.args.limit.map(Into::into));
        rows.into_iter().try_for_each(|cells| self.print(cells))?;
        if over > 0 {
            note!("informer-hub: there are {over} more {} than --limit shows", resource.api.gvr);
        }
        if self.args.watch {
            return self.writer.flush();
        }
        self.shape = None;
        Ok(())
    }

    fn end(&mut self) -> anyhow::Result<()> {
        self.writer.end()
    }
}
