//! Parameters of a list or watch request: resource, selection, resourceVersion, representation.

use hyper::Request;
use hyper::header::ACCEPT;

use super::collection::ResourceDef;
use super::fault::RequestKind;
use super::filter::Filter;
use super::http::{Query, Status};
use super::media::{Accepted, Media, negotiate};
use super::protobuf::{has_message, writer_of};
use super::shared::Shared;
use super::world::World;
use super::writer::Writer;
use informer_hub_types::Gvr;

#[derive(Debug)]
pub(super) struct ObjectsRequest {
    pub(super) def: ResourceDef,
    pub(super) filter: Filter,
    pub(super) query: Query,
    pub(super) media: Media,
    /// Whether objects are `PartialObjectMetadata`.
    pub(super) partial: bool,
    /// Method and URI, for the fault log.
    pub(super) label: String,
}

impl ObjectsRequest {
    /// Parses a request and checks everything that does not depend on the stored objects.
    pub(super) fn parse<B>(
        shared: &Shared,
        request: &Request<B>,
        gvr: &Gvr,
        namespace: Option<&str>,
    ) -> Result<Self, Status> {
        let def = shared.with_world(|world| world.served_as(gvr));
        let def = def.filter(|def| namespace.is_none() || def.api.namespaced).ok_or_else(|| no_such_page(gvr))?;
        let query = Query::parse(request.uri().query().unwrap_or_default());
        if shared.is_forbidden(gvr) {
            let verb = if query.flag("watch") { "watch" } else { "list" };
            let message = format!(
                "{} is forbidden: User \"sim\" cannot {verb} resource \"{}\" in API group \"{}\" at the cluster scope",
                gvr.resource, gvr.resource, gvr.group
            );
            return Err(Status::new(403, "Forbidden", message));
        }
        let accept = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("*/*");
        let has_message = |partial| shared.config.protobuf && (partial || has_message(&def.api));
        let Some(Accepted { media, partial }) = negotiate(accept, has_message) else {
            let message = "only the following media types are accepted: application/json";
            return Err(Status::new(406, "NotAcceptable", message));
        };
        let filter = Filter::parse(namespace, query.get("labelSelector"), query.get("fieldSelector"))
            .map_err(|invalid| Status::bad_request(invalid.to_string()))?;
        let label = format!("{} {}", request.method(), request.uri());
        Ok(Self { def, filter, query, media, partial, label })
    }

    /// Returns `resourceVersion` as a number; `None` if it is absent.
    pub(super) fn version(&self) -> Result<Option<u64>, Status> {
        match self.query.get("resourceVersion") {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                Status::new(
                    422,
                    "Invalid",
                    format!("resourceVersion: Invalid value: {text:?}: strconv.ParseUint: invalid syntax"),
                )
            }),
        }
    }

    /// Returns a writer for the answer, in the negotiated encoding.
    pub(super) fn writer(&self) -> Writer {
        let writer = writer_of(&self.def.api, self.partial).filter(|_| self.media == Media::Protobuf);
        writer.map_or(Writer::Json, |writer| Writer::Protobuf(Box::new(writer)))
    }

    pub(super) fn not_found(&self) -> Status {
        no_such_page(&self.def.api.gvr)
    }

    /// Returns whether the request lists one object, only to learn the current version.
    fn is_check(&self) -> bool {
        self.query.get("limit") == "1" && self.query.get("resourceVersion").is_empty()
    }

    pub(super) fn kind(&self) -> RequestKind {
        let watch = self.query.flag("watch");
        match (watch, self.query.flag("sendInitialEvents"), self.query.get("continue").is_empty()) {
            (true, true, _) => RequestKind::Streaming,
            (true, false, _) => RequestKind::Watch,
            (false, _, true) if self.is_check() => RequestKind::Check,
            (false, _, true) => RequestKind::List,
            (false, _, false) => RequestKind::Continue,
        }
    }
}

fn no_such_page(gvr: &Gvr) -> Status {
    Status::new(404, "NotFound", format!("the server could not find the requested resource ({})", gvr.long()))
}

/// Returns whether clients watch this resource to notice which other resources are served.
pub(super) fn is_signal(gvr: &Gvr) -> bool {
    *gvr == World::definitions() || *gvr == World::services()
}
