//! Extensions that the connection adds to requests, and that handlers add to responses.

use std::net::IpAddr;

/// Address of the client, as an extension of the request.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerAddress(pub(super) IpAddr);

/// Marks a response whose body is a stream, as an extension: the connection is busy until the stream ends, and closes
/// if the client does not read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Streaming;

/// Marks a stream that has an end, as an extension: the connection breaks it off if the client reads it very slowly.
#[derive(Clone, Copy, Debug)]
pub(super) struct Finite;
