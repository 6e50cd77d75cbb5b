//! Versions of HTTP that a client may use.

/// Versions of HTTP that a client may use.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum HttpVersions {
    /// HTTP/2 if the server offers it in the TLS handshake, else HTTP/1.1. Without TLS, HTTP/1.1.
    #[default]
    Auto,
    /// HTTP/1.1 only.
    Http1,
    /// HTTP/2 only. Without TLS, the connection starts with HTTP/2 without an upgrade.
    Http2,
}
