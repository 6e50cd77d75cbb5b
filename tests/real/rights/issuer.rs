//! OpenID Connect issuer over TLS: discovery document, key set, and tokens signed with ES256 and RS256.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use informer_hub_testing::jwt::{Signer, base64url, unsigned};
use informer_hub_testing::tls::Ca;
use jiff::Timestamp;
use parking_lot::Mutex;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair, RsaPublicKeyComponents};
use rustls::{ServerConfig, ServerConnection, Stream};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Audience of the tokens, for the hub and the apiservers.
pub(super) const AUDIENCE: &str = "informer-hub";

/// An issuer. Its port is open until the process ends.
pub(super) struct Issuer {
    url: String,
    folder: TempDir,
    elliptic: Signer,
    rsa: Option<RsaKeyPair>,
    keys: Arc<Mutex<Vec<Value>>>,
}

impl Issuer {
    /// Starts an issuer with a key for ES256.
    pub(super) fn start() -> Self {
        let (ca, folder) = (Ca::new(), tempfile::tempdir().unwrap());
        std::fs::write(folder.path().join("ca.pem"), ca.pem()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = url(listener.local_addr().unwrap());
        let elliptic = Signer::new("ec");
        let mut key = elliptic.public();
        (key["use"], key["alg"]) = (json!("sig"), json!("ES256"));
        let keys = Arc::new(Mutex::new(vec![key]));
        let (config, served, issuer) = (ca.server_config(&[b"http/1.1"]), Arc::clone(&keys), url.clone());
        std::thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let (config, served, issuer) = (Arc::clone(&config), Arc::clone(&served), issuer.clone());
                std::thread::spawn(move || answer(socket, config, &issuer, &served));
            }
        });
        Self { url, folder, elliptic, rsa: None, keys }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Returns the file with its CA.
    pub(super) fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Returns the kube-apiserver flags for this issuer.
    pub(super) fn flags(&self) -> Vec<String> {
        vec![
            format!("--oidc-issuer-url={}", self.url),
            format!("--oidc-client-id={AUDIENCE}"),
            format!("--oidc-ca-file={}", self.ca().display()),
            "--oidc-username-claim=email".to_owned(),
            "--oidc-groups-claim=groups".to_owned(),
            "--oidc-groups-prefix=oidc:".to_owned(),
            "--oidc-signing-algs=RS256,ES256".to_owned(),
        ]
    }

    /// Publishes a second key, an RSA key in a PEM file (PKCS #1), for RS256.
    pub(super) fn add_rsa(&mut self, file: &Path) {
        let pem = std::fs::read_to_string(file).unwrap();
        let body: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
        let rsa = RsaKeyPair::from_der(&STANDARD.decode(body).unwrap()).unwrap();
        let RsaPublicKeyComponents::<Vec<u8>> { n, e } = rsa.public().into();
        let key =
            json!({ "kty": "RSA", "use": "sig", "alg": "RS256", "kid": "rsa", "n": base64url(n), "e": base64url(e) });
        self.keys.lock().push(key);
        self.rsa = Some(rsa);
    }

    /// Returns a token of a user for an hour, signed with RS256 if `rsa` is set, else with ES256. RS256 needs
    /// [`Self::add_rsa`] first.
    pub(super) fn token(&self, email: &str, groups: &[&str], rsa: bool) -> String {
        let now = Timestamp::now().as_second();
        let claims = json!({
            "iss": self.url, "aud": AUDIENCE, "sub": format!("id-of-{email}"), "email": email, "email_verified": true,
            "groups": groups, "iat": now, "exp": now + 3600,
        });
        if !rsa {
            return self.elliptic.sign_as(&json!({ "alg": "ES256", "kid": "ec", "typ": "JWT" }), &claims);
        }
        let key = self.rsa.as_ref().expect("the RSA key is published");
        let signed = unsigned(&json!({ "alg": "RS256", "kid": "rsa", "typ": "JWT" }), &claims);
        let mut signature = vec![0; key.public().modulus_len()];
        key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature).unwrap();
        format!("{signed}.{}", base64url(signature))
    }
}

fn url(address: SocketAddr) -> String {
    format!("https://{address}")
}

/// Answers one request and closes the connection.
fn answer(mut socket: TcpStream, config: Arc<ServerConfig>, issuer: &str, keys: &Mutex<Vec<Value>>) {
    let Ok(mut tls) = ServerConnection::new(config) else { return };
    let mut stream = Stream::new(&mut tls, &mut socket);
    let (mut head, mut piece) = (Vec::new(), [0; 4096]);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut piece) {
            Ok(read @ 1..) if head.len() < 64 << 10 => head.extend_from_slice(&piece[..read]),
            _ => return,
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let document = match head.split(' ').nth(1) {
        Some("/.well-known/openid-configuration") => json!({
            "issuer": issuer, "jwks_uri": format!("{issuer}/keys"), "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"], "id_token_signing_alg_values_supported": ["RS256", "ES256"],
        }),
        Some("/keys") => json!({ "keys": *keys.lock() }),
        _ => json!(null),
    };
    let (status, body) = (if document.is_null() { "404 Not Found" } else { "200 OK" }, document.to_string());
    let length = body.len();
    let _ = write!(
        stream,
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    let _ = stream.flush();
    tls.send_close_notify();
    let _ = tls.complete_io(&mut socket);
}
