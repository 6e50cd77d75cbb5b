//! Document that describes one cluster. The cluster's collector writes it, and serving replicas read it instead of
//! asking the apiserver.
//!
//! # Format
//! One byte with the format's version, then the fields, compressed by [`pack`].

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use informer_hub_types::{ApiResource, Catalogue, GroupOffer, Gvr, Offer, ResourceRef, VersionOffer};

use super::entry::{pack, unpack_bytes};
use super::wire::{DecodeError, put_bytes, put_integer, take_byte, take_integer, take_text};

const FORMAT: u8 = 1;
/// Largest encoded document, in bytes. NATS accepts messages of 1 MiB by default.
const MAX_DOCUMENT: usize = 512 << 10;
/// Maximum number of encoded entries of `resolved`; further ones are left out. A configuration names far fewer
/// resources.
const MAX_RESOLVED: usize = 4096;
/// Longest message of a failure, in characters.
const MAX_MESSAGE: usize = 300;

/// Document about a cluster: its apiserver, resources and failures, as its collector knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterDocument {
    /// Epoch, the term number, of the owner that wrote the document.
    pub epoch: u64,
    /// Address of the apiserver; empty if it has not answered yet.
    pub address: String,
    /// Version of the apiserver, if it reports one.
    pub version: Option<String>,
    /// Resources that discovery found, by their names in the collector's configuration, such as `pods`.
    pub resolved: BTreeMap<ResourceRef, ApiResource>,
    /// All resources that the cluster serves, if the collector discovers them.
    pub catalogue: Option<Arc<Catalogue>>,
    /// Failures of the informers whose last request to the apiserver failed, by their resource and the fingerprint of
    /// their selectors and stored fields.
    pub failures: BTreeMap<(Gvr, u64), SourceFailure>,
}

/// Failure of the last request of an informer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFailure {
    /// Kind of the failure.
    pub kind: FailureKind,
    /// Time of the first failed request after the last successful one, in milliseconds since 1970 by the collector's clock.
    pub since: u64,
    /// Description of the failure, for operators.
    pub message: String,
}

/// Kind of a [`SourceFailure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// No answer, or an error of the apiserver.
    Unreachable,
    /// Missing or invalid credentials.
    Unauthorized,
    /// No permission.
    Forbidden,
    /// The resource does not exist.
    NotFound,
}

const KINDS: [FailureKind; 4] =
    [FailureKind::Unreachable, FailureKind::Unauthorized, FailureKind::Forbidden, FailureKind::NotFound];

impl ClusterDocument {
    /// Returns the binary form. If it would exceed 512 KiB, the catalogue is left out.
    ///
    /// # Errors
    /// The binary form exceeds 512 KiB even without the catalogue.
    pub fn encode(&self) -> Result<Bytes, DecodeError> {
        let encoded = self.encode_with(self.catalogue.as_deref());
        if encoded.len() <= MAX_DOCUMENT {
            return Ok(encoded.into());
        }
        let encoded = self.encode_with(None);
        if encoded.len() <= MAX_DOCUMENT {
            Ok(encoded.into())
        } else {
            Err(DecodeError::TooLarge("document of the cluster", MAX_DOCUMENT))
        }
    }

    fn encode_with(&self, catalogue: Option<&Catalogue>) -> Vec<u8> {
        let mut out = Vec::new();
        put_integer(&mut out, self.epoch);
        put_bytes(&mut out, self.address.as_bytes());
        put_optional(&mut out, self.version.as_deref());
        put_integer(&mut out, self.resolved.len().min(MAX_RESOLVED) as u64);
        for (written, resource) in self.resolved.iter().take(MAX_RESOLVED) {
            put_bytes(&mut out, written.resource.as_bytes());
            put_optional(&mut out, written.version.as_deref());
            put_optional(&mut out, written.group.as_deref());
            put_gvr(&mut out, &resource.gvr);
            put_bytes(&mut out, resource.kind.as_bytes());
            put_flag(&mut out, resource.namespaced);
        }
        put_integer(&mut out, self.failures.len() as u64);
        for ((gvr, selection), failure) in &self.failures {
            put_gvr(&mut out, gvr);
            put_integer(&mut out, *selection);
            put_integer(&mut out, KINDS.iter().position(|kind| *kind == failure.kind).unwrap_or(0) as u64);
            put_integer(&mut out, failure.since);
            let message: String = failure.message.chars().take(MAX_MESSAGE).collect();
            put_bytes(&mut out, message.as_bytes());
        }
        put_flag(&mut out, catalogue.is_some());
        if let Some(catalogue) = catalogue {
            put_catalogue(&mut out, catalogue);
        }
        let mut encoded = vec![FORMAT];
        encoded.extend_from_slice(&pack(&out, true));
        encoded
    }

    /// Decodes a document from its binary form.
    pub fn decode(from: &Bytes) -> Result<Self, DecodeError> {
        let mut rest = from.clone();
        let found = take_byte(&mut rest, "format")?;
        if found > FORMAT {
            return Err(DecodeError::Newer { found, known: FORMAT });
        }
        let mut from = unpack_bytes(&rest)?;
        let from = &mut from;
        let (epoch, address) = (take_integer(from, "epoch")?, take_text(from, "address")?);
        let version = take_optional(from, "version")?;
        let mut document = Self { epoch, address, version, ..Self::default() };
        for _ in 0..take_integer(from, "number of resources")? {
            let resource = take_text(from, "name")?.into();
            let version = take_optional(from, "version")?.map(Into::into);
            let group = take_optional(from, "group")?.map(Into::into);
            let (gvr, kind) = (take_gvr(from)?, take_text(from, "kind")?.into());
            let resolved = ApiResource { gvr, kind, namespaced: take_flag(from, "scope")? };
            document.resolved.insert(ResourceRef { resource, version, group }, resolved);
        }
        for _ in 0..take_integer(from, "number of failures")? {
            let key = (take_gvr(from)?, take_integer(from, "selection")?);
            let kind = usize::try_from(take_integer(from, "kind of failure")?).unwrap_or(usize::MAX);
            // A kind that a later version added is read as unreachable.
            let kind = KINDS.get(kind).copied().unwrap_or(FailureKind::Unreachable);
            let (since, message) = (take_integer(from, "time")?, take_text(from, "message")?);
            document.failures.insert(key, SourceFailure { kind, since, message });
        }
        if take_flag(from, "catalogue")? {
            document.catalogue = Some(Arc::new(take_catalogue(from)?));
        }
        Ok(document)
    }
}

fn put_optional(out: &mut Vec<u8>, text: Option<&str>) {
    put_flag(out, text.is_some());
    if let Some(text) = text {
        put_bytes(out, text.as_bytes());
    }
}

fn take_optional(from: &mut Bytes, field: &'static str) -> Result<Option<String>, DecodeError> {
    Ok(if take_flag(from, field)? { Some(take_text(from, field)?) } else { None })
}

fn put_flag(out: &mut Vec<u8>, flag: bool) {
    out.push(u8::from(flag));
}

fn take_flag(from: &mut Bytes, field: &'static str) -> Result<bool, DecodeError> {
    match take_byte(from, field)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(DecodeError::Invalid(field)),
    }
}

fn put_gvr(out: &mut Vec<u8>, gvr: &Gvr) {
    for part in [&gvr.group, &gvr.version, &gvr.resource] {
        put_bytes(out, part.as_bytes());
    }
}

fn take_gvr(from: &mut Bytes) -> Result<Gvr, DecodeError> {
    let (group, version) = (take_text(from, "group")?, take_text(from, "version")?);
    Ok(Gvr::new(&group, &version, &take_text(from, "resource")?))
}

fn put_catalogue(out: &mut Vec<u8>, catalogue: &Catalogue) {
    put_integer(out, catalogue.groups.len() as u64);
    for group in &catalogue.groups {
        put_bytes(out, group.name.as_bytes());
        put_integer(out, group.versions.len() as u64);
        for version in &group.versions {
            put_bytes(out, version.name.as_bytes());
            put_flag(out, version.is_stale);
            put_integer(out, version.resources.len() as u64);
            for offer in &version.resources {
                put_bytes(out, offer.plural.as_bytes());
                put_bytes(out, offer.singular.as_bytes());
                put_bytes(out, offer.kind.as_bytes());
                put_flag(out, offer.namespaced);
                put_integer(out, offer.short_names.len() as u64);
                offer.short_names.iter().for_each(|name| put_bytes(out, name.as_bytes()));
            }
        }
    }
}

/// Reads a count and that many items. Every item takes at least one byte, so a count that is too large fails at the end
/// of the input.
fn take_all<T>(
    from: &mut Bytes,
    field: &'static str,
    mut take: impl FnMut(&mut Bytes) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let count = take_integer(from, field)?;
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(take(from)?);
    }
    Ok(all)
}

fn take_catalogue(from: &mut Bytes) -> Result<Catalogue, DecodeError> {
    let offer = |from: &mut Bytes| {
        let (plural, singular) = (take_text(from, "plural")?.into(), take_text(from, "singular")?.into());
        let (kind, namespaced) = (take_text(from, "kind")?.into(), take_flag(from, "scope")?);
        let short_names = take_all(from, "short names", |from| Ok(take_text(from, "short name")?.into()))?;
        Ok(Offer { plural, singular, short_names, kind, namespaced })
    };
    let version = |from: &mut Bytes| {
        let (name, is_stale) = (take_text(from, "version")?.into(), take_flag(from, "version")?);
        Ok(VersionOffer { name, is_stale, resources: take_all(from, "resources", offer)? })
    };
    let group = |from: &mut Bytes| {
        Ok(GroupOffer { name: take_text(from, "group")?.into(), versions: take_all(from, "versions", version)? })
    };
    Ok(Catalogue { groups: take_all(from, "groups", group)? })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn document(names: &[String], epoch: u64) -> ClusterDocument {
        let mut document = ClusterDocument { epoch, address: "https://a:6443".into(), ..ClusterDocument::default() };
        let mut resources = Vec::new();
        for (at, name) in names.iter().enumerate() {
            let gvr = Gvr::new("apps", "v1", name);
            let resource = ApiResource { gvr: gvr.clone(), kind: "Kind".into(), namespaced: at % 2 == 0 };
            let group = (at % 3 == 0).then(|| "apps".into());
            let written = ResourceRef { resource: name.as_str().into(), version: None, group };
            document.resolved.insert(written, resource);
            let kind = KINDS[at % KINDS.len()];
            let failure = SourceFailure { kind, since: epoch, message: format!("no {name}") };
            document.failures.insert((gvr, at as u64), failure);
            let (plural, singular) = (name.as_str().into(), "".into());
            let short_names = vec!["k".into(); at % 3];
            resources.push(Offer { plural, singular, short_names, kind: "Kind".into(), namespaced: true });
        }
        document.version = names.first().cloned();
        let versions = vec![VersionOffer { name: "v1".into(), is_stale: epoch.is_multiple_of(2), resources }];
        document.catalogue = Some(Arc::new(Catalogue { groups: vec![GroupOffer { name: "apps".into(), versions }] }));
        document
    }

    proptest! {
        #![proptest_config(informer_hub_testing::properties(256))]

        #[test]
        fn documents_read_back(names in prop::collection::vec("[a-z]{1,9}", 0..9), epoch in any::<u64>()) {
            let document = document(&names, epoch);
            prop_assert_eq!(ClusterDocument::decode(&document.encode().unwrap()), Ok(document));
        }

        #[test]
        fn damaged_documents_never_panic(
            names in prop::collection::vec("[a-z]{1,9}", 0..9),
            cut in any::<prop::sample::Index>(),
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        ) {
            let mut bytes = document(&names, 7).encode().unwrap().to_vec();
            for (at, with) in flips {
                let at = at.index(bytes.len());
                bytes[at] ^= with;
            }
            bytes.truncate(cut.index(bytes.len() + 1));
            let _ = ClusterDocument::decode(&bytes.into());
        }
    }

    #[test]
    fn document_of_a_later_version_is_read_without_its_new_fields_or_refused() {
        let document = document(&["pods".to_owned()], 7);
        let plain = unpack_bytes(&document.encode().unwrap().slice(1..)).unwrap();
        let with_field = [&[FORMAT][..], &pack(&[&plain[..], b"field"].concat(), true)].concat();
        assert_eq!(ClusterDocument::decode(&with_field.into()), Ok(document.clone()));
        let later = [&[FORMAT + 1], &document.encode().unwrap()[1..]].concat();
        let refused = Err(DecodeError::Newer { found: FORMAT + 1, known: FORMAT });
        assert_eq!(ClusterDocument::decode(&later.into()), refused);
    }

    #[test]
    fn large_catalogue_is_left_out() {
        let mut state = 1_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            format!("{state:016x}")
        };
        let mut large = document(&["pods".to_owned()], 1);
        let names: Vec<_> = (0..60_000).map(|_| random()).collect();
        large.catalogue = document(&names, 1).catalogue;
        let read = ClusterDocument::decode(&large.encode().unwrap()).unwrap();
        assert_eq!(read, ClusterDocument { catalogue: None, ..large });
    }
}
