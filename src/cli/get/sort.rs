//! `--sort-by`: by a column of the table, or by a path of the object.

use std::str::FromStr;

use crate::cli::Misuse;
use informer_hub_screen::{CellKey, Template};
use informer_hub_types::nearest_name;

/// Column or path by which `--sort-by` sorts.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum SortKey {
    /// Title of a column.
    Title(String),
    /// Path of a field.
    Path(Template),
}

/// Items to sort, with their sort keys.
#[derive(Debug)]
pub(super) struct Sorted<T> {
    items: Vec<(CellKey, T)>,
}

impl FromStr for SortKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains(['.', '{', '[']) {
            return Template::path(text).map(Self::Path).map_err(|error| error.to_string());
        }
        if text.trim().is_empty() {
            Err("name a column or a path".to_owned())
        } else {
            Ok(Self::Title(text.to_owned()))
        }
    }
}

impl SortKey {
    /// Returns the index in `titles` of the column to sort by; `None` if the key is a path. The comparison of titles
    /// ignores case, blanks, `-` and `_`.
    ///
    /// # Errors
    /// [`Misuse`] if there is no such column.
    pub(super) fn column(&self, titles: &[String]) -> anyhow::Result<Option<usize>> {
        let Self::Title(wanted) = self else { return Ok(None) };
        let plain = |text: &str| text.to_lowercase().replace([' ', '-', '_'], "");
        let titles: Vec<String> = titles.iter().map(|title| plain(title)).collect();
        let wanted = plain(wanted);
        if let Some(at) = titles.iter().position(|title| *title == wanted) {
            return Ok(Some(at));
        }
        let nearest = nearest_name(&wanted, titles.iter().map(String::as_str), 3);
        let hint = nearest.map(|nearest| format!("did you mean {nearest}? ")).unwrap_or_default();
        let known = titles.join(", ");
        Err(Misuse::error(format!("--sort-by {wanted}: {hint}columns are {known}; a path begins with a dot")))
    }
}

impl<T> Sorted<T> {
    pub(super) fn new() -> Self {
        Self { items: Vec::new() }
    }

    pub(super) fn push(&mut self, key: CellKey, item: T) {
        self.items.push((key, item));
    }

    /// Returns the items in order, at most `limit`, and the number of those left out. Missing values are last in both
    /// directions.
    pub(super) fn take(&mut self, desc: bool, limit: Option<usize>) -> (Vec<T>, usize) {
        let mut items = std::mem::take(&mut self.items);
        items.sort_by(|(a, _), (b, _)| {
            let both = *a != CellKey::Missing && *b != CellKey::Missing;
            if desc && both { b.cmp(a) } else { a.cmp(b) }
        });
        let over = items.len().saturating_sub(limit.unwrap_or(usize::MAX));
        items.truncate(items.len() - over);
        (items.into_iter().map(|(_, item)| item).collect(), over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_by_title_and_mistakes_have_a_suggestion() {
        let titles = ["CLUSTER", "NOMINATED NODE", "RESTARTS"].map(str::to_owned);
        let column = |text: &str| text.parse::<SortKey>().unwrap().column(&titles);
        assert_eq!(column("restarts").unwrap(), Some(2));
        assert_eq!(column("nominated-node").unwrap(), Some(1));
        assert_eq!(column(".metadata.name").unwrap(), None);
        let error = column("restart").unwrap_err();
        assert!(error.is::<Misuse>() && error.to_string().contains("did you mean restarts?"), "{error}");
        assert!(".a[".parse::<SortKey>().is_err() && "".parse::<SortKey>().is_err());
    }

    #[test]
    fn missing_values_are_last_in_both_directions() {
        for (desc, expected) in [(false, ["9", "10", "<none>"]), (true, ["10", "9", "<none>"])] {
            let mut sorted = Sorted::new();
            for cell in ["<none>", "10", "9"] {
                sorted.push(CellKey::of_cell(cell), cell);
            }
            assert_eq!(sorted.take(desc, None), (expected.to_vec(), 0));
        }
        let mut sorted = Sorted::new();
        (0..3).for_each(|at| sorted.push(CellKey::of_cell("1"), at));
        assert_eq!(sorted.take(true, Some(2)), (vec![0, 1], 1), "equal keys keep their order");
    }
}
