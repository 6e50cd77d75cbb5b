//! Tests of token verification against an issuer in memory.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use futures::FutureExt;
use parking_lot::Mutex;
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::json;

use super::*;
use informer_hub_testing::jwt::{Signer, base64url};

const ISSUER: &str = "https://login.example.com";

/// Issuer whose documents a test changes.
#[derive(Debug, Default)]
struct Issuer {
    documents: Mutex<BTreeMap<String, Result<Vec<u8>, FetchFailure>>>,
    fetches: AtomicUsize,
    hangs: std::sync::atomic::AtomicBool,
}

impl Issuer {
    fn publish(&self, keys: &[&Signer]) {
        let keys: Vec<_> = keys.iter().map(|key| key.public()).collect();
        self.set(
            "/.well-known/openid-configuration",
            &json!({ "issuer": ISSUER, "jwks_uri": format!("{ISSUER}/keys") }),
        );
        self.set("/keys", &json!({ "keys": keys }));
    }

    fn set(&self, path: &str, document: &Value) {
        self.documents.lock().insert(format!("{ISSUER}{path}"), Ok(document.to_string().into_bytes()));
    }

    fn fail(&self) {
        self.documents.lock().clear();
    }
}

#[derive(Debug)]
struct Fetch(Arc<Issuer>);

impl FetchDocument for Fetch {
    fn fetch(&self, address: String) -> BoxFuture<'static, Result<Vec<u8>, FetchFailure>> {
        self.0.fetches.fetch_add(1, SeqCst);
        if self.0.hangs.load(SeqCst) {
            return futures::future::pending().boxed();
        }
        let found = self.0.documents.lock().get(&address).cloned();
        async move { found.unwrap_or_else(|| Err(FetchFailure("connection refused".to_owned()))) }.boxed()
    }
}

fn settings() -> OidcSettings {
    OidcSettings {
        issuer: ISSUER.to_owned(),
        audience: "hub".to_owned(),
        username_claim: "sub".to_owned(),
        groups_claim: "groups".to_owned(),
        username_prefix: String::new(),
        groups_prefix: String::new(),
    }
}

fn started(keys: &[&Signer]) -> (Arc<Issuer>, Oidc) {
    let issuer = Arc::<Issuer>::default();
    issuer.publish(keys);
    (Arc::clone(&issuer), Oidc::new(settings(), Arc::new(Fetch(issuer))))
}

/// Claims of a valid token, with changes; `null` removes a claim.
fn claims(changes: &Value) -> Value {
    let now = clock::wall().as_second();
    let mut claims = json!({ "iss": ISSUER, "aud": "hub", "sub": "jane", "groups": ["sre"], "exp": now + 600 });
    for (key, value) in changes.as_object().unwrap() {
        claims[key] = value.clone();
    }
    claims.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    claims
}

#[tokio::test(start_paused = true)]
async fn valid_token_has_user_groups_and_expiry() {
    let key = Signer::new("a");
    let (issuer, oidc) = started(&[&key]);
    let token = key.sign(&claims(&json!({})));
    assert!(oidc.is_issuer_of(&token) && !oidc.is_issuer_of("opaque") && !oidc.is_issuer_of("a.b.c"));
    let (user, expires) = oidc.authenticate(&token).await.unwrap();
    assert_eq!((user.name.as_str(), &user.groups[..]), ("jane", &["sre".into()][..]));
    assert!(expires > clock::wall());
    for _ in 0..5 {
        oidc.authenticate(&token).await.unwrap();
    }
    assert_eq!(issuer.fetches.load(SeqCst), 2, "one discovery document and one key set");
    let several = key.sign(&claims(&json!({ "aud": ["other", "hub"], "groups": "dev" })));
    assert_eq!(oidc.authenticate(&several).await.unwrap().0.groups, ["dev"]);
}

#[tokio::test(start_paused = true)]
async fn forged_and_foreign_tokens_are_refused() {
    let (key, other) = (Signer::new("a"), Signer::new("a"));
    let (_, oidc) = started(&[&key]);
    let now = clock::wall().as_second();
    for (changes, wanted) in [
        (json!({ "iss": "https://evil.example.com" }), InvalidJwt::Issuer),
        (json!({ "iss": format!("{ISSUER}/") }), InvalidJwt::Issuer),
        (json!({ "iss": [ISSUER] }), InvalidJwt::Issuer),
        (json!({ "aud": "other" }), InvalidJwt::Audience),
        (json!({ "aud": ["other"] }), InvalidJwt::Audience),
        (json!({ "aud": null }), InvalidJwt::Audience),
        (json!({ "aud": { "hub": 1 } }), InvalidJwt::Audience),
        (json!({ "exp": now - 31 }), InvalidJwt::Expired),
        (json!({ "exp": null }), InvalidJwt::Expired),
        (json!({ "exp": "4000000000" }), InvalidJwt::Expired),
        (json!({ "exp": 1e300 }), InvalidJwt::Expired),
        (json!({ "nbf": now + 60 }), InvalidJwt::NotYet),
        (json!({ "nbf": "0" }), InvalidJwt::NotYet),
        (json!({ "sub": null }), InvalidJwt::Username),
        (json!({ "sub": "" }), InvalidJwt::Username),
        (json!({ "sub": 7 }), InvalidJwt::Username),
        (json!({ "sub": "a\nb" }), InvalidJwt::Username),
        (json!({ "sub": "system:admin" }), InvalidJwt::Username),
        (json!({ "sub": "x".repeat(513) }), InvalidJwt::Username),
    ] {
        assert_eq!(oidc.authenticate(&key.sign(&claims(&changes))).await.err(), Some(wanted), "{changes}");
    }
    assert_eq!(oidc.authenticate(&other.sign(&claims(&json!({})))).await.err(), Some(InvalidJwt::Signature));
    for tolerated in [json!({ "exp": now - 29 }), json!({ "nbf": now + 29 }), json!({ "groups": 7 })] {
        assert!(oidc.authenticate(&key.sign(&claims(&tolerated))).await.is_ok(), "{tolerated}");
    }
    let text = key.sign(&claims(&json!({})));
    let (rest, signature) = text.rsplit_once('.').unwrap();
    let (header, payload) = rest.split_once('.').unwrap();
    let raised = base64url(claims(&json!({ "groups": ["admin"] })).to_string());
    for broken in [format!("{header}.{raised}.{signature}"), format!("{rest}."), format!("{rest}.AAAA")] {
        assert_eq!(oidc.authenticate(&broken).await.err(), Some(InvalidJwt::Signature), "{broken}");
    }
    for broken in
        [String::new(), "..".to_owned(), rest.to_owned(), format!("{text}.x"), format!(".{payload}.{signature}")]
    {
        assert_eq!(oidc.authenticate(&broken).await.err(), Some(InvalidJwt::Issuer), "{broken}");
    }
}

#[tokio::test(start_paused = true)]
async fn unsigned_and_hmac_tokens_are_refused() {
    let key = Signer::new("a");
    let (issuer, oidc) = started(&[&key]);
    for header in [
        json!({ "alg": "none" }),
        json!({ "alg": "None", "kid": "a" }),
        json!({ "alg": "HS256", "kid": "a" }),
        json!({ "alg": "ES256", "kid": "a", "crit": ["exp"] }),
    ] {
        let token = key.sign_as(&header, &claims(&json!({})));
        assert_eq!(oidc.authenticate(&token).await.err(), Some(InvalidJwt::Algorithm), "{header}");
        let (unsigned, _) = token.rsplit_once('.').unwrap();
        assert_eq!(oidc.authenticate(&format!("{unsigned}.")).await.err(), Some(InvalidJwt::Algorithm), "{header}");
    }
    assert_eq!(issuer.fetches.load(SeqCst), 0, "such a token fetches nothing");
    let other = key.sign_as(&json!({ "alg": "RS256", "kid": "a" }), &claims(&json!({})));
    assert_eq!(oidc.authenticate(&other).await.err(), Some(InvalidJwt::Signature), "the key is of another kind");
}

#[tokio::test(start_paused = true)]
async fn prefixes_apply_and_groups_of_kubernetes_are_dropped() {
    let key = Signer::new("a");
    let (issuer, oidc) = started(&[&key]);
    let groups = json!({ "groups": ["system:masters", "", 7, "sre"], "email": "jane@a", "email_verified": true });
    let token = key.sign(&claims(&groups));
    assert_eq!(oidc.authenticate(&token).await.unwrap().0.groups, ["sre"]);
    let prefixed = OidcSettings {
        username_claim: "email".to_owned(),
        username_prefix: "oidc:".to_owned(),
        groups_prefix: "oidc:".to_owned(),
        ..settings()
    };
    let oidc = Oidc::new(prefixed, Arc::new(Fetch(issuer)));
    let (user, _) = oidc.authenticate(&token).await.unwrap();
    assert_eq!((user.name.as_str(), user.groups.len(), user.groups[1].as_str()), ("oidc:jane@a", 2, "oidc:sre"));
    for unverified in [json!(false), json!("true")] {
        let token = key.sign(&claims(&json!({ "email": "jane@a", "email_verified": unverified })));
        assert_eq!(oidc.authenticate(&token).await.err(), Some(InvalidJwt::Username));
    }
}

#[tokio::test(start_paused = true)]
async fn rotated_keys_are_fetched_at_most_once_per_interval() {
    let (old, new) = (Signer::new("old"), Signer::new("new"));
    let (issuer, oidc) = started(&[&old]);
    let (of_old, of_new) = (old.sign(&claims(&json!({}))), new.sign(&claims(&json!({}))));
    oidc.authenticate(&of_old).await.unwrap();
    issuer.publish(&[&old, &new]);
    for _ in 0..20 {
        assert_eq!(oidc.authenticate(&of_new).await.err(), Some(InvalidJwt::Signature), "within the interval");
    }
    assert_eq!(issuer.fetches.load(SeqCst), 2);
    tokio::time::advance(MIN_INTERVAL).await;
    oidc.authenticate(&of_new).await.unwrap();
    oidc.authenticate(&of_old).await.unwrap();
    assert_eq!(issuer.fetches.load(SeqCst), 4);
    issuer.publish(&[&new]);
    oidc.authenticate(&of_old).await.unwrap();
    tokio::time::advance(MAX_AGE).await;
    let renewed = old.sign(&claims(&json!({})));
    assert_eq!(oidc.authenticate(&renewed).await.err(), Some(InvalidJwt::Signature), "the old key is withdrawn");
}

#[tokio::test(start_paused = true)]
async fn unreachable_issuer_keeps_its_last_keys() {
    let (key, unknown) = (Signer::new("a"), Signer::new("b"));
    let (issuer, oidc) = started(&[&key]);
    issuer.fail();
    let token = || key.sign(&claims(&json!({})));
    assert_eq!(oidc.authenticate(&token()).await.err(), Some(InvalidJwt::NoKeys));
    issuer.publish(&[&key]);
    assert_eq!(oidc.authenticate(&token()).await.err(), Some(InvalidJwt::NoKeys), "within the interval");
    tokio::time::advance(MIN_INTERVAL).await;
    oidc.authenticate(&token()).await.unwrap();
    issuer.fail();
    for _ in 0..10 {
        tokio::time::advance(MAX_AGE).await;
        oidc.authenticate(&token()).await.unwrap();
        let foreign = unknown.sign(&claims(&json!({})));
        assert_eq!(oidc.authenticate(&foreign).await.err(), Some(InvalidJwt::Signature));
    }
}

#[tokio::test(start_paused = true)]
async fn hanging_issuer_delays_no_request_whose_key_is_known() {
    let key = Signer::new("a");
    let (issuer, oidc) = started(&[&key]);
    let token = key.sign(&claims(&json!({ "exp": clock::wall().as_second() + 100_000 })));
    oidc.authenticate(&token).await.unwrap();
    issuer.hangs.store(true, SeqCst);
    tokio::time::advance(MAX_AGE).await;
    let begun = clock::now();
    let (first, second) = tokio::join!(oidc.authenticate(&token), async {
        let answer = oidc.authenticate(&token).await;
        (answer, clock::now() - begun)
    });
    assert!(first.is_ok() && second.0.is_ok() && second.1 < Duration::from_secs(1), "{:?}", second.1);
    assert!(clock::now() - begun <= DEADLINE + Duration::from_secs(1));
    let oidc = Oidc::new(settings(), Arc::new(Fetch(issuer)));
    assert_eq!(oidc.authenticate(&token).await.err(), Some(InvalidJwt::NoKeys));
}

#[tokio::test(start_paused = true)]
async fn wrong_documents_give_no_keys() {
    let key = Signer::new("a");
    let (discovery, keys) = ("/.well-known/openid-configuration", format!("{ISSUER}/keys"));
    for (path, document, words) in [
        (discovery, json!({ "issuer": "https://other", "jwks_uri": keys }), "names another issuer"),
        (
            discovery,
            json!({ "issuer": ISSUER, "jwks_uri": "http://login.example.com/keys" }),
            "does not begin with https",
        ),
        (discovery, json!({ "issuer": ISSUER }), "is not JSON with issuer and jwks_uri"),
        ("/keys", json!([]), "has no usable key"),
        ("/keys", json!({ "keys": [{ "kty": "oct", "k": "AQAB" }] }), "has no usable key"),
    ] {
        let (issuer, oidc) = started(&[&key]);
        issuer.set(path, &document);
        let error = oidc.check().await.unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert_eq!(oidc.authenticate(&key.sign(&claims(&json!({})))).await.err(), Some(InvalidJwt::NoKeys));
    }
}

#[tokio::test(start_paused = true)]
async fn ed25519_signatures_are_verified() {
    let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
    let key = Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap();
    let (issuer, oidc) = started(&[]);
    let public = json!({ "kty": "OKP", "crv": "Ed25519", "x": base64url(key.public_key()) });
    issuer.set("/keys", &json!({ "keys": [public] }));
    let header = json!({ "alg": "EdDSA" });
    let signed = format!("{}.{}", base64url(header.to_string()), base64url(claims(&json!({})).to_string()));
    let token = format!("{signed}.{}", base64url(key.sign(signed.as_bytes())));
    assert!(oidc.authenticate(&token).await.is_ok());
}
