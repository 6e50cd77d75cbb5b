//! Token of a credential plugin, renewed by another run of the plugin one minute before it expires.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use http::HeaderValue;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

use super::plugin::{Credentials, ExecError, Plugin};
use informer_hub_types::Threads;
use informer_hub_types::clock::{self, Instant};

/// How long before its expiry a token is renewed.
const RENEW_BEFORE: SignedDuration = SignedDuration::from_secs(60);
/// Minimum time from a failed renewal to the next attempt.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// Error of a failed renewal, shared by all requests that waited for it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot get credentials: {0}")]
pub(crate) struct NoCredentials(Arc<ExecError>);

type Renewal = Shared<BoxFuture<'static, Result<(HeaderValue, Option<Timestamp>), NoCredentials>>>;

/// Bearer token of a credential plugin, renewed before it expires. See the module documentation.
pub(crate) struct ExecToken {
    plugin: Arc<Plugin>,
    io: Threads,
    state: Mutex<State>,
}

struct State {
    header: HeaderValue,
    expires: Option<Timestamp>,
    /// The renewal in progress. It continues if the request that started it is dropped.
    renewal: Option<Renewal>,
    failed: Option<(Instant, NoCredentials)>,
}

impl ExecToken {
    /// Creates a token from credentials that the plugin has just returned; `None` if they have only a certificate.
    pub(crate) fn of(plugin: Plugin, credentials: &Credentials, io: &Threads) -> Option<Self> {
        let (header, expires) = (credentials.header.clone()?, credentials.expires);
        let state = Mutex::new(State { header, expires, renewal: None, failed: None });
        Some(Self { plugin: Arc::new(plugin), io: io.clone(), state })
    }

    /// Returns the `Authorization` header, after a renewal if the token is about to expire.
    ///
    /// # Errors
    /// The token has expired and cannot be renewed.
    pub(crate) async fn header(&self) -> Result<HeaderValue, NoCredentials> {
        let renewal = {
            let state = &mut *self.state.lock();
            let now = clock::wall();
            let Some(expires) = state.expires.filter(|expires| now + RENEW_BEFORE >= *expires) else {
                return Ok(state.header.clone());
            };
            if let Some((at, error)) = &state.failed
                && clock::now() < *at + RETRY_AFTER
            {
                return if now < expires { Ok(state.header.clone()) } else { Err(error.clone()) };
            }
            state.renewal.get_or_insert_with(|| renewal(Arc::clone(&self.plugin), &self.io)).clone()
        };
        let renewed = renewal.clone().await;
        let state = &mut *self.state.lock();
        if state.renewal.as_ref().is_some_and(|own| own.ptr_eq(&renewal)) {
            state.renewal = None;
            match &renewed {
                Ok((header, expires)) => {
                    (state.header, state.expires, state.failed) = (header.clone(), *expires, None);
                }
                Err(error) => state.failed = Some((clock::now(), error.clone())),
            }
        }
        match (renewed, state.expires) {
            (Ok((header, _)), _) => Ok(header),
            (Err(_), Some(expires)) if clock::wall() < expires => Ok(state.header.clone()),
            (Err(error), _) => Err(error),
        }
    }
}

/// Starts a renewal in its own task. The returned future waits for the renewal.
fn renewal(plugin: Arc<Plugin>, io: &Threads) -> Renewal {
    let task = io.spawn(async move {
        let credentials = plugin.run().await?;
        let header = credentials.header.ok_or_else(|| ExecError::Changed(plugin.display_name.clone()))?;
        Ok((header, credentials.expires))
    });
    let done = task.map(|done| match done {
        Ok(Ok(renewed)) => Ok(renewed),
        Ok(Err(error)) => Err(NoCredentials(Arc::new(error))),
        Err(_) => Err(NoCredentials(Arc::new(ExecError::Start {
            command: "?".to_owned(),
            error: std::io::Error::other("the runtime for clients is shutting down"),
        }))),
    });
    done.boxed().shared()
}

impl fmt::Debug for ExecToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecToken").field("command", &self.plugin.display_name).finish_non_exhaustive()
    }
}
