//! A request for a resource: path, options, form and reader.

use axum::http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, USER_AGENT};
use axum::http::request::Parts;
use smol_str::{SmolStr, format_smolstr};

use super::definitions::is_of_kubernetes;
use super::metrics::client_of;
use super::queue::ReaderId;
use crate::api::extensions::PeerAddress;
use crate::api::notes::Notes;
use crate::api::rights::reader_of;
use informer_hub_access::{Reader, ReaderOrigin, Verb};
use informer_hub_kubeapi::{
    Accepted, Form, IncludeObject, Media, Options, Protobuf, Reason, ResourcePath, Root, Status, negotiate,
};
use informer_hub_types::TraceParent;

/// Prefix of a [`ReaderId`] that is a reader's name instead of an address.
pub(super) const NAMED: &str = "reader:";

/// A request for a resource, parsed.
#[derive(Debug)]
pub(super) struct ReadRequest {
    pub(super) root: Root,
    pub(super) path: ResourcePath,
    pub(super) options: Options,
    pub(super) accepted: Accepted,
    /// Media type and form to use if protobuf is accepted but the objects cannot be written as protobuf. `None` if the
    /// client accepts nothing else.
    other: Option<Accepted>,
    pub(super) include: IncludeObject,
    /// Whether JSON is indented.
    pub(super) is_pretty: bool,
    /// Whether the client accepts gzip.
    pub(super) gzip: bool,
    pub(super) reader: ReaderId,
    /// Sender of the request, with its rights.
    pub(super) user: Reader,
    /// Client program, such as `kubectl`, for metrics and traces.
    pub(super) client: SmolStr,
    /// Notes for the audit log.
    pub(super) notes: Notes,
}

impl ReadRequest {
    /// Returns the verb for which the reader's rights are checked.
    pub(super) fn access_verb(&self) -> Verb {
        match (self.is_watch(), &self.path.name) {
            (true, _) => Verb::Watch,
            (false, Some(_)) => Verb::Get,
            (false, None) => Verb::List,
        }
    }

    /// Chooses another encoding, because the objects cannot be written as protobuf.
    ///
    /// # Errors
    /// [`Status`] of code 406 if the client accepts no other encoding of the same form.
    pub(super) fn refuse_protobuf(&mut self) -> Result<(), Status> {
        let form = self.accepted.form;
        let other = self.other.take().filter(|other| other.form == form);
        let text = "objects have members that the hub cannot write as protobuf: accept application/json";
        self.accepted = other.ok_or_else(|| Status::new(406, Reason::NotAcceptable, text))?;
        Ok(())
    }

    /// Returns whether the request is a watch.
    pub(super) fn is_watch(&self) -> bool {
        (self.options.watch && self.path.name.is_none()) || self.path.is_watch
    }
}

/// Parses a request: first the `Accept` header, then the options, as kube-apiserver does. Any form is accepted here; a
/// form that the answer cannot have is refused when the answer is made.
pub(super) fn asked(parts: &Parts, root: Root, path: ResourcePath) -> Result<ReadRequest, Status> {
    const OFFERED: &[Form] = &[Form::Table, Form::Metadata, Form::MetadataList];
    let accept = accept_of(parts);
    let is_custom = !is_of_kubernetes(&path.group, &path.resource);
    let protobuf = if is_custom { Protobuf::Metadata } else { Protobuf::Objects };
    let accepted = negotiate(accept.as_deref(), OFFERED, protobuf, false)?;
    let is_protobuf = accepted.media == Media::Protobuf;
    let other = if is_protobuf { negotiate(accept.as_deref(), OFFERED, Protobuf::Never, false).ok() } else { None };
    let options = Options::of(&path, parts.uri.query().unwrap_or_default())?;
    let include = if accepted.form == Form::Table { options.table_objects()? } else { IncludeObject::Metadata };
    let (is_pretty, gzip, reader) = (is_pretty(parts, &accepted), accepts_gzip(parts), reader_id(parts));
    let user = reader_of(parts);
    let client = client_of(user_agent(parts));
    let notes = Notes::of(parts);
    Ok(ReadRequest { root, path, options, accepted, other, include, is_pretty, gzip, reader, user, client, notes })
}

/// Returns the media type of failure responses to a request, and whether their JSON is indented. As in kube-apiserver,
/// a failure is never a table. If the client accepts only tables, it gets indented JSON.
pub(super) fn form_of_failures(parts: &Parts) -> (Media, bool) {
    match negotiate(accept_of(parts).as_deref(), &[], Protobuf::Objects, false) {
        Ok(accepted) => (accepted.media, is_pretty(parts, &accepted)),
        Err(_) => (Media::Json, true),
    }
}

/// Returns whether JSON is indented.
fn is_pretty(parts: &Parts, accepted: &Accepted) -> bool {
    let asked = Options::pretty_of(parts.uri.query().unwrap_or_default());
    accepted.pretty || asked.unwrap_or_else(|| is_read_by_people(parts))
}

/// Returns the values of all `Accept` headers, joined by commas; `None` if there are none.
pub(super) fn accept_of(parts: &Parts) -> Option<String> {
    let all: Vec<_> = parts.headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    (!all.is_empty()).then(|| all.join(","))
}

/// Returns whether the client is a browser, curl or wget, to which kube-apiserver sends indented JSON.
fn is_read_by_people(parts: &Parts) -> bool {
    let agent = user_agent(parts).unwrap_or_default();
    ["curl", "Wget", "Mozilla/5.0"].iter().any(|start| agent.starts_with(start))
}

pub(super) fn user_agent(parts: &Parts) -> Option<&str> {
    parts.headers.get(USER_AGENT).and_then(|value| value.to_str().ok())
}

/// Returns the client's trace context from the header `traceparent`; `None` unless it is valid and sampled.
pub(super) fn trace_parent_of(parts: &Parts) -> Option<TraceParent> {
    parts.headers.get("traceparent")?.to_str().ok()?.parse().ok()
}

fn accepts_gzip(parts: &Parts) -> bool {
    let all = parts.headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let mut codings = all.flat_map(|value| value.split(','));
    codings.any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        name.trim() == "gzip" && weight.trim().replace(' ', "") != "q=0"
    })
}

/// Returns the identity of a reader for fairness: its name, or its address if all clients share the credential.
pub(in crate::api) fn reader_id(parts: &Parts) -> ReaderId {
    let reader = reader_of(parts);
    match reader.origin() {
        ReaderOrigin::Anonymous | ReaderOrigin::Administrator | ReaderOrigin::ReadToken => {}
        _ => return format_smolstr!("{NAMED}{}", reader.name()),
    }
    let address =
        parts.extensions.get::<PeerAddress>().map_or(SmolStr::default(), |peer| format_smolstr!("{}", peer.0));
    if parts.headers.contains_key(AUTHORIZATION) { format_smolstr!("token@{address}") } else { address }
}
