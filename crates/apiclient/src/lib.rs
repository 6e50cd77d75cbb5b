//! Client side of the hub's HTTP API. Pure: no I/O, no clock.
//!
//! # Layout
//!
//! - [`Resources`]: the resources of a hub, found by the words that kubectl accepts.
//! - [`TablePage`], [`ListPage`]: pages of a list, as cells or as objects.
//! - [`QueryAnswer`]: an answer of the query language.
//! - [`WatchEvent`]: an event of a Kubernetes watch.
//! - [`StreamEvent`]: a line of the stream of changes.
//! - [`Refusal`]: an error answer of the hub, in either of its two JSON forms.
//! - [`warning_text`]: the text of a `Warning` header.
//! - [`parse_deep`]: reads JSON of any depth that an apiserver accepts.
//! - [`Lines`]: splits a stream into lines of bounded length.

mod change;
mod deep;
mod lines;
mod list;
mod query;
mod refusal;
mod resources;
mod table;
mod warning;

pub use change::{ChangeData, ChangeResource, ChangedPath, StreamEvent};
pub use deep::{DEEP_STACK, parse_deep};
pub use lines::{LineTooLong, Lines};
pub use list::{ListPage, PageMeta, WatchEvent};
pub use query::{Coverage, Group, QueryAnswer, QueryItem, plan_parts, value_text};
pub use refusal::Refusal;
pub use resources::{DISCOVERY, Resource, Resources, UnknownResource};
pub use table::{TABLE, TableColumn, TablePage, TableRow};
pub use warning::warning_text;
