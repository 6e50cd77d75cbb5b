//! Tables of figures.

use comfy_table::{CellAlignment, Table};

/// An empty table whose first column is names and whose others are figures.
pub fn figures<S: Into<String>>(preset: &str, header: impl IntoIterator<Item = S>) -> Table {
    let mut table = Table::new();
    table.load_preset(preset).set_header(header.into_iter().map(Into::into).collect::<Vec<String>>());
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
