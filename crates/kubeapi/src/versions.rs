//! Decides which state answers a get, list or watch, from `resourceVersion` and Kubernetes' rules for it.

use informer_hub_types::MAX_QUOTED;

use crate::quote::Quoted;
use crate::{Continuation, Options, Status, VersionMatch};

/// State from which a list or a get is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListAt {
    /// The present state.
    Present,
    /// The present state, after the cache has reached this version.
    NotOlderThan(u64),
    /// Exactly the state of this version.
    Exact(u64),
    /// The snapshot of a continue token, which [`Options::continuation`] holds.
    Continued,
}

/// Where a watch begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WatchFrom {
    /// First the present state as `ADDED` events, then the changes. If `not_older_than` is set, the watch first waits
    /// until the cache has reached it.
    Present {
        /// Minimum version of the state; `None` accepts any.
        not_older_than: Option<u64>,
        /// Whether a bookmark with `k8s.io/initial-events-end` follows the state.
        end_bookmark: bool,
    },
    /// The changes after this resourceVersion.
    After(u64),
    /// Only changes from now on (`sendInitialEvents=false` without a version).
    Now,
}

/// Returns the state from which a list is answered, or a get of one object if `is_get`.
///
/// # Errors
/// [`Status`] of code 400 if the resourceVersion is not a number, or if the request has both a resourceVersion and a
/// continue token.
pub fn list_at(options: &Options, is_get: bool) -> Result<ListAt, Status> {
    if !is_get && !options.continuation.is_empty() {
        if matches!(options.resource_version.as_str(), "" | "0") {
            return Ok(ListAt::Continued);
        }
        Continuation::parse(&options.continuation)?;
        return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
    }
    let Some(version) = version(&options.resource_version)? else {
        return Ok(ListAt::Present);
    };
    if is_get {
        return Ok(ListAt::NotOlderThan(version));
    }
    Ok(match options.version_match {
        Some(VersionMatch::Exact) => ListAt::Exact(version),
        // Paging clients that predate `resourceVersionMatch` (Kubernetes 1.19) expect exactly this version.
        None if options.limit > 0 => ListAt::Exact(version),
        Some(VersionMatch::NotOlderThan) | None => ListAt::NotOlderThan(version),
    })
}

/// Returns where a watch begins.
///
/// # Errors
/// [`Status`] of code 400 for a version that is no number.
pub fn watch_from(options: &Options) -> Result<WatchFrom, Status> {
    let not_older_than = version(&options.resource_version)?;
    Ok(match (options.initial_events, not_older_than) {
        (Some(true), _) => WatchFrom::Present { not_older_than, end_bookmark: options.bookmarks },
        (None, None) => WatchFrom::Present { not_older_than, end_bookmark: false },
        (Some(false), None) => WatchFrom::Now,
        (Some(false) | None, Some(version)) => WatchFrom::After(version),
    })
}

/// Parses a resourceVersion. `None` if it is unset or zero, which accepts any version.
fn version(text: &str) -> Result<Option<u64>, Status> {
    if text.is_empty() {
        return Ok(None);
    }
    let problem = if text.bytes().all(|byte| byte.is_ascii_digit()) { "value out of range" } else { "invalid syntax" };
    let version = text.parse::<u64>().ok().filter(|_| problem != "invalid syntax");
    let version = version.ok_or_else(|| {
        let shown = Quoted(text);
        // kube-apiserver's message quotes the text twice.
        let again = if text.len() > MAX_QUOTED { String::new() } else { format!("parsing {shown}: ") };
        Status::bad_request(format!(
            "invalid resource version: resourceVersion: Invalid value: {shown}: strconv.ParseUint: {again}{problem}"
        ))
    })?;
    Ok(Some(version).filter(|version| *version > 0))
}

#[cfg(test)]
mod tests {
    use informer_hub_types::{ClusterName, ObjectKey};

    use super::*;

    fn list(query: &str) -> Result<ListAt, Status> {
        list_at(&Options::parse(query)?, false)
    }

    fn get(query: &str) -> Result<ListAt, Status> {
        list_at(&Options { resource_version: query.to_owned(), ..Options::default() }, true)
    }

    fn watch(query: &str) -> Result<WatchFrom, Status> {
        watch_from(&Options::parse(&format!("watch=1&{query}"))?)
    }

    #[test]
    fn get_is_present_or_not_older_than_its_version() {
        assert_eq!(get(""), Ok(ListAt::Present));
        assert_eq!(get("0"), Ok(ListAt::Present));
        assert_eq!(get("57"), Ok(ListAt::NotOlderThan(57)));
    }

    #[test]
    fn get_ignores_limit_and_continue() {
        let options =
            Options { limit: 5, continuation: "x".into(), resource_version: "57".into(), ..Options::default() };
        assert_eq!(list_at(&options, true), Ok(ListAt::NotOlderThan(57)));
    }

    /// Tests each cell of the table "resourceVersionMatch and paging parameters" in Kubernetes' documentation. The
    /// columns are: resourceVersion unset, `0`, another version without a limit, and another version with a limit.
    #[test]
    fn list_follows_the_table_of_kubernetes() {
        use ListAt::{Exact, NotOlderThan, Present};
        for (query, at) in [
            ("", Present),
            ("limit=10", Present),
            ("resourceVersion=0", Present),
            ("resourceVersion=0&limit=10", Present),
            ("resourceVersion=57", NotOlderThan(57)),
            ("resourceVersion=57&limit=10", Exact(57)),
            ("resourceVersion=57&limit=0", NotOlderThan(57)),
            ("resourceVersion=57&resourceVersionMatch=Exact", Exact(57)),
            ("resourceVersion=57&resourceVersionMatch=Exact&limit=10", Exact(57)),
            ("resourceVersion=57&resourceVersionMatch=NotOlderThan", NotOlderThan(57)),
            ("resourceVersion=57&resourceVersionMatch=NotOlderThan&limit=10", NotOlderThan(57)),
            ("resourceVersion=0&resourceVersionMatch=NotOlderThan", Present),
            ("resourceVersion=0&resourceVersionMatch=NotOlderThan&limit=10", Present),
        ] {
            assert_eq!(list(query), Ok(at), "{query}");
        }
        for query in [
            "resourceVersionMatch=Exact",
            "resourceVersionMatch=NotOlderThan",
            "resourceVersionMatch=Exact&limit=10",
            "resourceVersionMatch=NotOlderThan&limit=10",
            "resourceVersion=0&resourceVersionMatch=Exact",
            "resourceVersion=0&resourceVersionMatch=Exact&limit=10",
            "resourceVersionMatch=Exact&continue=x",
            "resourceVersion=57&resourceVersionMatch=NotOlderThan&continue=x",
        ] {
            assert_eq!(list(query).map_err(|status| status.code), Err(422), "{query}");
        }
    }

    #[test]
    fn continued_list_has_no_version_of_its_own() {
        for query in ["continue=x", "continue=x&limit=10", "continue=x&resourceVersion=0&limit=10"] {
            assert_eq!(list(query), Ok(ListAt::Continued), "{query}");
        }
        let (cluster, key) = (ClusterName::new("c").unwrap(), ObjectKey::of("x"));
        let token = Continuation { version: 1, list: 2, cluster, key }.token();
        let refusal = |token: &str| list(&format!("continue={token}&resourceVersion=57")).unwrap_err();
        let message = "specifying resource version is not allowed when using continue";
        assert_eq!(refusal(&token), Status::bad_request(message));
        assert_eq!(refusal("x"), Continuation::parse("x").unwrap_err());
    }

    #[test]
    fn watch_without_send_initial_events_begins_with_the_state_only_without_a_version() {
        let state = WatchFrom::Present { not_older_than: None, end_bookmark: false };
        assert_eq!(watch(""), Ok(state));
        assert_eq!(watch("resourceVersion=0"), Ok(state));
        assert_eq!(watch("resourceVersion=57"), Ok(WatchFrom::After(57)));
        assert_eq!(watch("resourceVersion=57&allowWatchBookmarks=1"), Ok(WatchFrom::After(57)));
    }

    #[test]
    fn watch_without_a_version_and_with_bookmarks_marks_the_end_of_the_state() {
        let state = WatchFrom::Present { not_older_than: None, end_bookmark: true };
        assert_eq!(watch("allowWatchBookmarks=1"), Ok(state));
        assert_eq!(watch("allowWatchBookmarks=1&resourceVersion=0"), Ok(state));
    }

    #[test]
    fn watch_path_does_not_mark_the_end_of_the_state() {
        let options = Options { watch: true, bookmarks: true, ..Options::default() };
        assert_eq!(watch_from(&options), Ok(WatchFrom::Present { not_older_than: None, end_bookmark: false }));
    }

    #[test]
    fn streaming_list_begins_with_a_state_as_new_as_its_version() {
        const WANTED: &str = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
        let state = |not_older_than| Ok(WatchFrom::Present { not_older_than, end_bookmark: true });
        assert_eq!(watch(WANTED), state(None));
        assert_eq!(watch(&format!("{WANTED}&resourceVersion=0")), state(None));
        assert_eq!(watch(&format!("{WANTED}&resourceVersion=57")), state(Some(57)));
        let silent = WANTED.replace("allowWatchBookmarks=true", "");
        assert_eq!(watch(&silent), Ok(WatchFrom::Present { not_older_than: None, end_bookmark: false }));
    }

    #[test]
    fn watch_that_refuses_initial_events_begins_with_changes() {
        const REFUSED: &str = "sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
        assert_eq!(watch(REFUSED), Ok(WatchFrom::Now));
        assert_eq!(watch(&format!("{REFUSED}&resourceVersion=0")), Ok(WatchFrom::Now));
        assert_eq!(watch(&format!("{REFUSED}&resourceVersion=57")), Ok(WatchFrom::After(57)));
    }

    #[test]
    fn version_that_is_no_number_is_refused() {
        for (text, problem) in [
            ("abc", "invalid syntax"),
            ("-1", "invalid syntax"),
            ("%2B1", "invalid syntax"),
            ("1.5", "invalid syntax"),
            ("18446744073709551616", "value out of range"),
        ] {
            let query = format!("resourceVersion={text}");
            let text = text.replace("%2B", "+");
            let message = format!(
                "invalid resource version: resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \
                 \"{text}\": {problem}"
            );
            let wrong = Status::bad_request(message);
            assert_eq!(list(&query), Err(wrong.clone()), "{text}");
            assert_eq!(watch(&query), Err(wrong.clone()), "{text}");
            assert_eq!(get(&text), Err(wrong), "{text}");
        }
        assert_eq!(list("resourceVersion=18446744073709551615"), Ok(ListAt::NotOlderThan(u64::MAX)));
        assert_eq!(list("resourceVersion=00"), Ok(ListAt::Present));
    }
}
