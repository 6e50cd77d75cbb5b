//! Credentials of NATS in the form of a credentials file (`.creds`): a JWT of a user, and the seed of its key.
//!
//! The file is read at each attempt to connect. So after the JWT has expired or was revoked, a process continues as
//! soon as the file has a new JWT.

use std::io;

use async_nats::{Auth, AuthError, ConnectOptions};
use nkeys::KeyPair;

use super::Credentials;

/// Reads credentials, and verifies that they have the form of a credentials file.
pub(super) async fn check(read: Credentials) -> io::Result<()> {
    answer(read, Vec::new()).await.map(drop)
}

/// Returns options that read the credentials again for each connection.
pub(super) fn options(read: Credentials) -> ConnectOptions {
    ConnectOptions::with_auth_callback(move |nonce| {
        let answer = answer(read.clone(), nonce);
        async move { answer.await.map_err(AuthError::new) }
    })
}

async fn answer(read: Credentials, nonce: Vec<u8>) -> io::Result<Auth> {
    let answering = tokio::task::spawn_blocking(move || sign(&read()?, &nonce));
    answering.await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// Returns the JWT and the signature of a server's nonce, from the text of a credentials file.
fn sign(text: &str, nonce: &[u8]) -> io::Result<Auth> {
    let wrong = |problem: &str| io::Error::new(io::ErrorKind::InvalidData, problem.to_owned());
    let jwt = block(text, "NATS USER JWT").ok_or_else(|| wrong("there is no block NATS USER JWT"))?;
    let seed = block(text, "USER NKEY SEED").ok_or_else(|| wrong("there is no block USER NKEY SEED"))?;
    // The cause is dropped, because errors of `nkeys` may quote the seed.
    let key = KeyPair::from_seed(seed).map_err(|_| wrong("the block USER NKEY SEED is not the seed of a key"))?;
    let mut auth = Auth::new();
    auth.jwt = Some(jwt.to_owned());
    auth.signature = Some(key.sign(nonce).map_err(|_| wrong("the key cannot sign"))?);
    Ok(auth)
}

/// Returns the line after `-----BEGIN <name>-----`; `None` if it is missing or empty.
fn block<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let mut lines = text.lines().map(str::trim);
    let begins = |line: &str| line.trim_matches('-').trim().strip_prefix("BEGIN ").is_some_and(|found| found == name);
    lines.by_ref().find(|line| line.starts_with("---") && begins(line))?;
    lines.next().filter(|line| !line.is_empty() && !line.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(seed: &str) -> String {
        format!(
            "-----BEGIN NATS USER JWT-----\r\na.b.c\r\n------END NATS USER JWT------\r\n\r\nIMPORTANT\r\n\r\n\
             -----BEGIN USER NKEY SEED-----\r\n{seed}\r\n------END USER NKEY SEED------\r\n"
        )
    }

    #[test]
    fn nonce_is_signed_by_the_key() {
        let key = KeyPair::new_user();
        let auth = sign(&text(&key.seed().unwrap()), b"nonce").unwrap();
        assert_eq!(auth.jwt.as_deref(), Some("a.b.c"));
        key.verify(b"nonce", &auth.signature.unwrap()).unwrap();
    }

    #[test]
    fn wrong_texts_are_refused_without_their_contents() {
        let refused = |text: &str| sign(text, b"").err().expect("it is refused").to_string();
        assert_eq!(refused("hunter2"), "there is no block NATS USER JWT");
        let whole = text("SUhunter2");
        let (jwt, _) = whole.split_once("IMPORTANT").unwrap();
        assert_eq!(refused(jwt), "there is no block USER NKEY SEED");
        assert_eq!(refused(&whole), "the block USER NKEY SEED is not the seed of a key");
        assert_eq!(refused("-----BEGIN NATS USER JWT-----\n------END NATS USER JWT------\n"), refused("hunter2"));
    }
}
