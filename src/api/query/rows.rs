//! Writer of answers in chunks of bounded size. Each chunk is written in one turn of the fair queue of readers.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use futures::stream;

use super::cells::{Items, append};
use super::meta;
use super::request::ParsedQuery;
use crate::api::extensions::{Finite, Streaming};
use crate::api::kubernetes::{Admission, CacheInfo, Fleet, ReadApi, ReaderId, reader_id};
use crate::api::notes::Notes;
use crate::api::rights::reader_of;
use crate::api::v1::{Failure, Form, Sight, accepted};
use informer_hub_query::Output;
use informer_hub_screen::{Column, Layout, csv_record};

/// Number of bytes after which a chunk of the answer ends.
const CHUNK: usize = 128 << 10;

/// Maximum number of items from which the column widths of a text table are computed.
const MEASURED: usize = 1_000;

/// Header with the continue token, for forms such as CSV that have no place for it in the body.
const CONTINUE: HeaderName = HeaderName::from_static("informer-hub-continue");

/// Forms of an answer that a client can select.
const FORMS: [Form; 4] = [Form::Json, Form::Lines, Form::Csv, Form::Text];

/// Answers a query of a cache.
pub(super) async fn answer(
    api: &Arc<ReadApi>,
    fleet: &dyn Fleet,
    cache: CacheInfo,
    parts: &Parts,
    asked: ParsedQuery,
) -> Result<Response, Failure> {
    let form = accepted(parts, &FORMS)?;
    let reader = reader_id(parts);
    let user = reader_of(parts);
    let admission = api.admit(&reader, &user)?;
    let sight = Sight::of(api, parts);
    let (query, visibility) = sight.restrict(&cache, asked.query(fleet, &sight)?).await;
    let explain = query.is_explained();
    let scan = (query.is_scan() && !explain).then(|| api.admit_scan(&reader, &user)).transpose()?;
    let mut answer = fleet.query(&cache, query).await?;
    drop(scan);
    let notes = Notes::of(parts);
    notes.resource(&cache.resource.gvr);
    notes.clusters(answer.coverage.iter().map(|part| &part.cluster));
    let output = asked.question.output;
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(form.content_type()));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    meta::warn(&answer, &visibility, headers);
    if let Some(token) = answer.next.as_ref().and_then(|token| HeaderValue::from_str(token).ok()) {
        headers.insert(CONTINUE, token);
    }
    let items = Items::of(&mut answer, &output);
    let mut head = Vec::new();
    if explain || form == Form::Json {
        let mut members = meta::members(&answer, (&cache.resource, &visibility), explain);
        if let Items::Rows(_) = &items {
            members.insert("columns".to_owned(), Items::titles(&output).into());
        }
        append(&mut head, &members);
    }
    if explain {
        head.push(b'\n');
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(Form::Json.content_type()));
        *response.body_mut() = Body::from(head);
        return Ok(response);
    }
    let writer = Writer::new(form, items, &output, head);
    let rest = Rest { api: Arc::clone(api), writer, reader, admission, notes };
    *response.body_mut() = Body::from_stream(stream::unfold(rest, |mut rest| async {
        let chunk = rest.next().await?;
        Some((Ok::<_, Infallible>(chunk), rest))
    }));
    response.extensions_mut().insert(Streaming);
    response.extensions_mut().insert(Finite);
    Ok(response)
}

/// Writes the body of an answer chunk by chunk.
#[derive(Debug)]
struct Writer {
    form: Form,
    items: Items,
    titles: Vec<String>,
    layout: Option<Layout>,
    /// Bytes before the first item; `None` once they are written.
    head: Option<Vec<u8>>,
    at: usize,
    is_done: bool,
}

impl Writer {
    /// Creates a writer. `members` is a JSON object with the members that precede the items in a JSON answer; other
    /// forms do not contain these members.
    fn new(form: Form, items: Items, output: &Output, mut members: Vec<u8>) -> Self {
        let titles = Items::titles(output);
        let mut layout = None;
        let head = match form {
            Form::Json => {
                // Removes the closing brace, to append the items.
                members.pop();
                members.push(b',');
                append(&mut members, items.member());
                members.push(b':');
                if !matches!(items, Items::Count(_)) {
                    members.push(b'[');
                }
                members
            }
            Form::Lines | Form::Events => Vec::new(),
            Form::Csv => csv_record(titles.iter().map(String::as_str)).into_bytes(),
            Form::Text => {
                let column = |title: &String| Column { title: title.to_uppercase(), priority: 0 };
                let columns: Vec<_> = titles.iter().map(column).collect();
                let first: Vec<_> = (0..items.len().min(MEASURED)).map(|at| items.cells(at)).collect();
                let layout = layout.insert(Layout::new(&columns, &first, None));
                (layout.header() + "\n").into_bytes()
            }
        };
        Self { form, items, titles, layout, head: Some(head), at: 0, is_done: false }
    }

    /// Appends the next chunk.
    fn write(&mut self, out: &mut Vec<u8>) {
        out.extend(self.head.take().unwrap_or_default());
        while self.at < self.items.len() && out.len() < CHUNK {
            match (self.form, &self.layout) {
                (Form::Json, _) => {
                    if self.at > 0 {
                        out.push(b',');
                    }
                    self.items.write(self.at, &self.titles, false, out);
                }
                (Form::Text, Some(layout)) => {
                    out.extend(layout.line(&self.items.cells(self.at), false).into_bytes());
                    out.push(b'\n');
                }
                (Form::Csv, _) => {
                    let cells = self.items.cells(self.at);
                    out.extend(csv_record(cells.iter().map(String::as_str)).into_bytes());
                }
                _ => {
                    self.items.write(self.at, &self.titles, true, out);
                    out.push(b'\n');
                }
            }
            self.at += 1;
        }
        if self.at == self.items.len() {
            self.is_done = true;
            if self.form == Form::Json {
                let is_array = !matches!(self.items, Items::Count(_));
                out.extend_from_slice(if is_array { b"]}\n" } else { b"}\n" });
            }
        }
    }
}

/// The part of an answer that is not sent yet.
struct Rest {
    api: Arc<ReadApi>,
    writer: Writer,
    reader: ReaderId,
    notes: Notes,
    /// Admission of the request, dropped when the client has taken the whole answer.
    #[expect(dead_code, reason = "ends with the answer")]
    admission: Admission,
}

impl Rest {
    async fn next(&mut self) -> Option<Bytes> {
        if self.writer.is_done {
            return None;
        }
        let _turn = self.api.turn(&self.reader).await;
        let mut chunk = Vec::new();
        self.writer.write(&mut chunk);
        self.notes.served(self.writer.at as u64);
        self.api.sent(chunk.len());
        Some(chunk.into())
    }
}
