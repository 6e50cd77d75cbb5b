//! The hosts that the port is served as: a guard against pages that rebind their name to an address of the hub.
//!
//! A browser lets a page read answers from the page's own host. A page can have its host's name lead to 127.0.0.1, and
//! its requests then reach a hub that asks nobody who they are. But they name the page's host, which is not the hub's.

use std::net::IpAddr;

use axum::http::header::HOST;
use axum::http::uri::Authority;
use axum::http::{HeaderValue, Request};

/// Names that the port is served as, beside those that are always accepted: `localhost`, names below it, and every IP
/// address. A page that was loaded from an address has no name that could be rebound, and browsers resolve `localhost`
/// without DNS.
#[derive(Clone, Debug, Default)]
pub(super) struct Hosts {
    exact: Vec<String>,
    /// Endings with their dot: `.example.com` for `*.example.com`.
    endings: Vec<String>,
}

impl Hosts {
    /// Of names such as `hub.example.com` and `*.example.com`.
    pub(super) fn new(names: &[String]) -> Self {
        let names = names.iter().map(|name| name.to_ascii_lowercase());
        let (endings, exact): (Vec<_>, Vec<_>) = names.partition(|name| name.starts_with("*."));
        let endings = endings.into_iter().map(|name| name[1..].to_owned()).collect();
        Self { exact, endings }
    }

    /// Whether all hosts that a request names are accepted: that of its target (absolute form, `:authority`), and those
    /// of its `Host` headers. A request without any comes from no browser, and is accepted.
    pub(super) fn accepts<B>(&self, request: &Request<B>) -> bool {
        let target = request.uri().authority().is_none_or(|authority| self.knows(authority));
        target && request.headers().get_all(HOST).iter().all(|header| self.knows_header(header))
    }

    fn knows_header(&self, header: &HeaderValue) -> bool {
        header.is_empty() || Authority::try_from(header.as_bytes()).is_ok_and(|authority| self.knows(&authority))
    }

    /// Whatever the port: it says nothing of who asks.
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
    fn hosts_that_cannot_be_rebound_are_accepted_and_others_need_a_name() {
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
    fn every_host_of_a_request_counts() {
        let hosts = Hosts::default();
        assert!(accepts(&hosts, "/v1/status", &[]), "HTTP/1.0 without a host is no browser");
        assert!(accepts(&hosts, "http://localhost:7080/v1/status", &["localhost:7080"]));
        assert!(!accepts(&hosts, "http://evil.example/v1/status", &["localhost:7080"]), "absolute form");
        assert!(!accepts(&hosts, "http://localhost/v1/status", &["evil.example"]));
        assert!(!accepts(&hosts, "/v1/status", &["localhost", "evil.example"]));
    }
}
