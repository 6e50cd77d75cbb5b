//! Tables of figures with right-aligned numbers.

use comfy_table::{CellAlignment, Table};

/// Creates an empty table with names in the first column and figures in the others.
pub fn figures<S: Into<String>>(preset: &str, header: impl IntoIterator<Item = S>) -> Table {
    let mut table = Table::new();
    table.load_preset(preset).set_header(header.into_iter().map(Into::into).collect::<Vec<String>>());
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
