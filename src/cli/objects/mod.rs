//! Parts that the commands that read objects share: clusters and namespaces, names of resources, pages, output.

mod documents;
mod output;
mod pages;
mod place;
mod resources;
mod retry;
mod table;
mod warnings;

pub(super) use self::documents::{Documents, whole_list};
pub(super) use self::output::{FORMATS, Output, print_template};
pub(super) use self::pages::{Ended, List, Page};
pub(super) use self::place::PlaceArgs;
pub(super) use self::resources::resources;
pub(super) use self::retry::Retry;
pub(super) use self::table::{TableWriter, csv_line};
pub(super) use self::warnings::Warnings;
