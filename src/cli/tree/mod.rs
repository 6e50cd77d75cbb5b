//! `informer-hub tree`: owners and children of an object.

mod branches;

use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args as ClapArgs;
use serde::Deserialize;
use serde_json::Value;

use self::branches::rows;
use super::client::{Client, HubArgs, Request};
use super::objects::{List, PlaceArgs, TableWriter, Warnings, resources};
use super::print::{Format, json, out, say, yaml};
use super::{Misuse, interruptible, runtime};
use informer_hub_apiclient::{ListPage, Resource};
use informer_hub_kubeapi::CLUSTER_KEY;
use informer_hub_screen::Column;
use informer_hub_types::printable;

/// Maximum size in bytes of the hub's answer about an object.
const LONGEST: usize = 256 << 20;
/// Maximum number of objects of one name whose trees are printed.
const MOST: usize = 20;

/// Arguments of `tree`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  informer-hub tree deployment web -n shop\n  \
    informer-hub tree pod web-0 --clusters prod-eu\n  informer-hub tree pod/web-0 -o json\n\n\
    The first line is the topmost owner that the hub has. The object is marked with *. If several clusters or namespaces \
    have an object of this name, each is printed.\n\n\
    Exit code 0: done. 1: there is no such object, or the hub refuses or does not answer. 2: wrong command line.")]
pub(super) struct Args {
    /// RESOURCE NAME, or RESOURCE/NAME
    #[arg(required = true, num_args = 1..=2, value_name = "RESOURCE NAME")]
    what: Vec<String>,
    #[command(flatten)]
    place: PlaceArgs,
    /// The output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    hub: HubArgs,
}

/// Cluster and namespace of an object.
#[derive(Debug)]
struct ObjectPlace {
    cluster: String,
    namespace: Option<String>,
}

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    namespace: Option<String>,
    #[serde(default)]
    annotations: std::collections::BTreeMap<String, String>,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let client = args.hub.client()?;
    interruptible(&runtime()?, run(args, &client))
}

async fn run(args: &Args, client: &Client) -> anyhow::Result<ExitCode> {
    let (word, name) = match &args.what[..] {
        [both] => both.split_once('/').unwrap_or((both, "")),
        [resource, name] => (resource.as_str(), name.as_str()),
        _ => ("", ""),
    };
    if name.is_empty() || name.contains('/') {
        return Err(Misuse::error("write RESOURCE NAME or RESOURCE/NAME, e.g. informer-hub tree deployment web"));
    }
    let known = resources(client, args.place.root()).await?;
    let found = known.find(word)?;
    let [resource] = found[..] else {
        return Err(Misuse::error(format!("{word} is a category; name one resource")));
    };
    let places = find(args, client, resource, name).await?;
    if places.is_empty() {
        bail!("{} {name:?} not found{}", resource.api.gvr, args.place.described());
    }
    let mut documents = Vec::new();
    let mut writer = TableWriter::new(true);
    for place in &places {
        // Only JSON and YAML show events.
        let has_events = args.output != Format::Text;
        let document = object(client, resource, name, place, has_events).await?;
        if args.output == Format::Text {
            writer.begin(columns())?;
            rows(&document).into_iter().try_for_each(|row| writer.row(row))?;
            notes(&document, &mut writer)?;
        } else {
            documents.push(document);
        }
    }
    if args.output == Format::Text {
        writer.end()?;
        return Ok(ExitCode::SUCCESS);
    }
    let document = if documents.len() == 1 { documents.remove(0) } else { Value::Array(documents) };
    match args.output {
        Format::Yaml => out(&yaml(&document)?)?,
        _ => say(json(&document)?)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the clusters and namespaces that have an object of this name. Fails if there are more than [`MOST`].
async fn find(args: &Args, client: &Client, resource: &Resource, name: &str) -> anyhow::Result<Vec<ObjectPlace>> {
    let list = List {
        resource,
        root: args.place.root(),
        namespace: args.place.namespace.as_deref(),
        selectors: vec![("fieldSelector", format!("metadata.name={name}"))],
        limit: Some(MOST + 1),
    };
    let mut places = Vec::new();
    let take = |page: ListPage| {
        for item in page.items {
            let Metadata { namespace, mut annotations } = serde_json::from_str::<Object>(item.get())?.metadata;
            let cluster = annotations.remove(CLUSTER_KEY).unwrap_or_else(|| args.place.clusters.clone());
            places.push(ObjectPlace { cluster, namespace });
        }
        Ok(())
    };
    list.read(client, &mut Warnings::default(), take).await?;
    if places.len() > MOST {
        bail!("more than {MOST} objects have the name {name:?}; give --clusters and -n");
    }
    Ok(places)
}

async fn object(
    client: &Client,
    resource: &Resource,
    name: &str,
    place: &ObjectPlace,
    events: bool,
) -> anyhow::Result<Value> {
    let gvr = resource.api.gvr.long();
    let mut path = vec!["v1", "objects", &place.cluster, &gvr];
    path.extend(place.namespace.as_deref());
    path.push(name);
    let query = vec![("events", events.to_string())];
    let request = Request { path, query, accept: "application/json", ..Request::default() };
    let (body, warnings) = client.whole(&request, LONGEST).await?;
    Warnings::default().print(warnings);
    serde_json::from_slice(&body)
        .with_context(|| format!("the answer of the server at {} is not valid JSON; check --url", client.address()))
}

fn columns() -> Vec<Column> {
    let column = |title: &str| Column { title: title.to_owned(), priority: 0 };
    ["CLUSTER", "NAMESPACE", "NAME", "STATUS"].map(column).to_vec()
}

/// Prints notes about the tree on standard error.
fn notes(document: &Value, writer: &mut TableWriter) -> anyhow::Result<()> {
    let end = document["ownersEnd"].as_str();
    let more = document["childrenMore"] == true;
    if end.is_some() || more {
        writer.flush()?;
    }
    if let Some(end) = end {
        note!("informer-hub: the tree may have more owners above its root: {}", printable(end));
    }
    if more {
        note!("informer-hub: the object has more children than these");
    }
    Ok(())
}
