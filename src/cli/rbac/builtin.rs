//! What rights call a resource, where no cluster is asked.

use informer_hub_types::{ResourceRef, built_in};

/// A resource as rights name it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Named {
    pub(super) group: String,
    pub(super) plural: String,
    pub(super) namespaced: bool,
    /// Nobody has confirmed it: the text of the configuration was taken at its word.
    pub(super) taken_as_written: bool,
}

/// What a text of the configuration means without a cluster to ask. What is not built in is taken at its word where it
/// has a group: as a plural, in namespaces if some are configured.
///
/// `None`: a bare name that Kubernetes does not bring, whose group nobody knows.
pub(super) fn named(written: &ResourceRef, has_namespaces: bool) -> Option<Named> {
    if let Some(found) = built_in(written) {
        let (group, plural) = (found.group.to_owned(), found.plural.to_owned());
        return Some(Named { group, plural, namespaced: found.namespaced, taken_as_written: false });
    }
    let (group, plural) = (written.group.as_ref()?.to_string(), written.resource.to_string());
    Some(Named { group, plural, namespaced: has_namespaces, taken_as_written: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_built_in_is_taken_as_written_where_it_has_a_group() {
        let of = |text: &str| {
            let named = named(&text.parse().unwrap(), false)?;
            Some((named.group, named.plural, named.namespaced, named.taken_as_written))
        };
        assert_eq!(of("po"), Some((String::new(), "pods".to_owned(), true, false)));
        assert_eq!(of("widgets"), None);
        assert_eq!(of("pods.v1"), of("pods"), "the core group, written out");
        assert_eq!(of("widgets.example.com"), Some(("example.com".to_owned(), "widgets".to_owned(), false, true)));
    }
}
