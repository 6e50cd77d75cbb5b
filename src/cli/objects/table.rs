//! Tables on standard output, printed as they arrive.

use std::io::IsTerminal;

use crate::cli::fit::note;
use crate::cli::print::{colours, out, width};
use informer_hub_screen::{Column, Layout, csv_record};
use informer_hub_types::printable;

/// Number of first rows that decide which columns fit.
const MEASURED: usize = 500;

/// Writer of tables. The first rows of each table decide its layout.
#[derive(Debug)]
pub(in crate::cli) struct TableWriter {
    width: Option<usize>,
    colours: bool,
    has_header: bool,
    columns: Vec<Column>,
    waiting: Vec<Vec<String>>,
    layout: Option<Layout>,
    /// Whether a table was printed before this one.
    is_later: bool,
    /// Titles of the columns that were left out for lack of space, each once.
    left_out: Vec<String>,
}

impl TableWriter {
    /// Creates a writer for the width of the terminal, or without a limit if standard output is not a terminal.
    pub(in crate::cli) fn new(has_header: bool) -> Self {
        Self {
            width: width(),
            colours: colours(),
            has_header,
            columns: Vec::new(),
            waiting: Vec::new(),
            layout: None,
            is_later: false,
            left_out: Vec::new(),
        }
    }

    /// Begins a table, and ends the previous one.
    ///
    /// # Errors
    /// If standard output cannot be written.
    pub(in crate::cli) fn begin(&mut self, columns: Vec<Column>) -> anyhow::Result<()> {
        self.flush()?;
        self.is_later |= self.layout.take().is_some();
        self.columns = columns;
        Ok(())
    }

    /// Adds a row. The first rows are printed together, once there are enough of them to choose the layout of the
    /// table.
    ///
    /// # Errors
    /// If standard output cannot be written.
    pub(in crate::cli) fn row(&mut self, cells: Vec<String>) -> anyhow::Result<()> {
        self.waiting.push(cells);
        if self.waiting.len() < MEASURED { Ok(()) } else { self.flush() }
    }

    /// Prints the rows that were added and not printed yet.
    ///
    /// # Errors
    /// If standard output cannot be written.
    pub(in crate::cli) fn flush(&mut self) -> anyhow::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let rows = std::mem::take(&mut self.waiting);
        let mut text = String::new();
        let layout = match &mut self.layout {
            Some(layout) => {
                layout.widen(&rows);
                layout
            }
            none => {
                let layout = Layout::new(&self.columns, &rows, self.width);
                for title in layout.left_out() {
                    if !self.left_out.iter().any(|known| known == title) {
                        self.left_out.push(title.to_owned());
                    }
                }
                if self.is_later {
                    text.push('\n');
                }
                if self.has_header {
                    text += &(layout.header() + "\n");
                }
                none.insert(layout)
            }
        };
        for row in &rows {
            text += &(layout.line(row, self.colours) + "\n");
        }
        out(&text)
    }

    /// Ends the last table. Prints a note on standard error about the columns that were left out for lack of space.
    ///
    /// # Errors
    /// If standard output cannot be written.
    pub(in crate::cli) fn end(&mut self) -> anyhow::Result<()> {
        self.flush()?;
        let left_out: Vec<&str> = self.left_out.iter().map(String::as_str).collect();
        if let Some(note) = note(&left_out, self.width) {
            note!("{note}");
        }
        Ok(())
    }
}

/// Returns a line of CSV that is safe on a terminal. Line breaks within a field are kept.
pub(in crate::cli) fn csv_line<'f>(fields: impl IntoIterator<Item = &'f str>) -> String {
    let safe = |field: &str| field.lines().map(printable).collect::<Vec<_>>().join("\n");
    let fields: Vec<String> = fields.into_iter().map(safe).collect();
    let record = csv_record(fields.iter().map(String::as_str));
    // On a terminal, the carriage return of RFC 4180 is of no use.
    if std::io::stdout().is_terminal() { record.replace('\r', "") } else { record }
}
