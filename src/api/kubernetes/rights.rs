//! Rights of readers: the one place that decides what a request may see.
//!
//! The port has authenticated the request before. A reader may see every object except Secrets, unless the
//! configuration serves them (`hub.read_api.serve_secrets`).

use informer_hub_types::Gvr;

/// Rights of the reader of one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rights {
    /// Whether Secrets are visible.
    pub(super) secrets: bool,
}

impl Rights {
    /// Returns whether the reader may see objects of a resource. Discovery lists only resources that it may see.
    pub(super) fn may_see(self, gvr: &Gvr) -> bool {
        self.secrets || !(gvr.group.is_empty() && gvr.resource == "secrets")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_visible_only_if_they_are_served() {
        let (secrets, pods) = (Gvr::new("", "v1", "secrets"), Gvr::new("", "v1", "pods"));
        let sealed = Gvr::new("example.com", "v1", "secrets");
        let without = Rights { secrets: false };
        assert!(!without.may_see(&secrets) && without.may_see(&pods) && without.may_see(&sealed));
        assert!(Rights { secrets: true }.may_see(&secrets));
    }
}
