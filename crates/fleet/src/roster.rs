//! Roster of a fleet: its live collectors and deliverers, the operator's drains and pins, and the move in progress.
//!
//! Each item is an entry of a NATS bucket, with a revision. Each process writes its own item again at intervals, which
//! changes the revision. So other processes see that this process is alive: they measure the time since the last change
//! by their own clocks.
//!
//! [`RosterItem::Move`] is a token that exists once: only the collector that holds it may move a shard.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use informer_hub_types::Shard;

use crate::partition::escaped_key;
use crate::wire::{DecodeError, put_bytes, put_integer, take_byte, take_integer, take_text};

const FORMAT: u8 = 1;
/// Maximum number of labels in a decoded [`Member`].
const MAX_LABELS: u64 = 1000;
/// Maximum number of sinks in a decoded [`Deliverer`].
const MAX_SINKS: u64 = 10_000;

/// Live collector of the fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// Name of the collector, unique to its process.
    pub name: String,
    /// Zone of the collector; empty if it has none.
    pub zone: String,
    /// Labels of the clusters that prefer collectors in this zone. A cluster prefers the zone if it has all of these
    /// labels. If the map is empty, no cluster prefers the zone.
    pub prefer: BTreeMap<String, String>,
    /// Fingerprint of the set of shards that the collector contends for. Collectors balance shards only with collectors
    /// that have the same fingerprint.
    pub contends_for: u64,
}

/// Live deliverer of the fleet: a process that delivers to sinks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deliverer {
    /// Name of the deliverer, unique to its process.
    pub name: String,
    /// Names of the sinks whose leases (the right to deliver to a sink) the deliverer contends for.
    pub sinks: BTreeSet<String>,
}

/// Move of a shard from one collector to another, not finished yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveInProgress {
    /// Shard that is moved.
    pub shard: Shard,
    /// Collector that gives the shard away. It holds the token of moves ([`RosterItem::Move`]).
    pub from: String,
    /// Collector that receives the shard.
    pub to: String,
}

/// Item of the roster: a live process, a setting of the operator, or the token of moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RosterItem {
    /// Live collector. The collector renews this item itself.
    Member(Member),
    /// A collector whose clusters must move to other collectors.
    Drain(String),
    /// A shard whose collector the operator has chosen.
    Pin {
        /// Shard that the chosen collector must own.
        shard: Shard,
        /// Name of the collector that the operator has chosen.
        collector: String,
    },
    /// Token that permits only one move at a time: the move in progress, or `None`.
    Move(Option<MoveInProgress>),
    /// Live deliverer. The deliverer renews this item itself.
    Deliverer(Deliverer),
}

/// Item of the roster with its revision in the bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RosterEntry {
    /// Live process, setting of the operator, or token of moves.
    pub item: RosterItem,
    /// Revision of the bucket directly after the write of this entry. It changes even if the same item is written
    /// again.
    pub revision: u64,
    /// Time of the write by the clock of the server, in milliseconds since the Unix epoch. For display only.
    pub written_millis: i64,
}

impl RosterItem {
    /// Returns the key of the item in the bucket.
    #[must_use]
    pub fn key(&self) -> String {
        let (kind, name) = match self {
            Self::Member(member) => ("member.", &member.name),
            Self::Drain(collector) => ("drain.", collector),
            Self::Pin { shard, .. } => ("pin.", &shard.to_string()),
            Self::Move(_) => return "move".to_owned(),
            Self::Deliverer(deliverer) => ("deliverer.", &deliverer.name),
        };
        kind.to_owned() + &escaped_key(name)
    }

    /// Returns the item in binary form.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT];
        match self {
            Self::Member(Member { name, zone, prefer, contends_for }) => {
                out.push(0);
                put_bytes(&mut out, name.as_bytes());
                put_bytes(&mut out, zone.as_bytes());
                put_integer(&mut out, prefer.len() as u64);
                for text in prefer.iter().flat_map(|(label, value)| [label, value]) {
                    put_bytes(&mut out, text.as_bytes());
                }
                put_integer(&mut out, *contends_for);
            }
            Self::Drain(collector) => {
                out.push(1);
                put_bytes(&mut out, collector.as_bytes());
            }
            Self::Pin { shard, collector } => {
                out.push(2);
                put_bytes(&mut out, shard.to_string().as_bytes());
                put_bytes(&mut out, collector.as_bytes());
            }
            Self::Move(None) => out.push(3),
            Self::Move(Some(MoveInProgress { shard, from, to })) => {
                out.push(4);
                for text in [&shard.to_string(), from, to] {
                    put_bytes(&mut out, text.as_bytes());
                }
            }
            Self::Deliverer(Deliverer { name, sinks }) => {
                out.push(5);
                put_bytes(&mut out, name.as_bytes());
                put_integer(&mut out, sinks.len() as u64);
                for sink in sinks {
                    put_bytes(&mut out, sink.as_bytes());
                }
            }
        }
        out
    }

    /// Decodes an item. Bytes after the item are ignored: a later version of the program may add fields.
    pub fn decode(mut value: Bytes) -> Result<Self, DecodeError> {
        let found = take_byte(&mut value, "format")?;
        if found > FORMAT {
            return Err(DecodeError::Newer { found, known: FORMAT });
        }
        match take_byte(&mut value, "kind")? {
            0 => {
                let (name, zone) = (take_text(&mut value, "collector")?, take_text(&mut value, "zone")?);
                let count = take_integer(&mut value, "number of labels")?;
                if count > MAX_LABELS {
                    return Err(DecodeError::Invalid("number of labels"));
                }
                let labels = (0..count).map(|_| Ok((take_text(&mut value, "label")?, take_text(&mut value, "value")?)));
                let prefer = labels.collect::<Result<_, DecodeError>>()?;
                let contends_for = take_integer(&mut value, "clusters")?;
                Ok(Self::Member(Member { name, zone, prefer, contends_for }))
            }
            1 => Ok(Self::Drain(take_text(&mut value, "collector")?)),
            2 => {
                let shard = take_shard(&mut value)?;
                Ok(Self::Pin { shard, collector: take_text(&mut value, "collector")? })
            }
            3 => Ok(Self::Move(None)),
            4 => {
                let shard = take_shard(&mut value)?;
                let (from, to) = (take_text(&mut value, "from")?, take_text(&mut value, "to")?);
                Ok(Self::Move(Some(MoveInProgress { shard, from, to })))
            }
            5 => {
                let name = take_text(&mut value, "deliverer")?;
                let count = take_integer(&mut value, "number of sinks")?;
                if count > MAX_SINKS {
                    return Err(DecodeError::Invalid("number of sinks"));
                }
                let sinks = (0..count).map(|_| take_text(&mut value, "sink")).collect::<Result<_, _>>()?;
                Ok(Self::Deliverer(Deliverer { name, sinks }))
            }
            _ => Err(DecodeError::Invalid("kind of a roster item")),
        }
    }
}

fn take_shard(value: &mut Bytes) -> Result<Shard, DecodeError> {
    take_text(value, "shard")?.parse().map_err(|_| DecodeError::Invalid("shard"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shard(name: &str) -> Shard {
        name.parse().unwrap()
    }

    fn items() -> Vec<RosterItem> {
        let prefer = BTreeMap::from([("region".to_owned(), "eu".to_owned())]);
        let moving = MoveInProgress { shard: shard("c.1/pods"), from: "a".to_owned(), to: "b".to_owned() };
        vec![
            RosterItem::Member(Member {
                name: "host.example-1".to_owned(),
                zone: "eu-west".to_owned(),
                prefer,
                contends_for: u64::MAX,
            }),
            RosterItem::Member(Member::default()),
            RosterItem::Drain("host.example-1".to_owned()),
            RosterItem::Pin { shard: shard("c.1"), collector: "a".to_owned() },
            RosterItem::Move(None),
            RosterItem::Move(Some(moving)),
            RosterItem::Deliverer(Deliverer {
                name: "d.1".to_owned(),
                sinks: ["a".to_owned(), "b.c".to_owned()].into(),
            }),
        ]
    }

    #[test]
    fn items_are_read_back_also_with_fields_of_later_versions() {
        for item in items() {
            let mut bytes = item.encode();
            assert_eq!(RosterItem::decode(bytes.clone().into()).unwrap(), item);
            bytes.push(7);
            assert_eq!(RosterItem::decode(bytes.into()).unwrap(), item);
        }
        assert!(matches!(RosterItem::decode(vec![2, 0].into()), Err(DecodeError::Newer { .. })));
        assert_eq!(items()[0].key(), "member.host=2Eexample-1");
        assert_eq!((items()[3].key(), items()[4].key()), ("pin.c=2E1".to_owned(), "move".to_owned()));
    }

    proptest! {
        #![proptest_config(informer_hub_testing::properties(256))]

        #[test]
        fn damaged_items_are_errors(which in 0..7_usize, at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()) {
            let mut bytes = items().swap_remove(which).encode();
            let place = at.index(bytes.len());
            bytes[place] = byte;
            bytes.truncate(cut.index(bytes.len() + 1));
            let _ = RosterItem::decode(bytes.into());
        }
    }
}
