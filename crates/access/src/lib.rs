//! Readers of the hub and what they may see.
//!
//! A [`Reader`] is the authenticated sender of a request. Its [`Grants`] are its rights: static [`Rule`]s, access
//! reviews by the clusters ([`Reviews`]), or both. An object is visible if a rule or a review allows it.
//!
//! Decisions are made per cluster, resource and namespace, never per object name. [`Visibility`] has the decisions for
//! one resource, and [`Visible`] those for one resource in one cluster.
//!
//! # Layout
//!
//! `reader` and `rule` are the data; `namespaces`, `visible` and `visibility` evaluate it. `review` is the interface to
//! the clusters, `cache` keeps their answers, and `meter` counts the reviews.
//!
//! `directory` finds the reader of a credential. Static tokens are in `token`, JWTs of an issuer in `oidc`, `jwt` and
//! `jwks`, and tokens of service accounts in `token_review`.

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
