//! Identifiers of requests.

use parking_lot::Mutex;
use rand::Rng;
use rand::rngs::StdRng;

use informer_hub_types::rng;

/// Generator of request identifiers.
#[derive(Debug)]
pub struct AuditIds(Mutex<StdRng>);

impl Default for AuditIds {
    fn default() -> Self {
        Self(Mutex::new(rng::rng()))
    }
}

impl AuditIds {
    /// Returns a new random UUID (version 4).
    #[must_use]
    pub fn next(&self) -> String {
        let random: u128 = self.0.lock().random();
        let uuid = random & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
        let hex = format!("{uuid:032x}");
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn identifiers_are_distinct_uuids_of_version_4() {
        let ids = AuditIds::default();
        let all: BTreeSet<_> = (0..1000).map(|_| ids.next()).collect();
        assert_eq!(all.len(), 1000);
        for id in all {
            let parts: Vec<_> = id.split('-').map(str::len).collect();
            assert_eq!(parts, [8, 4, 4, 4, 12], "{id}");
            assert!(id.as_bytes()[14] == b'4' && b"89ab".contains(&id.as_bytes()[19]), "{id}");
        }
    }
}
