//! Readers of the hub and what they may see.
//!
//! A [`Reader`] is the authenticated sender of a request. Its [`Grants`] are its rights: static [`Rule`]s, access reviews
//! by the clusters ([`Reviews`]), or both. An object is visible if one of them allows it.
//!
//! Decisions are made per cluster, resource and namespace, never per object name. [`Visibility`] has the decisions for
//! one resource, and [`Visible`] those for one cluster of it.
//!
//! # Layout
//!
//! `reader` and `rule` are the data; `namespaces`, `visible` and `visibility` evaluate it. `review` is the interface to
//! the clusters, `cache` keeps their answers, `meter` counts them. `directory` finds the reader of a credential: a
//! static token (`token`), a client certificate, a JWT of an issuer (`oidc`, over `jwt` and `jwks`), or a service
//! account's token (`token_review`).

mod cache;
mod certificate;
mod directory;
mod flights;
mod jwks;
mod jwt;
mod meter;
mod namespaces;
mod oidc;
mod reader;
mod review;
mod rule;
mod token;
mod token_review;
mod visibility;
mod visible;

pub use cache::{ReviewCache, ReviewCacheOptions};
pub use certificate::ClientCertificate;
pub use directory::{Directory, DirectoryEntry, Identity};
pub use meter::{ReviewCounts, ReviewMeter};
pub use namespaces::Namespaces;
pub use oidc::{FetchDocument, FetchFailure, InvalidJwt, Oidc, OidcSettings};
pub use reader::{Grants, Reader, ReaderLimits, ReaderOrigin, ReaderParts};
pub use review::{Review, ReviewError, Reviews, User, Verb};
pub use rule::{ResourceMatch, Rule};
pub use token::{InvalidToken, TokenMac, check_token};
pub use token_review::{RefusedToken, ReviewTokens, ServiceAccount, TokenReviewSettings, TokenReviewer};
pub use visibility::{Reviewed, ReviewedCluster, Visibility};
pub use visible::Visible;
