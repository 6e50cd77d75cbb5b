//! Custom connections that replace TCP, and one-line descriptions of connection errors.

use std::error::Error;
use std::fmt::{self, Write};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tower::Service;

/// A bidirectional byte stream from a [`Dial`].
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Function that opens connections to apiservers or webhook receivers, such as a tunnel or a pipe to a simulated
/// server. Equivalent to `rest.Config.Dial` of client-go.
#[derive(Clone)]
pub struct Dial(Arc<dyn Fn(Uri) -> Opening + Send + Sync>);

type Opening = BoxFuture<'static, io::Result<Box<dyn Stream>>>;

impl Dial {
    /// Opens each connection with `open`. For an apiserver, `open` has ten seconds; for a webhook receiver, the
    /// deadline of the delivery attempt.
    #[must_use]
    pub fn new<F, S>(open: impl Fn(Uri) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = io::Result<S>> + Send + 'static,
        S: Stream + 'static,
    {
        Self(Arc::new(move |uri| {
            let opening = open(uri);
            async move { Ok(Box::new(opening.await?) as Box<dyn Stream>) }.boxed()
        }))
    }
}

/// Returns scheme, host and port of an address, for error messages. Path, query and user information are omitted, since
/// they may contain secrets.
pub fn server_of(uri: &Uri) -> String {
    let scheme = uri.scheme_str().unwrap_or("http");
    let port = uri.port_u16().or(match scheme {
        "https" => Some(443),
        "http" => Some(80),
        _ => None,
    });
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    format!("{scheme}://{}{port}", uri.host().unwrap_or("unknown host"))
}

/// Returns an error and its causes in one line, without duplicates and without wrappers that add no text.
pub fn causes(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    for error in std::iter::successors(Some(error), |&error| error.source()) {
        let is_wrapper = error.is::<hyper_util::client::legacy::Error>()
            || error.is::<reqwest::Error>()
            || error.to_string() == "tcp connect error";
        if is_wrapper && error.source().is_some() {
            continue;
        }
        let more = own_text(error);
        // Remove the link to documentation for programmers, which rustls appends.
        let more = more.split_once(": https://docs.rs/").map_or(more.as_str(), |(more, _)| more);
        if !text.contains(more) {
            let _ = write!(text, "{}{more}", if text.is_empty() { "" } else { ": " });
        }
    }
    text
}

/// Returns the text of an error without its causes. System errors are replaced by their kind, since their texts vary
/// and end with a number.
fn own_text(error: &(dyn Error + 'static)) -> String {
    match error.downcast_ref::<io::Error>() {
        Some(error) if error.raw_os_error().is_some() && error.kind().to_string() != "uncategorized error" => {
            error.kind().to_string()
        }
        _ if error.is::<tower::timeout::error::Elapsed>() => "timed out".to_owned(),
        _ => certificate_problem(&error.to_string()).unwrap_or_else(|| error.to_string()),
    }
}

/// Returns advice for the operator if rustls has refused a server because its certificate is a CA certificate. `error`
/// is the text of the TLS error. Returns `None` for other errors.
///
/// `openssl req -x509` makes such certificates by default.
#[must_use]
pub fn certificate_problem(error: &str) -> Option<String> {
    let advice = "the server's certificate is that of a CA, which rustls refuses: make one with CA:FALSE \
        (openssl req -x509 -addext basicConstraints=critical,CA:FALSE), or sign one with this CA";
    error.contains("CaUsedAsEndEntity").then(|| advice.to_owned())
}

impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dial").finish_non_exhaustive()
    }
}

impl Service<Uri> for Dial {
    type Response = TokioIo<Dialled>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        (self.0)(uri).map(|opened| opened.map(|stream| TokioIo::new(Dialled(stream)))).boxed()
    }
}

/// A connection opened by [`Dial`].
pub struct Dialled(Box<dyn Stream>);

impl fmt::Debug for Dialled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Dialled").finish_non_exhaustive()
    }
}

impl Connection for Dialled {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Dialled {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Dialled {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_of_omits_secrets() {
        for (address, server) in [
            ("https://10.0.0.1:6443/k8s/clusters/c1", "https://10.0.0.1:6443"),
            ("https://user:hunter2@hooks.example.com/T0/hunter2?token=hunter2", "https://hooks.example.com:443"),
            ("http://[::1]/", "http://[::1]:80"),
        ] {
            assert_eq!(server_of(&address.parse().unwrap()), server);
        }
    }

    #[test]
    fn system_errors_are_replaced_by_their_kind() {
        let refused = io::Error::from_raw_os_error(111);
        assert_eq!(causes(&refused), "connection refused");
        assert_eq!(causes(&io::Error::other("no such name")), "no such name");
        let other = io::Error::other("invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))");
        assert!(causes(&other).starts_with("the server's certificate is that of a CA"), "{}", causes(&other));
    }
}
