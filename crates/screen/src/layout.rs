//! Layout of a table in the columns of a terminal.
//!
//! The first rows decide which columns fit. Later rows keep these columns, and may widen them as far as the terminal
//! allows, so that a table can be printed as it arrives.

use informer_hub_types::printable;

use super::text::{cut, cut_middle, width_of};
use super::tone::{Tone, paint};

/// Blanks between columns.
const GAP: usize = 3;
/// Blanks between columns of a table that does not fit with [`GAP`].
const NARROW_GAP: usize = 2;
/// Minimum width of a shortened cell, in terminal columns.
const SHORT: usize = 20;
/// Minimum width of a shortened cluster or namespace name, in terminal columns.
const SHORT_PLACE: usize = 12;
/// Cells without information.
const EMPTY: [&str; 4] = ["", "<none>", "<unset>", "<unknown>"];

/// A column of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Column {
    /// Title in upper case.
    pub title: String,
    /// 0 for a column that is shown by default; greater for a column of `-o wide`; less for a column that the user
    /// selected.
    pub priority: i64,
}

/// Importance of a column, in ascending order. If a table is too wide, its least important column is left out first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Weight {
    /// No row has a value in the column.
    Empty,
    Wide,
    Ordinary,
    Age,
    Ready,
    Status,
    /// Cluster, namespace or name: never left out.
    Key,
}

/// Layout of a table: the columns that are shown, and their widths.
#[derive(Debug)]
pub struct Layout {
    titles: Vec<String>,
    /// Indexes of the shown columns.
    shown: Vec<usize>,
    /// Widths of the shown columns.
    widths: Vec<usize>,
    gap: usize,
    /// Maximum width of the table in terminal columns; `None` for no limit.
    limit: Option<usize>,
}

impl Layout {
    /// Lays out columns so that they fit the first rows in at most `limit` terminal columns; `None` for no limit.
    ///
    /// If the columns do not fit, cells are shortened and columns are left out. Columns without any value are left out
    /// first, then those of `-o wide`, ordinary ones, age, readiness and status. Within such a group, the last column
    /// is left out first.
    ///
    /// Columns of clusters, namespaces and names always stay, and are shortened last. Columns that the user selected
    /// are left out only if the table does not fit otherwise.
    #[must_use]
    pub fn new(columns: &[Column], rows: &[Vec<String>], limit: Option<usize>) -> Self {
        let titles: Vec<String> = columns.iter().map(|column| printable(&column.title)).collect();
        let natural: Vec<usize> = (0..columns.len()).map(|column| natural(&titles[column], column, rows)).collect();
        let all: Vec<usize> = (0..columns.len()).collect();
        let Some(width) = limit.filter(|limit| total(&natural, GAP) > *limit) else {
            return Self { titles, shown: all, widths: natural, gap: GAP, limit };
        };
        let weights: Vec<Weight> = (0..columns.len()).map(|at| weight(&columns[at], at, rows)).collect();
        let mut least: Vec<usize> =
            (0..columns.len())
                .map(|at| {
                    if weights[at] == Weight::Key { natural[at] } else { natural[at].min(SHORT.max(titles[at].len())) }
                })
                .collect();
        let mut shown = all;
        let of = |shown: &[usize], widths: &[usize]| shown.iter().map(|at| widths[*at]).collect::<Vec<_>>();
        while total(&of(&shown, &least), NARROW_GAP) > width {
            let spare: Vec<usize> = shown.iter().copied().filter(|at| columns[*at].priority >= 0).collect();
            let Some(weakest) = weakest(&spare, &weights) else { break };
            shown.retain(|at| *at != weakest);
        }
        shorten_keys(&titles, &shown, &mut least, width);
        while total(&of(&shown, &least), NARROW_GAP) > width {
            let Some(weakest) = weakest(&shown, &weights) else { break };
            shown.retain(|at| *at != weakest);
        }
        let gap = if total(&of(&shown, &natural), GAP) <= width { GAP } else { NARROW_GAP };
        let mut spare = width.saturating_sub(total(&of(&shown, &least), gap));
        let mut widths = Vec::new();
        // Columns of clusters, namespaces and names get the spare room first.
        for keys in [true, false] {
            for at in shown.iter().filter(|at| (weights[**at] == Weight::Key) == keys) {
                let more = spare.min(natural[*at] - least[*at]);
                least[*at] += more;
                spare -= more;
            }
        }
        widths.extend(of(&shown, &least));
        Self { titles, shown, widths, gap, limit }
    }

    /// Returns the titles of the columns that are left out.
    #[must_use]
    pub fn left_out(&self) -> Vec<&str> {
        let is_left_out = |at: &usize| !self.shown.contains(at);
        (0..self.titles.len()).filter(is_left_out).map(|at| self.titles[at].as_str()).collect()
    }

    /// Returns the line with the titles.
    #[must_use]
    pub fn header(&self) -> String {
        self.joined(&self.titles, false)
    }

    /// Widens the columns to fit later rows, as far as the terminal allows.
    pub fn widen(&mut self, rows: &[Vec<String>]) {
        let wanted: Vec<usize> = self.shown.iter().map(|at| natural("", *at, rows)).collect();
        for (at, wanted) in wanted.into_iter().enumerate() {
            let spare = self.limit.map_or(usize::MAX, |limit| limit.saturating_sub(total(&self.widths, self.gap)));
            let width = self.widths[at];
            self.widths[at] = wanted.min(width.saturating_add(spare)).max(width);
        }
    }

    /// Formats a row. Cells may hold untrusted text: each is made [`printable()`].
    #[must_use]
    pub fn line(&self, cells: &[String], colours: bool) -> String {
        self.joined(cells, colours)
    }

    fn joined(&self, cells: &[String], colours: bool) -> String {
        let mut line = String::new();
        let mut blanks = 0;
        for (place, at) in self.shown.iter().enumerate() {
            let text = cells.get(*at).map(|cell| printable(cell)).unwrap_or_default();
            let width = self.widths[place];
            let text = match self.limit {
                Some(_) if is_key(&self.titles[*at]) => cut_middle(&text, width),
                Some(_) => cut(&text, width),
                None => text,
            };
            line.extend(std::iter::repeat_n(' ', blanks));
            blanks = (width + self.gap).saturating_sub(width_of(&text)).max(1);
            match Tone::of(&self.titles[*at], &text).filter(|_| colours) {
                Some(tone) => line.push_str(&paint(&text, tone)),
                None => line.push_str(&text),
            }
        }
        line.truncate(line.trim_end_matches(' ').len());
        line
    }
}

fn total(widths: &[usize], gap: usize) -> usize {
    widths.iter().sum::<usize>() + widths.len().saturating_sub(1) * gap
}

fn natural(title: &str, column: usize, rows: &[Vec<String>]) -> usize {
    let cells = rows.iter().filter_map(|cells| cells.get(column));
    cells.map(|cell| width_of(&printable(cell))).max().unwrap_or_default().max(width_of(title))
}

fn is_key(title: &str) -> bool {
    matches!(title, "CLUSTER" | "NAMESPACE" | "NAME")
}

fn weight(column: &Column, at: usize, rows: &[Vec<String>]) -> Weight {
    let is_empty = |cells: &Vec<String>| cells.get(at).is_none_or(|cell| EMPTY.contains(&cell.as_str()));
    match column.title.as_str() {
        title if is_key(title) => Weight::Key,
        _ if !rows.is_empty() && rows.iter().all(is_empty) => Weight::Empty,
        _ if column.priority > 0 => Weight::Wide,
        "READY" => Weight::Ready,
        "STATUS" | "PHASE" | "STATE" | "REASON" | "MESSAGE" => Weight::Status,
        "AGE" | "LAST SEEN" => Weight::Age,
        _ => Weight::Ordinary,
    }
}

/// Returns the column to leave out next: the last of those with the lowest weight.
fn weakest(among: &[usize], weights: &[Weight]) -> Option<usize> {
    let candidates = among.iter().copied().filter(|at| weights[*at] < Weight::Key);
    candidates.min_by_key(|at| (weights[*at], usize::MAX - *at))
}

/// Reduces the minimum widths `least` of the namespace, the cluster and the name, in this order, until the shown
/// columns fit `width`.
fn shorten_keys(titles: &[String], shown: &[usize], least: &mut [usize], width: usize) {
    for (title, shortest) in [("NAMESPACE", SHORT_PLACE), ("CLUSTER", SHORT_PLACE), ("NAME", SHORT)] {
        let over = total(&shown.iter().map(|at| least[*at]).collect::<Vec<_>>(), NARROW_GAP).saturating_sub(width);
        if let Some(at) = shown.iter().find(|at| titles[**at] == title) {
            least[*at] = least[*at].saturating_sub(over).max(shortest.min(least[*at]));
        }
    }
}

#[cfg(test)]
mod tests;
