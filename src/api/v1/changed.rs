//! JSON members that show which paths of an object an update has changed.

use serde_json::{Value, json};

use informer_hub_screen::Difference;

/// Maximum number of differences shown.
const MOST: usize = 100;

/// Returns the member `changed` with the first 100 differences. If there are more, also returns `changedMore` with the
/// number of those left out.
pub(in crate::api) fn changed_members(differences: &[Difference]) -> impl Iterator<Item = (&'static str, Value)> {
    let shown: Vec<_> = differences.iter().take(MOST).map(shown).collect();
    let more = differences.len().saturating_sub(MOST);
    let more = (more > 0).then(|| ("changedMore", json!(more)));
    [("changed", Value::Array(shown))].into_iter().chain(more)
}

/// Returns a difference as JSON: `path`, `old` and `new`. Without an old or new value, that member is absent.
fn shown(difference: &Difference) -> Value {
    let mut members = json!({ "path": difference.path });
    for (name, value) in [("old", &difference.old), ("new", &difference.new)] {
        if let Some(value) = value {
            members[name] = value.clone();
        }
    }
    members
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_beyond_the_limit_are_counted() {
        let of = |at: usize| Difference { path: format!("a[{at}]"), old: None, new: Some(json!(at)) };
        let differences: Vec<_> = (0..MOST + 5).map(of).collect();
        let members: Vec<_> = changed_members(&differences).collect();
        assert_eq!(members[0].1.as_array().unwrap().len(), MOST);
        assert_eq!(members[0].1[7], json!({ "path": "a[7]", "new": 7 }));
        assert_eq!(members[1], ("changedMore", json!(5)));
        assert_eq!(changed_members(&differences[..1]).count(), 1);
    }
}
