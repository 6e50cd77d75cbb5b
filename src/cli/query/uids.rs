//! Search for UIDs in a query that are not UUIDs, and therefore match no Kubernetes object.

use informer_hub_query::{Expr, Question};

/// Number of hexadecimal digits in each part of a UUID.
const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];

/// Returns the first UID in the query `text` that is not a UUID, for example because it is a name.
pub(super) fn malformed_uid(text: &str) -> Option<String> {
    let question: Question = text.parse().ok()?;
    find(&question.condition)
}

fn find(condition: &Expr) -> Option<String> {
    match condition {
        Expr::And(all) | Expr::Or(all) => all.iter().find_map(find),
        Expr::Not(inner) => find(inner),
        Expr::Uid(uid) | Expr::OwnedBy(uid) => Some(uid.to_string()).filter(|uid| !is_uuid(uid)),
        _ => None,
    }
}

fn is_uuid(text: &str) -> bool {
    let is_hex = |group: &str| group.bytes().all(|byte| byte.is_ascii_hexdigit());
    text.split('-').all(is_hex) && text.split('-').map(str::len).eq(GROUPS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_uids_are_found_in_the_condition() {
        let uuid = "0f8fad5b-d9cb-469f-a165-70867728950e";
        let found = |text: String| malformed_uid(&text);
        assert_eq!(found(format!("uid = {uuid} or owned-by {uuid}")), None);
        assert_eq!(found("namespace = shop and not (owned-by web-0)".to_owned()).as_deref(), Some("web-0"));
        assert_eq!(found(format!("uid in ({uuid}, foo)")).as_deref(), Some("foo"));
        assert_eq!((found("name = foo".to_owned()), found("uid =".to_owned())), (None, None));
    }
}
