//! Host check against DNS rebinding.
//!
//! A browser lets a page read responses from the page's own host. A malicious page can resolve its host name to
//! 127.0.0.1 and reach a hub that requires no credential. Such requests still name the page's host, which the hub does
//! not serve.

use std::net::IpAddr;

use axum::http::header::HOST;
use axum::http::uri::Authority;
use axum::http::{HeaderValue, Request};

/// Names under which the port is served.
///
/// `localhost`, names below it, and IP addresses are always accepted. A page loaded from an IP address has no DNS name
/// to rebind, and browsers resolve `localhost` without DNS.
#[derive(Clone, Debug, Default)]
pub(super) struct Hosts {
    exact: Vec<String>,
    /// Suffixes with their dot: `.example.com` for `*.example.com`.
    endings: Vec<String>,
}

impl Hosts {
    /// Creates the set from names such as `hub.example.com` and `*.example.com`.
    pub(super) fn new(names: &[String]) -> Self {
        let names = names.iter().map(|name| name.to_ascii_lowercase());
        let (endings, exact): (Vec<_>, Vec<_>) = names.partition(|name| name.starts_with("*."));
        let endings = endings.into_iter().map(|name| name[1..].to_owned()).collect();
        Self { exact, endings }
    }

    /// Returns whether all hosts that a request names are accepted: in its target (absolute form, `:authority`) and its
    /// `Host` headers. A request that names no host is accepted: it is not from a browser, since browsers always send
    /// the host.
    pub(super) fn accepts<B>(&self, request: &Request<B>) -> bool {
        let target = request.uri().authority().is_none_or(|authority| self.knows(authority));
        target && request.headers().get_all(HOST).iter().all(|header| self.knows_header(header))
    }

    fn knows_header(&self, header: &HeaderValue) -> bool {
        header.is_empty() || Authority::try_from(header.as_bytes()).is_ok_and(|authority| self.knows(&authority))
    }

    /// Returns whether the host of `authority` is accepted, whatever its port.
    fn knows(&self, authority: &Authority) -> bool {
        let host = authority.host();
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if bare.parse::<IpAddr>().is_ok() {
            return true;
        }
        let name = bare.strip_suffix('.').unwrap_or(bare).to_ascii_lowercase();
        let is_local = name == "localhost" || name.ends_with(".localhost");
        is_local || self.exact.contains(&name) || self.endings.iter().any(|ending| name.ends_with(ending.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(hosts: &Hosts, target: &str, headers: &[&str]) -> bool {
        let request = headers.iter().fold(Request::get(target), |request, host| request.header(HOST, *host));
        hosts.accepts(&request.body(()).unwrap())
    }

    #[test]
    fn host_check_accepts_addresses_localhost_and_configured_names() {
        let hosts = Hosts::new(&["Hub.example.com".to_owned(), "*.monitoring.svc".to_owned()]);
        for host in [
            "localhost",
            "LOCALHOST:7080",
            "localhost.:1",
            "a.localhost",
            "127.0.0.1",
            "127.0.0.1:7080",
            "127.9.9.9:1",
            "[::1]:7080",
            "[::1]",
            "10.0.0.7:7080",
            "hub.example.com",
            "HUB.example.com.:80",
            "hub.monitoring.svc:7080",
            "",
        ] {
            assert!(accepts(&hosts, "/v1/status", &[host]), "{host:?}");
        }
        for host in [
            "evil.example",
            "evil.example:7080",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "notlocalhost",
            "xhub.example.com",
            "monitoring.svc",
            "localhost@evil.example",
            "evil.example/localhost",
            "a b",
            "::1:",
            "127.1",
        ] {
            assert!(!accepts(&hosts, "/v1/status", &[host]), "{host:?}");
        }
    }

    #[test]
    fn host_check_covers_target_and_every_host_header() {
        let hosts = Hosts::default();
        assert!(accepts(&hosts, "/v1/status", &[]), "HTTP/1.0 without a host");
        assert!(accepts(&hosts, "http://localhost:7080/v1/status", &["localhost:7080"]));
        assert!(!accepts(&hosts, "http://evil.example/v1/status", &["localhost:7080"]), "absolute form");
        assert!(!accepts(&hosts, "http://localhost/v1/status", &["evil.example"]));
        assert!(!accepts(&hosts, "/v1/status", &["localhost", "evil.example"]));
    }
}
