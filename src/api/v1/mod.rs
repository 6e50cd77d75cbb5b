//! Parts shared by the paths below `/v1` that read objects: parameters, names of resources and clusters, failures, and
//! the view of the reader.
//!
//! Each path declares itself as a [`Route`]. The check of its parameters and the OpenAPI document come from that
//! declaration. A test compares the declarations with the router.

mod changed;
mod clusters;
mod failure;
mod form;
mod parameters;
mod resource;
mod route;
mod sight;

pub(super) use changed::changed_members;
pub(super) use clusters::ClusterChoice;
pub(super) use failure::Failure;
pub(super) use form::{Form, accepted};
pub(super) use parameters::{Parameters, check_names, duration_of};
pub(super) use resource::{find, find_all, short_name};
pub(super) use route::{Answer, Kind, Media, Method, Operation, Parameter, Place, Route};
pub(super) use sight::Sight;
