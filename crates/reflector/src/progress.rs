//! Bounds on the progress of a list: detects servers that send pages or items without end.

use std::time::Duration;

use super::plan::ListBounds;
use informer_hub_codec::{ErrorClass, SourceError};

/// Assumed page size of a request without a limit: client-go's default.
const USUAL_PAGE: u32 = 500;
/// Pause before the next page is requested, after a page without items. Doubles with each further such page.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Longest pause after a page without items.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Pause before the next page is requested, after a page with less than a tenth of the requested items.
const THIN_PAUSE: Duration = Duration::from_millis(20);

/// Progress of one list, to detect a list that never ends.
///
/// Brent's algorithm detects continue tokens that repeat in a cycle: one token is kept for comparison, and replaced
/// after 1, 2, 4, 8 … pages. A cycle of `n` tokens that begins after `m` pages is found within `3·max(m, n) + 2` pages.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    pages: u64,
    items: u64,
    waited: Duration,
    items_of_page: u64,
    empty_pages: u32,
    kept_token: Option<String>,
    since_kept: u64,
    keep_for: u64,
}

impl Progress {
    /// Resets the item count of the current page. Called when the page failed and will be requested again.
    pub fn begin_page(&mut self) {
        self.items_of_page = 0;
    }

    /// Records items, and how long the server took for them.
    ///
    /// # Errors
    /// The list is beyond its bounds.
    pub fn note_items(&mut self, items: u64, waited: Duration, bounds: &ListBounds) -> Result<(), SourceError> {
        self.items = self.items.saturating_add(items);
        self.items_of_page = self.items_of_page.saturating_add(items);
        self.waited = self.waited.saturating_add(waited);
        if self.items > bounds.items {
            return Err(unbounded(format!("list: more than {} items", bounds.items)));
        }
        if self.waited > bounds.time {
            return Err(unbounded(format!("list: not complete within {:?}", bounds.time)));
        }
        Ok(())
    }

    /// Records the end of a page with the continue token `token`. Returns the pause before the next page.
    ///
    /// # Errors
    /// The list makes no progress, or is beyond its bounds.
    pub fn note_page(&mut self, token: &str, limit: Option<u32>, bounds: &ListBounds) -> Result<Duration, SourceError> {
        self.pages += 1;
        if self.repeats(token) {
            return Err(unbounded(format!("list: page {} repeats an earlier continue token", self.pages)));
        }
        if self.pages >= bounds.pages {
            return Err(unbounded(format!("list: more than {} pages", bounds.pages)));
        }
        let items = std::mem::take(&mut self.items_of_page);
        if items > 0 {
            self.empty_pages = 0;
            let is_thin = items < u64::from(limit.unwrap_or(USUAL_PAGE) / 10);
            return Ok(if is_thin { THIN_PAUSE } else { Duration::ZERO });
        }
        self.empty_pages += 1;
        if self.empty_pages >= bounds.empty_pages {
            return Err(unbounded(format!("list: {} empty pages in a row", self.empty_pages)));
        }
        let doublings = (self.empty_pages - 1).min(16);
        Ok(FIRST_PAUSE.saturating_mul(1 << doublings).min(LONGEST_PAUSE))
    }

    fn repeats(&mut self, token: &str) -> bool {
        if self.kept_token.as_deref() == Some(token) {
            return true;
        }
        if self.since_kept == self.keep_for {
            self.kept_token = Some(token.to_owned());
            self.keep_for = (self.keep_for * 2).max(1);
            self.since_kept = 0;
        }
        self.since_kept += 1;
        false
    }
}

fn unbounded(message: String) -> SourceError {
    SourceError { class: ErrorClass::Malformed, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads full pages until an error. Returns the number of pages read and the error message.
    fn pages_until_error(tokens: impl Iterator<Item = String>) -> (u64, String) {
        let mut progress = Progress::default();
        let bounds = ListBounds { pages: 10_000, ..ListBounds::default() };
        for (page, token) in (1..).zip(tokens) {
            progress.begin_page();
            progress.note_items(500, Duration::ZERO, &bounds).unwrap();
            if let Err(error) = progress.note_page(&token, Some(500), &bounds) {
                return (page, error.message);
            }
        }
        panic!("the tokens ended first");
    }

    #[test]
    fn token_cycle_is_found_within_three_times_its_length() {
        for lead in [0_u64, 1, 2, 7, 100] {
            for length in [1_u64, 2, 3, 10, 64, 500] {
                let tokens = (0..lead).map(|at| format!("lead-{at}"));
                let cycle = (0..length).cycle().map(|at| format!("cycle-{at}"));
                let (page, message) = pages_until_error(tokens.chain(cycle));
                assert!(page > lead + length, "{lead} {length}: nothing has been repeated at page {page}");
                assert!(page <= 3 * lead.max(length) + 2, "{lead} {length}: found at page {page}");
                assert_eq!(message, format!("list: page {page} repeats an earlier continue token"));
            }
        }
        assert_eq!(pages_until_error(std::iter::repeat("same".to_owned())).0, 2);
    }

    #[test]
    fn million_objects_in_pages_of_ten_are_within_bounds_and_unpaced() {
        let (mut progress, bounds) = (Progress::default(), ListBounds::default());
        for page in 0..99_999 {
            progress.begin_page();
            progress.note_items(10, Duration::from_millis(10), &bounds).unwrap();
            let pause = progress.note_page(&format!("t{page}"), Some(10), &bounds).unwrap();
            assert_eq!(pause, Duration::ZERO);
        }
        let error = progress.note_page("one more", Some(10), &bounds).unwrap_err();
        assert_eq!(error.message, "list: more than 100000 pages");
    }

    #[test]
    fn empty_pages_are_paced_then_end_the_list() {
        let (mut progress, bounds) = (Progress::default(), ListBounds::default());
        let mut pauses = Vec::new();
        let error = loop {
            progress.begin_page();
            match progress.note_page(&format!("t{}", pauses.len()), Some(500), &bounds) {
                Ok(pause) => pauses.push(pause.as_millis()),
                Err(error) => break error,
            }
        };
        assert_eq!(pauses[..7], [100, 200, 400, 800, 1600, 2000, 2000]);
        assert_eq!((pauses.len(), error.message.as_str()), (15, "list: 16 empty pages in a row"));
    }

    #[test]
    fn item_resets_empty_page_count_and_thin_page_is_paced() {
        let (mut progress, bounds) = (Progress::default(), ListBounds { empty_pages: 2, ..ListBounds::default() });
        let mut page = |items: u64, token: &str| {
            progress.begin_page();
            progress.note_items(items, Duration::ZERO, &bounds).unwrap();
            progress.note_page(token, None, &bounds).map(|pause| pause.as_millis()).ok()
        };
        assert_eq!(page(0, "a"), Some(100));
        assert_eq!(page(49, "b"), Some(20));
        assert_eq!(page(0, "c"), Some(100), "the count starts over");
        assert_eq!(page(50, "d"), Some(0));
        assert_eq!((page(0, "e"), page(0, "f")), (Some(100), None));
    }

    #[test]
    fn items_and_time_are_bounded_within_a_page() {
        let bounds = ListBounds { items: 10, time: Duration::from_secs(9), ..ListBounds::default() };
        let mut progress = Progress::default();
        progress.note_items(10, Duration::from_secs(9), &bounds).unwrap();
        let error = progress.clone().note_items(1, Duration::ZERO, &bounds).unwrap_err();
        assert_eq!(error.message, "list: more than 10 items");
        let error = progress.note_items(0, Duration::from_millis(1), &bounds).unwrap_err();
        assert_eq!((error.class, error.message.as_str()), (ErrorClass::Malformed, "list: not complete within 9s"));
    }
}
