//! Tests of access control.

use axum::http::HeaderValue;
use futures::FutureExt;
use parking_lot::Mutex;

use super::*;
use informer_hub_access::{Identity, ReaderLimits, ResourceMatch, Rule};
use informer_hub_types::{ClusterSelector, Groups};

const WRITE: &str = "change-0123456789abcdef";
const READ: &str = "look-0123456789abcdef";

fn token(text: &'static str) -> TokenFrom {
    TokenFrom::new(None, Arc::new(move || Ok(text.to_owned())))
}

fn guarded(metrics_open: bool) -> Access {
    let (token, read_token) = (Some(token(WRITE)), Some(token(READ)));
    let hosts = Some(Hosts::default());
    access(Credentials { token, read_token, certificates: true, metrics_open, hosts, closed: false })
}

fn access(credentials: Credentials) -> Access {
    Access::new(credentials, ReaderSettings::default(), None).unwrap()
}

/// Returns the reader of a request. Panics if an issuer or a cluster has to be asked.
fn identify(access: &Access, request: &Request<()>, certificate: Option<&ClientCertificate>) -> Result<Reader, Denied> {
    access.identify(request.headers(), certificate).now_or_never().expect("nothing to wait for")
}

/// Identifies the reader of a request and returns whether the request is allowed. With `certified`, the connection has
/// the client certificate of user `jane`.
fn authorize(access: &Access, request: &Request<()>, certified: bool) -> Result<MayRead, Denied> {
    let certificate = ClientCertificate { common_name: "jane".into(), organizations: vec!["ops".into()] };
    let reader = identify(access, request, certified.then_some(&certificate));
    let (may_read, reader) = access.authorize(request, reader)?;
    assert_eq!(may_read.0, reader.sees_everything() || !reader.grants().rules.is_empty());
    Ok(may_read)
}

fn request(method: Method, path: &str, token: Option<&str>) -> Request<()> {
    let mut request = Request::builder().method(method).uri(path);
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, format!("bearer {token}"));
    }
    request.body(()).unwrap()
}

#[test]
fn request_requires_its_right_and_probes_require_none() {
    let access = guarded(false);
    let ask = |method, path, token| authorize(&access, &request(method, path, token), false);
    for (method, path, token, wanted) in [
        (Method::GET, "/livez", None, Ok(MayRead(false))),
        (Method::HEAD, "/readyz", None, Ok(MayRead(false))),
        (Method::GET, "/readyz", Some("no-such-token-anywhere"), Ok(MayRead(false))),
        (Method::GET, "/readyz", Some(READ), Ok(MayRead(true))),
        (Method::POST, "/livez", None, Err(Denied::Anonymous)),
        (Method::GET, "/metrics", None, Err(Denied::Anonymous)),
        (Method::GET, "/v1/status", None, Err(Denied::Anonymous)),
        (Method::GET, "/v1/status", Some(READ), Ok(MayRead(true))),
        (Method::GET, "/v1/status", Some(WRITE), Ok(MayRead(true))),
        (Method::GET, "/v1/status", Some(""), Err(Denied::WrongToken)),
        (Method::GET, "/v1/status", Some("change-0123456789abcdeF"), Err(Denied::WrongToken)),
        (Method::GET, "/no/such/path", None, Err(Denied::Anonymous)),
        (Method::GET, "/livez/", None, Err(Denied::Anonymous)),
        (Method::POST, "/v1/reload", Some(READ), Err(Denied::ReadOnly)),
        (Method::DELETE, "/v1/status", Some(READ), Err(Denied::ReadOnly)),
        (Method::POST, "/v1/reload", Some(WRITE), Ok(MayRead(true))),
    ] {
        assert_eq!(ask(method.clone(), path, token), wanted, "{method} {path} {token:?}");
    }
    assert_eq!(access.unreported_denials(), [("anonymous", 5), ("token", 2), ("read_only", 2)]);
    assert!(access.unreported_denials().is_empty());
    assert_eq!(access.denied(), [("anonymous", 5), ("token", 2), ("read_only", 2)]);
    assert_eq!(
        authorize(&access, &request(Method::POST, "/v1/reload", None), true),
        Ok(MayRead(true)),
        "a certificate"
    );
    assert_eq!(authorize(&guarded(true), &request(Method::GET, "/metrics", None), false), Ok(MayRead(false)));
}

#[test]
fn open_port_denies_changes_by_web_pages() {
    let access = access(Credentials::default());
    let mut asked = request(Method::POST, "/v1/sinks/a/dead-letters/purge", None);
    assert_eq!(authorize(&access, &asked, false), Ok(MayRead(true)));
    asked.headers_mut().insert(ORIGIN, HeaderValue::from_static("https://example.com"));
    assert_eq!(authorize(&access, &asked, false), Err(Denied::WebPage));
}

#[test]
fn client_certificate_is_ignored_unless_configured() {
    let access = access(Credentials { token: Some(token(WRITE)), ..Credentials::default() });
    assert_eq!(authorize(&access, &request(Method::GET, "/v1/status", None), true), Err(Denied::Anonymous));
}

#[test]
fn replaced_token_takes_effect_and_an_invalid_one_keeps_the_old() {
    let text = Arc::new(Mutex::new(WRITE.to_owned()));
    let read = Arc::clone(&text);
    let from = TokenFrom::new(None, Arc::new(move || Ok(read.lock().clone())));
    let access = access(Credentials { token: Some(from), ..Credentials::default() });
    let may = |token| authorize(&access, &request(Method::GET, "/v1/status", Some(token)), false).is_ok();
    *text.lock() = READ.to_owned();
    access.reload_tokens().unwrap();
    assert!(may(READ) && !may(WRITE));
    for half in ["", "short", "two words, which no header has"] {
        *text.lock() = half.to_owned();
        let error = access.reload_tokens().unwrap_err();
        assert!(!format!("{error:?}").contains("two words"), "{error:?}");
        assert!(may(READ) && !may(half));
    }
}

fn reader(name: &str, identity: IdentityFrom, may_change: bool) -> ReaderEntry {
    let all = vec![ResourceMatch::Groups(Groups::All)];
    let rules = vec![Rule::new(ClusterSelector::All, [name], all, Vec::new())];
    ReaderEntry { name: name.to_owned(), identity, rules, limits: ReaderLimits::default(), may_change }
}

fn readers(readers: Vec<ReaderEntry>) -> ReaderSettings {
    ReaderSettings { readers, ..ReaderSettings::default() }
}

#[test]
fn readers_close_the_port_and_look_only() {
    let settings = readers(vec![
        reader("looks", IdentityFrom::Token(token(READ)), false),
        reader("changes", IdentityFrom::Token(token(WRITE)), true),
    ]);
    let access = Access::new(Credentials::default(), settings, None).unwrap();
    assert!(!access.is_open());
    for (method, path, token, wanted) in [
        (Method::GET, "/readyz", None, Ok(MayRead(false))),
        (Method::GET, "/v1/status", None, Err(Denied::Anonymous)),
        (Method::GET, "/v1/status", Some("look-0123456789abcdeF"), Err(Denied::WrongToken)),
        (Method::GET, "/v1/status", Some(READ), Ok(MayRead(true))),
        (Method::POST, "/v1/reload", Some(READ), Err(Denied::ReadOnly)),
        (Method::POST, "/v1/reload", Some(WRITE), Ok(MayRead(true))),
        (Method::POST, "/clusters/a/api/v1/pods", Some(READ), Ok(MayRead(true))),
    ] {
        assert_eq!(authorize(&access, &request(method.clone(), path, token), false), wanted, "{method} {path}");
    }
    let known = identify(&access, &request(Method::GET, "/", Some(READ)), None).unwrap();
    assert_eq!((known.name().as_str(), known.sees_everything()), ("looks", false));
}

#[test]
fn certificate_of_a_reader_has_its_rights_only() {
    let organization = IdentityFrom::Known(Identity::Organization("ops".into()));
    let certificates = Credentials { certificates: true, ..Credentials::default() };
    let access = Access::new(certificates, readers(vec![reader("ops", organization, false)]), None).unwrap();
    let post = request(Method::POST, "/v1/reload", None);
    assert_eq!(authorize(&access, &post, true), Err(Denied::ReadOnly));
    let other = ClientCertificate { common_name: "john".into(), organizations: Vec::new() };
    let john = identify(&access, &post, Some(&other)).unwrap();
    assert!(john.sees_everything() && john.may_change(), "as without readers");
}

#[test]
fn replaced_readers_take_effect_and_end_open_streams() {
    let access = Access::new(Credentials::default(), readers(vec![]), None).unwrap();
    let identify = |token| identify(&access, &request(Method::GET, "/", Some(token)), None);
    assert!(access.is_open() && identify(READ).unwrap().sees_everything());
    let replace = |settings| access.replace(&PreparedReaders::read(settings).unwrap());
    replace(readers(vec![reader("a", IdentityFrom::Token(token(READ)), false)]));
    assert!(!access.is_open() && identify(WRITE).is_err() && access.was_replaced() && !access.was_replaced());
    let a = identify(READ).unwrap();
    assert_eq!(access.current(&a), Some(a.clone()));
    replace(readers(vec![reader("a", IdentityFrom::Token(token(WRITE)), false)]));
    assert_eq!((access.current(&a), identify(READ)), (None, Err(Denied::WrongToken)));
    let twice = ["a", "b"].map(|name| reader(name, IdentityFrom::Token(token(READ)), false));
    let error = PreparedReaders::read(readers(twice.to_vec())).unwrap_err().to_string();
    assert!(error.contains("readers.a and readers.b have the same token") && !error.contains(READ), "{error}");
}

#[test]
fn open_metrics_are_open_to_readers_of_some_objects_too() {
    for (metrics_open, expected) in [(true, false), (false, true)] {
        let credentials = Credentials { metrics_open, ..Credentials::default() };
        let settings = readers(vec![reader("a", IdentityFrom::Token(token(READ)), false)]);
        let access = Access::new(credentials, settings, None).unwrap();
        let get = request(Method::GET, "/metrics", Some(READ));
        let reader = identify(&access, &get, None);
        assert_eq!(access.authorize(&get, reader).unwrap().0, MayRead(expected));
    }
}

#[test]
fn closed_port_stays_closed_without_readers() {
    let access = access(Credentials { closed: true, ..Credentials::default() });
    assert!(!access.is_open());
    let get = request(Method::GET, "/v1/status", Some(READ));
    assert_eq!(authorize(&access, &get, false), Err(Denied::WrongToken));
}
