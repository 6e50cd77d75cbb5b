//! Partitions of the log, and their NATS subjects.

use std::fmt;
use std::fmt::Write as _;

use informer_hub_types::{ClusterName, Gvr, Shard, ShardName, check_name};

/// Part of the log with its own order: the objects of one informer, which watches one resource of one cluster.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Partition {
    /// Cluster that the objects are in.
    pub cluster: ClusterName,
    /// Resource of the objects.
    pub resource: Gvr,
    /// Fingerprint of the informer's selectors and stored fields. Informers of one resource that differ in these have
    /// separate partitions.
    pub selection: u64,
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of cluster {} (selection {:016x})", self.resource, self.cluster, self.selection)
    }
}

/// NATS subjects of one fleet's log: `<fleet>.log.<cluster>.<resource>-<selection>`.
///
/// Cluster and resource are escaped, so that a subject can be decoded, and two partitions never share one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subjects {
    fleet: String,
}

/// Error for an unusable fleet name; the operator's configuration is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "fleet name {0:?} is not valid; use 1 to 63 characters out of A-Z, a-z, 0-9, '_' and '-', the first a letter or a digit"
)]
pub struct InvalidFleetName(
    /// The unusable name.
    pub String,
);

impl Subjects {
    /// Checks the name and creates the subjects of a fleet.
    pub fn new(fleet: &str) -> Result<Self, InvalidFleetName> {
        // A dot would end the token, and is not allowed in the names of streams and buckets.
        if check_name("fleet name", fleet).is_err() || fleet.contains('.') {
            return Err(InvalidFleetName(fleet.to_owned()));
        }
        Ok(Self { fleet: fleet.to_owned() })
    }

    /// Returns the fleet's name.
    #[must_use]
    pub fn fleet(&self) -> &str {
        &self.fleet
    }

    /// Returns the subject of a partition.
    #[must_use]
    pub fn of(&self, partition: &Partition) -> String {
        let mut subject = format!("{}.log.", self.fleet);
        escape(partition.cluster.as_str(), &mut subject);
        subject.push('.');
        escape(&partition.resource.long(), &mut subject);
        let _ = write!(subject, "-{:016x}", partition.selection);
        subject
    }

    /// Returns the subject filter for all partitions of the fleet.
    #[must_use]
    pub fn all(&self) -> String {
        format!("{}.log.>", self.fleet)
    }

    /// Returns a subject for a shard, from which buckets derive the keys of their entries about the shard. No message
    /// of the log has this subject.
    #[must_use]
    pub fn of_shard(&self, shard: &Shard) -> String {
        let mut subject = format!("{}.log.", self.fleet);
        escape(shard.cluster.as_str(), &mut subject);
        if let Some(name) = &shard.name {
            subject.push('.');
            subject.push_str(name.as_str());
        }
        subject
    }

    /// Returns the shard of a subject of [`Subjects::of_shard`]; `None` for other subjects.
    #[must_use]
    pub fn shard(&self, subject: &str) -> Option<Shard> {
        let rest = subject.strip_prefix(&self.fleet)?.strip_prefix(".log.")?;
        let (cluster, name) = rest.split_once('.').map_or((rest, None), |(cluster, name)| (cluster, Some(name)));
        let cluster = ClusterName::new(unescape(cluster)?).ok()?;
        Some(Shard { cluster, name: name.map(ShardName::new).transpose().ok()? })
    }

    /// Returns the partition of a subject; `None` if it is not a subject of this fleet's log.
    #[must_use]
    pub fn partition(&self, subject: &str) -> Option<Partition> {
        let rest = subject.strip_prefix(&self.fleet)?.strip_prefix(".log.")?;
        let (cluster, resource) = rest.split_once('.')?;
        let cluster = ClusterName::new(unescape(cluster)?).ok()?;
        let (resource, selection) = resource.rsplit_once('-')?;
        let digits = selection.bytes().filter(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')).count();
        if digits != 16 || selection.len() != 16 {
            return None;
        }
        let selection = u64::from_str_radix(selection, 16).ok()?;
        let resource = unescape(resource)?;
        let mut parts = resource.splitn(3, '.');
        let (plural, version, group) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Partition { cluster, resource: Gvr::new(group, version, plural), selection })
    }
}

/// Appends `text` to `out`. Writes each byte except ASCII letters, digits, `-` and `_` as `%` and two hexadecimal
/// digits.
pub(crate) fn escape(text: &str, out: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

/// Returns `text` as part of a bucket key or of the name of a stored object: as [`escape`] writes it, but with `=`
/// instead of `%`, which is not allowed there.
pub(crate) fn escaped_key(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    escape(text, &mut out);
    out.replace('%', "=")
}

fn unescape(token: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(token.len());
    let mut rest = token.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        match first {
            b'%' => {
                let (digits, tail) = rest.split_at_checked(2)?;
                bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
                rest = tail;
            }
            // A further token: not a subject of a partition.
            b'.' => return None,
            other => bytes.push(*other),
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(informer_hub_testing::properties(256))]

        #[test]
        fn subject_reads_back_and_has_four_tokens(
            cluster in "[A-Za-z0-9][A-Za-z0-9._-]{0,20}",
            resource in "[a-z]{1,8}",
            version in "v[1-9](beta1)?",
            group in "([a-z]{1,5}(\\.[a-z*> -]{1,5}){0,3})?",
            selection in any::<u64>(),
        ) {
            let subjects = Subjects::new("prod").unwrap();
            let partition = Partition {
                cluster: ClusterName::new(cluster).unwrap(),
                resource: Gvr::new(&group, &version, &resource),
                selection,
            };
            let subject = subjects.of(&partition);
            prop_assert_eq!(subject.split('.').count(), 4);
            prop_assert!(!subject.contains([' ', '*', '>']));
            prop_assert_eq!(subjects.partition(&subject), Some(partition));
        }

        #[test]
        fn foreign_subject_is_no_partition(subject in "(prod\\.log\\.)?[a-z%.0-9]{0,20}(-[0-9a-f]{16})?") {
            let subjects = Subjects::new("prod").unwrap();
            if let Some(partition) = subjects.partition(&subject) {
                prop_assert_eq!(subjects.partition(&subjects.of(&partition)), Some(partition));
            }
        }
    }

    #[test]
    fn names_that_break_subjects_or_buckets_are_invalid() {
        for name in ["", "a.b", "a b", "*", ">", "-a", "é"] {
            assert_eq!(Subjects::new(name), Err(InvalidFleetName(name.to_owned())));
        }
    }

    #[test]
    fn subject_of_a_shard_reads_back() {
        let subjects = Subjects::new("prod").unwrap();
        for (shard, subject) in [("eu.1", "prod.log.eu%2E1"), ("eu/pods", "prod.log.eu.pods")] {
            let shard = shard.parse().unwrap();
            assert_eq!(subjects.of_shard(&shard), subject);
            assert_eq!(subjects.shard(subject), Some(shard));
        }
        for foreign in ["prod2.log.eu", "prod.log", "prod.log.eu.", "prod.log.eu.a.b", "prod.log.eu.A"] {
            assert_eq!(subjects.shard(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn subject_of_another_fleet_or_depth_is_no_partition() {
        let subjects = Subjects::new("prod").unwrap();
        assert!(subjects.partition("prod.log.eu.pods%2Ev1%2E-00000000000000a7").is_some());
        for foreign in [
            "prod2.log.eu.pods%2Ev1%2E-00000000000000a7",
            "prod.log.eu",
            "prod.log.eu.pods%2Ev1%2E",
            "prod.log.eu.pods%2Ev1%2E-a7",
            "prod.log.eu.pods%2Ev1%2E-+0000000000000a7",
            "prod.log.eu.pods%2Ev1%2E.more-00000000000000a7",
            "prod.log.eu.pods%2-00000000000000a7",
        ] {
            assert_eq!(subjects.partition(foreign), None, "{foreign}");
        }
    }
}
