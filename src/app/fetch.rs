//! Fetches the documents of an OIDC issuer over HTTP, with a deadline and a limit of their size.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use reqwest::redirect::Policy;

use informer_hub_access::{FetchDocument, FetchFailure};
use informer_hub_tls::{Roots, certificates, http_config};

/// Deadline for fetching one document, connecting included.
const DEADLINE: Duration = Duration::from_secs(5);
/// Size limit of one document. Key sets have a few KiB.
const MAX_DOCUMENT: usize = 256 << 10;

/// HTTP client for the documents of an OIDC issuer. Reads the CA file anew for each document, so that a replaced CA
/// file takes effect.
#[derive(Clone, Debug)]
pub(crate) struct FetchOverHttp {
    ca_file: Option<PathBuf>,
}

impl FetchOverHttp {
    pub(crate) fn new(ca_file: Option<PathBuf>) -> Self {
        Self { ca_file }
    }
}

impl FetchDocument for FetchOverHttp {
    fn fetch(&self, address: String) -> BoxFuture<'static, Result<Vec<u8>, FetchFailure>> {
        let ca_file = self.ca_file.clone();
        let fetching = async move {
            let client = tokio::task::spawn_blocking(move || client(ca_file.as_deref())).await;
            let client = client.map_err(|_| FetchFailure("the hub is shutting down".to_owned()))??;
            fetch(&client, &address).await
        };
        let late = || Err(FetchFailure(format!("no answer within {} s", DEADLINE.as_secs())));
        async move { tokio::time::timeout(DEADLINE, fetching).await.unwrap_or_else(|_| late()) }.boxed()
    }
}

fn client(ca_file: Option<&Path>) -> Result<reqwest::Client, FetchFailure> {
    let failed = |path: &Path, problem: String| FetchFailure(format!("oidc.ca_file {}: {problem}", path.display()));
    let roots = match ca_file {
        None => Roots::AnyOfSystem,
        Some(path) => {
            let pem = std::fs::read(path).map_err(|error| failed(path, error.to_string()))?;
            let roots = certificates(&pem).map_err(|_| failed(path, "holds no PEM certificate".to_owned()))?;
            Roots::Only(roots)
        }
    };
    let unusable = |error: String| FetchFailure(format!("cannot use the CA of the issuer: {error}"));
    let tls = http_config(roots, None).map_err(|error| unusable(error.to_string()))?;
    // Redirects are not followed: the configuration states the address of the issuer, and the issuer's discovery
    // document states the address of its keys.
    let client = reqwest::Client::builder().tls_backend_preconfigured(tls).redirect(Policy::none()).build();
    client.map_err(|error| unusable(error.to_string()))
}

async fn fetch(client: &reqwest::Client, address: &str) -> Result<Vec<u8>, FetchFailure> {
    let failed = |error: reqwest::Error| {
        let causes = std::iter::successors(std::error::Error::source(&error), |cause| cause.source());
        let text = causes.last().map_or_else(|| error.to_string(), ToString::to_string);
        FetchFailure(format!("cannot fetch {address}: {text}"))
    };
    let mut answer = client.get(address).send().await.map_err(failed)?;
    if !answer.status().is_success() {
        return Err(FetchFailure(format!("{address} answers {}", answer.status())));
    }
    let mut document = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(failed)? {
        if document.len() + chunk.len() > MAX_DOCUMENT {
            return Err(FetchFailure(format!("{address} is larger than {MAX_DOCUMENT} bytes")));
        }
        document.extend_from_slice(&chunk);
    }
    Ok(document)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Starts a server that sends `answer` to every connection, or keeps the connection open if `answer` is empty.
    /// Returns the server's address.
    async fn serve(answer: Vec<u8>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}/keys", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = [0; 1024];
                let _ = stream.read(&mut head).await;
                let _ = stream.write_all(&answer).await;
                if answer.is_empty() {
                    open.push(stream);
                }
            }
        });
        address
    }

    async fn fetched(head: &str, body: &[u8]) -> Result<Vec<u8>, String> {
        let address = serve([head.as_bytes(), b"\r\nconnection: close\r\n\r\n", body].concat()).await;
        FetchOverHttp::new(None).fetch(address).await.map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn document_is_fetched_within_bounds() {
        assert_eq!(fetched("HTTP/1.1 200 OK", b"{}").await.unwrap(), b"{}");
        let large = vec![b' '; MAX_DOCUMENT + 1];
        assert!(fetched("HTTP/1.1 200 OK", &large).await.unwrap_err().contains("is larger than"));
        assert!(fetched("HTTP/1.1 503 no", b"").await.unwrap_err().contains("answers 503"));
        let moved = fetched("HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/", b"").await;
        assert!(moved.unwrap_err().contains("answers 302"), "redirects are not followed");
        let none = FetchOverHttp::new(None).fetch("http://127.0.0.1:1/".to_owned()).await;
        assert!(none.unwrap_err().to_string().contains("cannot fetch http://127.0.0.1:1/"));
        let missing = FetchOverHttp::new(Some("no-such-ca.pem".into())).fetch("https://127.0.0.1:1/".to_owned()).await;
        assert!(missing.unwrap_err().to_string().contains("oidc.ca_file no-such-ca.pem"));
    }

    #[tokio::test]
    async fn silent_issuer_ends_at_the_deadline() {
        let address = serve(Vec::new()).await;
        let fetching = FetchOverHttp::new(None).fetch(address);
        let begun = informer_hub_types::clock::now();
        assert!(fetching.await.unwrap_err().to_string().contains("no answer within 5 s"));
        assert!(informer_hub_types::clock::now() - begun < 2 * DEADLINE);
    }
}
