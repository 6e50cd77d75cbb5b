//! Credentials of NATS that expire or are revoked while a process uses them.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use informer_hub_roles::{Backend, Credentials, NatsBackend, NatsParams, NatsProblem};
use informer_hub_types::clock;
use nkeys::KeyPair;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::server::{Servers, within};

/// Keys of an operator with one account for the fleet.
struct Operator {
    key: KeyPair,
    account: KeyPair,
    system: KeyPair,
}

fn seconds() -> u64 {
    u64::try_from(clock::wall().as_second()).unwrap()
}

/// Returns a JWT of version 2 of NATS.
fn jwt(issuer: &KeyPair, subject: &KeyPair, name: &str, expires: Option<u64>, nats: &Value) -> String {
    let header = json!({ "typ": "JWT", "alg": "ed25519-nkey" });
    let mut claims = json!({
        "jti": name,
        "iat": seconds(),
        "iss": issuer.public_key(),
        "sub": subject.public_key(),
        "name": name,
        "nats": nats,
    });
    if let Some(expires) = expires {
        claims["exp"] = expires.into();
    }
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", encode(&header), encode(&claims));
    let signature = URL_SAFE_NO_PAD.encode(issuer.sign(signed.as_bytes()).unwrap());
    format!("{signed}.{signature}")
}

impl Operator {
    fn new() -> Self {
        Self { key: KeyPair::new_operator(), account: KeyPair::new_account(), system: KeyPair::new_account() }
    }

    /// Returns the configuration of a server, without ports and stores.
    fn config(&self) -> String {
        let unlimited = json!({
            "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1,
            "mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1,
        });
        let account = |limits: Value| json!({ "limits": limits, "type": "account", "version": 2 });
        let operator = jwt(&self.key, &self.key, "operator", None, &json!({ "type": "operator", "version": 2 }));
        let fleet = jwt(&self.key, &self.account, "fleet", None, &account(unlimited.clone()));
        let mut plain = unlimited;
        for key in ["mem_storage", "disk_storage", "streams", "consumer"] {
            plain[key] = 0.into();
        }
        let system = jwt(&self.key, &self.system, "system", None, &account(plain));
        format!(
            "operator: {operator}\nresolver: MEMORY\nsystem_account: {}\nresolver_preload: {{\n  {}: {fleet}\n  {}: {system}\n}}\n",
            self.system.public_key(),
            self.account.public_key(),
            self.system.public_key(),
        )
    }

    /// Returns a credentials file of a new user.
    fn credentials(&self, expires: Option<u64>) -> String {
        let user = KeyPair::new_user();
        let nats = json!({ "pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1, "type": "user", "version": 2 });
        let jwt = jwt(&self.account, &user, "collector", expires, &nats);
        let seed = user.seed().unwrap();
        format!(
            "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        )
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_continues_with_new_credentials_after_the_old_ones_expired() {
    let operator = Operator::new();
    let servers = Servers::configured(1, Some(&operator.config())).await;
    let stranger = Operator::new();
    let file = Arc::new(Mutex::new(stranger.credentials(None)));
    let read = Arc::clone(&file);
    let params = NatsParams {
        credentials: Some(Arc::new(move || Ok(read.lock().clone())) as Credentials),
        ..crate::params("a", &servers, 1)
    };
    let (problems, is_usable) = params.check().await;
    assert!(matches!(problems[..], [NatsProblem::Refused { .. }]) && !is_usable, "{problems:?}");

    let expires = seconds() + 3;
    *file.lock() = operator.credentials(Some(expires));
    let backend = NatsBackend::new(params);
    let cluster = "east".parse().unwrap();
    let first = backend.claim(&cluster, "a", None, 0).await.unwrap().expect("the first claim wins");
    let mut own = first.clone();
    // The server ends the connection of a user whose JWT expires.
    within("the end of the first credentials", async {
        while let Ok(Some(renewed)) = backend.renew(&own).await {
            own = renewed;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    assert!(seconds() >= expires);
    *file.lock() = operator.credentials(None);
    within("a renewal with the new credentials", async {
        loop {
            // The answer to an earlier renewal may have been lost.
            match backend.owner(&cluster).await {
                Ok(Some(found)) => break assert_eq!((found.epoch, found.collector.as_str()), (first.epoch, "a")),
                Ok(None) => panic!("the ownership is lost"),
                Err(error) => assert!(!error.to_string().contains("SU"), "no seed in {error}"),
            }
        }
    })
    .await;
}
