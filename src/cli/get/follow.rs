//! `get --watch`: prints the list, then every change.
//!
//! A watch that ends is opened again at its last resource version. If the hub no longer has the changes since then, the
//! whole list is printed again.

use std::process::ExitCode;
use std::time::Duration;

use super::sink::Sink;
use crate::cli::client::{Answer, Client, Refused, Request};
use crate::cli::objects::{List, Page, Retry, Warnings};
use informer_hub_apiclient::{Lines, Refusal, WatchEvent};

/// Longest silence of a watch: the hub sends bookmarks at least every minute.
const SILENCE: Duration = Duration::from_secs(90);
/// Maximum size of a watch event in bytes. An object has at most 16 MiB; a table row has the object besides its cells.
const LONGEST: usize = 64 << 20;

/// Prints list and changes until the process ends.
///
/// # Errors
/// If the first list fails, or a later request is answered with a 4xx status other than 410 and 429. Also if the reader
/// of the output has closed it.
pub(super) async fn follow<S: Sink>(
    client: &Client,
    list: &List<'_>,
    sink: &mut S,
    warnings: &mut Warnings,
) -> anyhow::Result<ExitCode> {
    let mut version = begin(client, list, sink, warnings).await?;
    let (mut is_expired, mut retry) = (false, Retry::default());
    loop {
        let result = if is_expired {
            begin(client, list, sink, warnings).await.map(|begun| {
                version = begun;
                End::Closed
            })
        } else {
            watch(client, list, sink, warnings, &mut version).await
        };
        match result {
            Ok(end) => {
                is_expired = end == End::Expired;
                retry.ended().await;
            }
            Err(error) => retry.failed(error).await?,
        }
    }
}

/// Prints the list, and returns its resource version, from which the watch starts.
async fn begin<S: Sink>(
    client: &Client,
    list: &List<'_>,
    sink: &mut S,
    warnings: &mut Warnings,
) -> anyhow::Result<String> {
    let ended = list.read(client, warnings, |page| sink.page(list.resource, page)).await?;
    sink.end_of(list.resource)?;
    Ok(ended.version)
}

/// How a watch has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// The connection was closed; the watch can continue.
    Closed,
    /// The hub no longer has the changes since the watch's resource version (410), so a new list is needed.
    Expired,
}

async fn watch<S: Sink>(
    client: &Client,
    list: &List<'_>,
    sink: &mut S,
    warnings: &mut Warnings,
    version: &mut String,
) -> anyhow::Result<End> {
    let mut request: Request<'_> = list.request(S::Page::ACCEPT);
    request.query.extend([
        ("watch", "true".to_owned()),
        ("allowWatchBookmarks", "true".to_owned()),
        ("resourceVersion", version.clone()),
    ]);
    let mut answer: Answer<'_> = match client.open(&request).await {
        Ok(answer) => answer,
        Err(error) if error.downcast_ref::<Refused>().is_some_and(|it| it.refusal.code == 410) => return Ok(expired()),
        Err(error) => return Err(error),
    };
    warnings.print(answer.warnings());
    let mut lines = Lines::new(LONGEST);
    while let Some(part) = answer.part(SILENCE).await? {
        for line in lines.push(&part)? {
            if line.is_empty() {
                continue;
            }
            let event = WatchEvent::parse(&line)?;
            if event.kind == "ERROR" {
                let refusal = Refusal::of_event(event.object.get());
                return match refusal {
                    Some(refusal) if refusal.code == 410 => Ok(expired()),
                    Some(refusal) => Err(anyhow::anyhow!(refusal.message)),
                    None => Err(anyhow::anyhow!("the hub ended the watch")),
                };
            }
            if event.kind != "BOOKMARK" {
                sink.event(list.resource, event.object.get())?;
            }
            if let Some(newer) = event.version() {
                *version = newer;
            }
        }
    }
    Ok(End::Closed)
}

fn expired() -> End {
    note!("informer-hub: the hub does not have the changes since the last event any more; the list follows");
    End::Expired
}
