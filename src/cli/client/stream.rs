//! Requests for objects: answers that are read as they arrive, and errors with advice.

use std::time::Duration;

use anyhow::bail;
use reqwest::StatusCode;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, RETRY_AFTER, WARNING};
use serde_json::Value;

use super::{Client, DEADLINE, TOKEN, Unanswered, shown};
use informer_hub_apiclient::{Refusal, warning_text};
use informer_hub_types::rng;

/// Timeout of a whole answer: practically none, because the answer may be a watch. Each received chunk has its own
/// timeout.
const ENDLESS: Duration = Duration::from_secs(365 * 24 * 3600);
/// Longest time without data within an answer that is not a watch.
const SILENCE: Duration = Duration::from_secs(60);
/// Maximum number of times that a request is sent again if the hub asks for it.
const REPEATS: u32 = 4;
/// Longest wait before a request is sent again, without jitter.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Maximum number of bytes that are read of an error's body.
const LONGEST_ERROR: usize = 1 << 20;

/// Kinds of tokens that a hub may accept, as part of an error text.
const KINDS: &str = "a token of [hub.auth] or [readers] in the hub's configuration; if it has [oidc] or token reviews, a token \
                     that kubectl uses works too";

/// Request to a hub.
#[derive(Clone, Debug, Default)]
pub(in crate::cli) struct Request<'r> {
    /// Path segments below the address of the hub, not percent-encoded.
    pub(in crate::cli) path: Vec<&'r str>,
    /// Query parameters.
    pub(in crate::cli) query: Vec<(&'r str, String)>,
    /// `Accept` header.
    pub(in crate::cli) accept: &'static str,
    /// Body of a `POST`; `None` for a `GET`.
    pub(in crate::cli) body: Option<Value>,
    /// Event ID (`Last-Event-ID`) after which a stream of events continues.
    pub(in crate::cli) last_event: Option<&'r str>,
}

/// A successful answer: its headers are received, its body is read as it arrives.
#[derive(Debug)]
pub(in crate::cli) struct Answer<'c> {
    client: &'c Client,
    response: reqwest::Response,
}

/// Error with which the hub has refused a request.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(in crate::cli) struct Refused {
    pub(in crate::cli) refusal: Refusal,
    text: String,
}

impl Client {
    /// Sends a request and returns its answer. Sends it again if the hub answers 429 or 503 with a time to wait.
    ///
    /// # Errors
    /// [`Unanswered`], or [`Refused`] if the status is not a success. The error text contains advice.
    pub(in crate::cli) async fn open(&self, request: &Request<'_>) -> anyhow::Result<Answer<'_>> {
        let mut repeats = 0;
        loop {
            let error = match self.open_once(request).await {
                Ok(response) => return Ok(Answer { client: self, response }),
                Err(error) => error,
            };
            let refusal = error.downcast_ref::<Refused>().map(|refused| &refused.refusal);
            let wait = refusal.filter(|it| matches!(it.code, 429 | 503)).and_then(|it| it.retry_after);
            let Some(seconds) = wait.filter(|_| repeats < REPEATS) else { return Err(error) };
            repeats += 1;
            let wait = Duration::from_secs(seconds).min(LONGEST_WAIT);
            tokio::time::sleep(wait.mul_f64(1.0 + rng::unit() / 2.0)).await;
        }
    }

    /// Sends a request and returns its whole answer and the texts of its warnings.
    ///
    /// # Errors
    /// If the hub does not answer or refuses the request (see [`Self::open`]), or the answer has more than `limit`
    /// bytes.
    pub(in crate::cli) async fn whole(
        &self,
        request: &Request<'_>,
        limit: usize,
    ) -> anyhow::Result<(Vec<u8>, Vec<String>)> {
        let mut answer = self.open(request).await?;
        let warnings = answer.warnings();
        let mut body = Vec::new();
        while let Some(part) = answer.part(SILENCE).await? {
            if body.len() + part.len() > limit {
                bail!("the answer has more than {} MiB; select less", limit >> 20);
            }
            body.extend_from_slice(&part);
        }
        Ok((body, warnings))
    }

    async fn open_once(&self, request: &Request<'_>) -> anyhow::Result<reqwest::Response> {
        let mut url = self.at(&request.path);
        if !request.query.is_empty() {
            url.query_pairs_mut().extend_pairs(&request.query);
        }
        let mut builder = match &request.body {
            Some(body) => self.http.post(url).header(CONTENT_TYPE, "application/json").body(body.to_string()),
            None => self.http.get(url),
        };
        builder = builder.header(ACCEPT, request.accept).timeout(ENDLESS);
        if let Some(position) = request.last_event {
            builder = builder.header("Last-Event-ID", position);
        }
        if let Some(token) = &self.token {
            builder = builder.header(AUTHORIZATION, token);
        }
        let response = match tokio::time::timeout(DEADLINE, builder.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(self.unanswered(&error.without_url())),
            Err(_) => return Err(self.late(DEADLINE)),
        };
        if response.status().is_success() { Ok(response) } else { Err(self.refused(response).await) }
    }

    async fn refused(&self, mut response: reqwest::Response) -> anyhow::Error {
        let status = response.status();
        let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let mut body = Vec::new();
        while body.len() < LONGEST_ERROR
            && let Ok(Ok(Some(part))) = tokio::time::timeout(DEADLINE, response.chunk()).await
        {
            body.extend_from_slice(&part);
        }
        let Some(refusal) = Refusal::parse(status.as_u16(), retry_after.as_deref(), &body) else {
            let address = shown(&self.url);
            return anyhow::anyhow!("the server at {address} answers {status} and is not a hub; check --url");
        };
        let text = match status {
            StatusCode::UNAUTHORIZED => self.unauthorized(),
            StatusCode::TOO_MANY_REQUESTS => format!("{}; try again later", refusal.message),
            _ => refusal.message.clone(),
        };
        Refused { refusal, text }.into()
    }

    /// Returns the error for an answer with status 401.
    pub(super) fn unauthorized(&self) -> String {
        let address = shown(&self.url);
        match &self.token {
            Some(_) => format!("the hub at {address} refuses this token; use {KINDS}"),
            None => format!("the hub at {address} requires a token; give --token-file or set {TOKEN}: {KINDS}"),
        }
    }

    fn late(&self, deadline: Duration) -> anyhow::Error {
        Unanswered(format!("the hub at {} has not answered within {deadline:?}", self.address())).into()
    }
}

impl Answer<'_> {
    /// Returns the texts of the `Warning` headers.
    pub(in crate::cli) fn warnings(&self) -> Vec<String> {
        warnings(self.response.headers())
    }

    /// Returns the next part of the body; `None` at its end.
    ///
    /// # Errors
    /// [`Unanswered`] if the connection breaks, or no part arrives within `silence`.
    pub(in crate::cli) async fn part(&mut self, silence: Duration) -> anyhow::Result<Option<bytes::Bytes>> {
        match tokio::time::timeout(silence, self.response.chunk()).await {
            Ok(Ok(part)) => Ok(part),
            Ok(Err(error)) => Err(self.client.unanswered(&error.without_url())),
            Err(_) => Err(self.client.late(silence)),
        }
    }
}

fn warnings(headers: &HeaderMap) -> Vec<String> {
    headers.get_all(WARNING).iter().filter_map(|value| warning_text(value.to_str().ok()?)).collect()
}
