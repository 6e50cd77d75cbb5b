//! Continue tokens of queries: signed positions of answers on pinned snapshots, checked when a query continues.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use smol_str::SmolStr;

use super::builder::Query;
use super::error::QueryError;
use informer_hub_types::{Gvr, ObjectKey};

/// Position of an answer's last object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Position {
    /// Cluster of the object.
    pub(super) cluster: SmolStr,
    /// Key of the object.
    pub(super) key: ObjectKey,
}

/// Secret key that signs continue tokens. Each process has its own, because its tokens need its pinned snapshots.
#[derive(Clone)]
pub struct TokenKey([u8; 32]);

/// Hash of the query that a token belongs to: the resource, clusters, informers, reader, condition, order and output.
/// The limit is left out, so that a continued query may have another limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fingerprint([u8; 16]);

/// First byte of a token: its format version.
const VERSION: u8 = 1;
const TAG: usize = 16;
/// Maximum length of a token. Tokens are shorter, because Kubernetes limits the length of the names in them. Longer
/// texts are rejected without decoding.
const MAX_TEXT: usize = 2_048;

impl Fingerprint {
    /// Hashes the question, clusters and reader of a query of a resource.
    #[must_use]
    pub fn new(query: &Query, resource: &Gvr) -> Self {
        let question = &query.question;
        let parts = (&question.condition, &question.order, &question.output, &query.clusters, &query.scope, resource);
        let reader = query.reader.as_ref().map(|(name, _)| name);
        let digest = Sha256::digest(format!("{parts:?} {reader:?}").as_bytes());
        let mut half = [0; 16];
        half.copy_from_slice(&digest[..16]);
        Self(half)
    }
}

impl TokenKey {
    /// Creates a key from random bytes, which must be unpredictable.
    #[must_use]
    pub fn new(key: [u8; 32]) -> Self {
        Self(key)
    }

    fn mac(&self, text: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("a key of any length will do");
        mac.update(text);
        mac
    }

    /// Returns a signed token for a position in an answer. `pinned` is the number of the pinned snapshot, and `of` the
    /// hash of the query.
    #[must_use]
    pub fn sign(&self, pinned: u64, of: Fingerprint, position: &Position) -> SmolStr {
        let cluster = position.cluster.as_bytes();
        let mut text = vec![VERSION];
        text.extend(pinned.to_be_bytes());
        text.extend(of.0);
        // A cluster name has at most 63 characters.
        text.push(u8::try_from(cluster.len()).unwrap_or(u8::MAX));
        text.extend(cluster);
        text.extend(position.key.as_str().as_bytes());
        let tag = self.mac(&text).finalize().into_bytes();
        text.extend(&tag[..TAG]);
        BASE64.encode(text).into()
    }

    /// Verifies a token. Returns the number of the pinned snapshot and the position.
    ///
    /// # Errors
    /// [`QueryError::ForgedToken`]; [`QueryError::ForeignToken`] if it belongs to another question.
    pub fn verify(&self, token: &str, of: Fingerprint) -> Result<(u64, Position), QueryError> {
        let text = (token.len() <= MAX_TEXT).then(|| BASE64.decode(token).ok()).flatten();
        let text = text.ok_or(QueryError::ForgedToken)?;
        let (text, tag) = text.split_at_checked(text.len().saturating_sub(TAG)).ok_or(QueryError::ForgedToken)?;
        self.mac(text).verify_truncated_left(tag).map_err(|_| QueryError::ForgedToken)?;
        if tag.len() != TAG {
            return Err(QueryError::ForgedToken);
        }
        let (pinned, theirs, position) = parse(text).ok_or(QueryError::ForgedToken)?;
        if theirs == of { Ok((pinned, position)) } else { Err(QueryError::ForeignToken) }
    }
}

fn parse(text: &[u8]) -> Option<(u64, Fingerprint, Position)> {
    let (version, rest) = text.split_first()?;
    let (pinned, rest) = rest.split_first_chunk::<8>()?;
    let (of, rest) = rest.split_first_chunk::<16>()?;
    let (length, rest) = rest.split_first()?;
    let (cluster, key) = rest.split_at_checked(usize::from(*length))?;
    let cluster = std::str::from_utf8(cluster).ok()?.into();
    let key = std::str::from_utf8(key).ok()?.parse().ok()?;
    (*version == VERSION).then_some((u64::from_be_bytes(*pinned), Fingerprint(*of), Position { cluster, key }))
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenKey")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::pods;
    use informer_hub_access::Visibility;

    fn position(key: &str) -> Position {
        Position { cluster: "eu".into(), key: key.parse().unwrap() }
    }

    fn of(query: &Query) -> Fingerprint {
        Fingerprint::new(query, &pods().gvr)
    }

    #[test]
    fn token_verifies_for_its_own_question_with_any_limit() {
        let key = TokenKey::new([7; 32]);
        let query = Query::by_namespace("shop");
        let limited = query.clone().limit(5.try_into().unwrap());
        let token = key.sign(12, of(&query), &position("shop/web"));
        assert_eq!(key.verify(&token, of(&limited)), Ok((12, position("shop/web"))));
        for other in [Query::list(), Query::by_namespace("pay"), query.clone().count(), query.clone().across_clusters()]
        {
            let expected =
                if of(&other) == of(&query) { Ok((12, position("shop/web"))) } else { Err(QueryError::ForeignToken) };
            assert_eq!(key.verify(&token, of(&other)), expected);
        }
        assert_eq!(key.verify(&token, of(&Query::list())), Err(QueryError::ForeignToken));
        let nodes = Fingerprint::new(&query, &Gvr::new("", "v1", "nodes"));
        assert_eq!(key.verify(&token, nodes), Err(QueryError::ForeignToken));
        assert_eq!(TokenKey::new([8; 32]).verify(&token, of(&query)), Err(QueryError::ForgedToken));
        assert!(!format!("{key:?}").contains('7'));
    }

    #[test]
    fn token_is_its_reader_s_own() {
        let key = TokenKey::new([7; 32]);
        let of_reader = |name: &str| of(&Query::list().visible_to(name, Visibility::nothing()));
        let token = key.sign(12, of_reader("ann"), &position("shop/web"));
        assert!(key.verify(&token, of_reader("ann")).is_ok());
        for other in [of_reader("bob"), of(&Query::list())] {
            assert_eq!(key.verify(&token, other), Err(QueryError::ForeignToken));
        }
    }

    proptest! {
        #![proptest_config(crate::testing::properties(256))]

        #[test]
        fn modified_token_is_forged(at in 0_usize..1000, bit in 0_u8..6, cut in 0_usize..1000) {
            let key = TokenKey::new([7; 32]);
            let query = Query::list();
            let token = key.sign(1, of(&query), &position("shop/web"));
            let mut bytes = BASE64.decode(&token).unwrap();
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            prop_assert_eq!(key.verify(&BASE64.encode(&bytes), of(&query)), Err(QueryError::ForgedToken));
            let cut = cut % token.len();
            prop_assert_eq!(key.verify(&token[..cut], of(&query)), Err(QueryError::ForgedToken));
        }

        #[test]
        fn arbitrary_text_is_forged(text in ".{0,100}") {
            prop_assert_eq!(TokenKey::new([7; 32]).verify(&text, of(&Query::list())), Err(QueryError::ForgedToken));
        }
    }

    #[test]
    fn oversized_token_is_forged() {
        let text = "A".repeat(1 << 20);
        assert_eq!(TokenKey::new([7; 32]).verify(&text, of(&Query::list())), Err(QueryError::ForgedToken));
    }
}
