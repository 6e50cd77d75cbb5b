//! Tables that fit a terminal.
//!
//! The last column explains its row and is never cut. If it does not fit, less important columns are left out. If it
//! still does not fit, it is wrapped, or printed on separate lines below its row.

use comfy_table::{Cell, Color};

use super::print::{lines, number, styled, table, wrapped};
use informer_hub_types::printable;

/// Minimum width of the explanation beside its row; with less room it is printed below.
const MIN_EXPLANATION: usize = 32;
/// Indentation of an explanation below its row.
const INDENT: &str = "    ";
/// Blanks between columns.
const GAP: usize = 2;

/// Cells of a row, with the index and colour of the cell that is coloured, if any.
pub(super) type Line = (Vec<String>, Option<(usize, Color)>);

/// A table before it is laid out.
#[derive(Debug, Default)]
pub(super) struct Fitted<'t> {
    /// Titles of the columns; the last column is the explanation.
    pub(super) header: &'t [&'t str],
    /// Indexes of columns with numbers.
    pub(super) numbers: &'t [usize],
    /// Indexes of columns that may be left out, least important first.
    pub(super) spare: &'t [usize],
    pub(super) rows: Vec<Line>,
}

impl<'t> Fitted<'t> {
    /// Renders the table in at most `width` columns, without limit if `None`. Returns the text and the omitted titles.
    ///
    /// Cells may hold untrusted text: each is made [`printable`] here.
    pub(super) fn render(&self, width: Option<usize>, colours: bool) -> (String, Vec<&'t str>) {
        let safe = |(cells, paint): &Line| (cells.iter().map(|cell| printable(cell)).collect(), *paint);
        let rows = self.rows.iter().map(safe).collect();
        Self { rows, header: self.header, numbers: self.numbers, spare: self.spare }.laid_out(width, colours)
    }

    fn laid_out(&self, width: Option<usize>, colours: bool) -> (String, Vec<&'t str>) {
        let last = self.header.len().saturating_sub(1);
        let every: Vec<usize> = (0..last).collect();
        let Some(width) = width.filter(|width| self.taken(&every) + self.natural(last) > *width) else {
            return (self.table(&every, Some(usize::MAX), colours), Vec::new());
        };
        let rest: Vec<usize> = every.iter().copied().filter(|column| !self.spare.contains(column)).collect();
        let room = width.saturating_sub(self.taken(&rest));
        let natural = self.natural(last);
        // Even without the spare columns, the explanation may not fit one line. Then it is wrapped, and needs room only
        // for its longest word.
        let needed = if natural <= room { natural } else { MIN_EXPLANATION.max(self.longest_word()).min(natural) };
        let (columns, beside) =
            if room >= needed { (self.kept(width - needed), true) } else { (self.kept(width + GAP), false) };
        let room = beside.then(|| width.saturating_sub(self.taken(&columns)));
        let text = self.table(&columns, room, colours);
        let text = if beside { text } else { self.explained(&text, width) };
        let left_out = every.iter().filter(|column| !columns.contains(column));
        (text, left_out.map(|column| self.header[*column]).collect())
    }

    /// Returns the columns that fit `width`, after leaving out as many spare columns as needed. The last column is
    /// neither counted nor returned.
    fn kept(&self, width: usize) -> Vec<usize> {
        let mut kept: Vec<usize> = (0..self.header.len().saturating_sub(1)).collect();
        for spare in self.spare {
            if self.taken(&kept) <= width {
                break;
            }
            kept.retain(|column| column != spare);
        }
        kept
    }

    /// Returns the width of columns, with their gaps and the blank at the beginning of a line.
    fn taken(&self, columns: &[usize]) -> usize {
        1 + columns.iter().map(|column| self.natural(*column) + GAP).sum::<usize>()
    }

    fn natural(&self, column: usize) -> usize {
        let title = self.header.get(column).map_or(0, |title| title.chars().count());
        let cells = self.rows.iter().filter_map(|(cells, _)| cells.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or_default().max(title)
    }

    /// Returns the length of the longest word of all explanations, which must not be cut.
    fn longest_word(&self) -> usize {
        let words = self.rows.iter().filter_map(|(cells, _)| cells.last()).flat_map(|why| why.split(' '));
        words.map(|word| word.chars().count()).max().unwrap_or_default()
    }

    /// Renders these columns and, if `room` is given, the explanation column, wrapped to `room` columns.
    fn table(&self, columns: &[usize], room: Option<usize>, colours: bool) -> String {
        let last = self.header.len().saturating_sub(1);
        let shown: Vec<usize> = columns.iter().copied().chain(room.map(|_| last)).collect();
        let header: Vec<&str> = shown.iter().filter_map(|column| self.header.get(*column).copied()).collect();
        let mut table = table(&header);
        for (cells, paint) in &self.rows {
            let cell = |column: &usize| {
                let text = cells.get(*column).map(String::as_str).unwrap_or_default();
                let cell = match room {
                    Some(room) if *column == last => Cell::new(wrapped(text, room, "")),
                    _ if self.numbers.contains(column) => number(text),
                    _ => Cell::new(text),
                };
                match paint {
                    Some((painted, colour)) if colours && painted == column => cell.fg(*colour),
                    _ => cell,
                }
            };
            table.add_row(shown.iter().map(cell));
        }
        lines(&styled(table, colours))
    }

    /// Returns `table`, which has one line per row, with the explanation of each row inserted below its line.
    fn explained(&self, table: &str, width: usize) -> String {
        let mut table = table.lines();
        let mut text: Vec<String> = table.next().map(str::to_owned).into_iter().collect();
        for (line, (cells, _)) in table.zip(&self.rows) {
            text.push(line.to_owned());
            let why = cells.last().map(String::as_str).unwrap_or_default();
            if !why.is_empty() {
                text.push(wrapped(&format!("{INDENT}{why}"), width, INDENT));
            }
        }
        text.join("\n")
    }
}

/// Returns the note about omitted columns, if there are any.
pub(super) fn note(left_out: &[&str], width: Option<usize>) -> Option<String> {
    let text = format!("no room for {}: a wider terminal or -o json shows them", left_out.join(", "));
    (!left_out.is_empty()).then(|| wrapped(&text, width.unwrap_or(usize::MAX), "  "))
}

#[cfg(test)]
mod tests {
    use super::super::status::resources_table;
    use super::*;

    const WHY: &str = "pods is forbidden: User \"system:serviceaccount:informer-hub:informer-hub\" cannot list resource \
                       \"pods\" in API group \"\" at the cluster scope";

    fn fitted(cluster: &str) -> Fitted<'static> {
        let row = |resource: &str, why: &str| {
            let cells =
                [cluster, resource, "*", "forbidden", "12,345", "5.0 MiB", "protobuf", "12s", "1", "0", "0", why];
            (cells.map(str::to_owned).to_vec(), None)
        };
        resources_table(vec![row("pods", WHY), row("deployments.apps", "")])
    }

    fn words(text: &str) -> Vec<&str> {
        text.split_whitespace().collect()
    }

    #[test]
    fn an_explanation_is_never_cut_at_any_width() {
        for cluster in ["prod-eu", "arn-aws-eks-eu-central-1-123456789012-prod"] {
            for width in [80, 100, 120] {
                let (text, left_out) = fitted(cluster).render(Some(width), false);
                assert!(text.lines().all(|line| line.chars().count() <= width), "{width}:\n{text}");
                for word in words(WHY) {
                    assert!(words(&text).contains(&word), "{width}: {word} is cut in\n{text}");
                }
                assert!(["CLUSTER", "RESOURCE", "STATE"].iter().all(|title| words(&text).contains(title)), "{text}");
                assert!(left_out.contains(&"LISTS") && note(&left_out, Some(80)).is_some(), "{left_out:?}");
            }
        }
    }

    #[test]
    fn the_least_important_columns_are_left_out_first() {
        let (text, left_out) = fitted("prod-eu").render(None, false);
        assert!(left_out.is_empty() && text.lines().count() == 3 && text.contains(WHY), "{text}");
        let (text, left_out) = fitted("prod-eu").render(Some(200), false);
        assert!(left_out.contains(&"LISTS") && text.contains(WHY), "on one line: {left_out:?}\n{text}");
        let (text, left_out) = fitted("prod-eu").render(Some(120), false);
        assert!(text.contains("12,345") && !left_out.contains(&"OBJECTS"), "{left_out:?}\n{text}");
        let (text, _) = fitted("prod-eu").render(Some(60), false);
        assert!(text.contains("\n    pods is forbidden: User"), "below its row:\n{text}");
    }
}
