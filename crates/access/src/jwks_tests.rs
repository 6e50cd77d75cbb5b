//! Tests of key sets. The RSA signatures in the constants were made with OpenSSL.

use super::*;

const MODULUS: &str = "t6dV4OZGlMSM2iOy_IOoDsopofgmD6qBgIOy7OnGlTiy7ak9pMldkaXin3MxXV9ue7AnTL4EXsw9Oq9LKGddNfQkNCFN9ncE9U2l\
     tTYGOi574u_JYyappTgFGuUZLfbq5RfURWmuREm7DJ7wCv6uC4aWEsjfcD31UhoAh60f0bLKj1zZZVWDA-azbxDxJ9TA-fr3GM6u\
     GMigjzJBpfLy8SK5XPb1FzDqyUgU93Kc-SMQBPOSE5Bo4f9GiPBRR9wY0jZBZKu55Ae_t1p4dsF6aSYAdFuzbTlfqvgrzbkXwpdl\
     WDdhMr4XRRFdBqBIMtD5PHGLB7gYE5Lsd66Z7PNVMw";
const RS256: &str = "qfFrxTDLHxj2CZoPgTUIzUmOFS-yOATqeCkItVn3mygyVDrX60yFQgFpE6Jev8ABjTPOq3UqNr-IIvqdxeSBWbpS40akIIhR6JlQ\
     zqW4Z_bqqY3AaPD6V5nllWr_JCdpGZgQgU1T6hwxOAUJWgXTlMfyu21Q5Jl-J4SE7Jqwo7a-zFV8xhUgqvQFL-yCBwh68PVzwZYl\
     8EgAARYhZFlrMEPoIMZPupyC3CK05dA83771QFNXxGmH1iGrulBV_7N65adIZKteLGeJadvNBN9hqHR1UgPwDjCVTbZjfQXIfCZB\
     tuCPySBtjLDrhogPfKVbKGYiMFwHtO_WkAa-Au1Ejw";
const PS384: &str = "t6EWBKKK-ka37KDptJKwHh9n3F8asevaisLCgmAnsDAs80zhIE0yZDDUpyu26ksxmSwPmxVLBsGyYuurITg1j2uka72Yk1-n9YX6\
     69BmXpu924Oj2plJ6pC_8NqYx8HJW8hs_rUwqaj-iFay-sq_Nmcb41RjBwc7CUqsxv0FMzLmLHnZTcszNngXtSIJCQ_7IZQBP-o1\
     YczZzn6BpkKJdoGMSirk7nFMcseC2Dj4J3NZ338yWaB-798NESO4wr2ECLgQBO_nGyGgcz56RQJzfJH63TtijZSASKeoKvNZWKqf\
     KshtmGslSghU83tv2rDRXR4lgGo9CYlnW0tYwCv4gQ";
const SIGNED: &[u8] = b"header.claims";

fn set(keys: &str) -> Option<KeySet> {
    KeySet::parse(format!("{{\"keys\":[{keys}]}}").as_bytes())
}

fn rsa(rest: &str) -> String {
    format!("{{\"kty\":\"RSA\",\"n\":\"{MODULUS}\",\"e\":\"AQAB\"{rest}}}")
}

fn bytes(text: &str) -> Vec<u8> {
    URL_SAFE_NO_PAD.decode(text).unwrap()
}

#[test]
fn rsa_signatures_are_verified() {
    let keys = set(&rsa("")).unwrap();
    let verify = |algorithm, signature: &str| keys.verify(None, algorithm, SIGNED, &bytes(signature));
    assert!(verify(Algorithm::Rs256, RS256) && verify(Algorithm::Ps384, PS384));
    assert!(!verify(Algorithm::Rs384, RS256) && !verify(Algorithm::Ps256, PS384) && !verify(Algorithm::Rs256, PS384));
    assert!(!verify(Algorithm::Es256, RS256) && !verify(Algorithm::EdDsa, RS256), "a key of another kind");
    assert!(!keys.verify(None, Algorithm::Rs256, b"header.claimz", &bytes(RS256)));
}

#[test]
fn key_is_used_by_its_name_and_algorithm_only() {
    let named = set(&rsa(",\"kid\":\"a\",\"use\":\"sig\",\"alg\":\"RS256\"")).unwrap();
    let verify = |name, algorithm, signature: &str| named.verify(name, algorithm, SIGNED, &bytes(signature));
    assert!(named.has("a") && !named.has("b"));
    assert!(verify(Some("a"), Algorithm::Rs256, RS256) && verify(None, Algorithm::Rs256, RS256));
    assert!(!verify(Some("b"), Algorithm::Rs256, RS256));
    assert!(!verify(Some("a"), Algorithm::Ps384, PS384), "the key is for another algorithm");
}

#[test]
fn unusable_keys_are_left_out() {
    let (public, short) = (rsa(""), "{\"kty\":\"RSA\",\"n\":\"AQAB\",\"e\":\"AQAB\"}");
    for bad in [
        short,
        "{\"kty\":\"oct\",\"k\":\"c2VjcmV0\"}",
        "{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"AQAB\",\"y\":\"AQAB\"}",
        "{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"AQAB\"}",
        "{\"kty\":\"EC\",\"crv\":\"P-521\"}",
        &rsa(",\"use\":\"enc\""),
        "{}",
        "7",
    ] {
        assert!(set(bad).is_none(), "{bad}");
        assert_eq!(set(&format!("{bad},{public}")).unwrap().0.len(), 1, "{bad}");
    }
    for bad in ["", "[]", "{}", "{\"keys\":7}", "{\"keys\":[]}"] {
        assert!(KeySet::parse(bad.as_bytes()).is_none(), "{bad}");
    }
    let many = vec![public; MAX_KEYS + 5].join(",");
    assert_eq!(set(&many).unwrap().0.len(), MAX_KEYS);
}

#[test]
fn none_and_hmac_are_no_algorithms() {
    for name in ["none", "None", "NONE", "HS256", "HS384", "HS512", "", "rs256"] {
        assert_eq!(Algorithm::named(name), None, "{name}");
    }
}
