//! Readers of the hub and what they may see.
//!
//! A [`Reader`] is the authenticated sender of a request. Its [`Grants`] decide its rights: static [`Rule`]s, access
//! reviews by the clusters themselves ([`Reviews`]), or both. One of them suffices.
//!
//! A decision is made per cluster, resource and namespace. [`Visibility`] has the decisions for one resource, and
//! [`Visible`] those for one cluster of it. Names of objects are not looked at.
//!
//! # Layout
//!
//! `reader` and `rule` are the data, `namespaces`, `visible` and `visibility` evaluate it. `review` is the port to the clusters, `cache`
//! keeps their answers.

mod cache;
mod namespaces;
mod reader;
mod review;
mod rule;
mod visibility;
mod visible;

pub use cache::{ReviewCache, ReviewCacheOptions, ReviewCounts};
pub use namespaces::Namespaces;
pub use reader::{Grants, Reader, ReaderLimits, ReaderOrigin, ReaderParts};
pub use review::{Review, ReviewError, Reviews, User, Verb};
pub use rule::{ResourceMatch, Rule};
pub use visibility::{Reviewed, ReviewedCluster, Visibility};
pub use visible::Visible;
