//! `--watch`: repeats a status command, in place on a terminal, otherwise with a line for each change.
//!
//! While the hub does not answer, the output shows since when, and marks the last answer as old.

use std::io::IsTerminal;
use std::time::Duration;

use comfy_table::Color;
use jiff::Timestamp;
use serde_json::Value;

use super::args::{Form, View};
use super::rows::{self, Row};
use super::screen::{changes, page};
use super::select::{self, Selection};
use super::subject::Subject;
use crate::cli::client::{Client, Unanswered};
use crate::cli::print::{InPlace, colours, out, painted, say, span, wrapped, yaml};
use informer_hub_config::HumanDuration;
use informer_hub_types::{clock, printable, printable_json};

/// Timeout of a request, after which the hub counts as unreachable.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Runs until a signal ends the process, or the program that reads the output ends.
///
/// # Errors
/// If the first request fails. Later failures are shown and retried.
pub(super) async fn watch(client: &Client, subject: Subject, selection: &Selection, view: &View) -> anyhow::Result<()> {
    let mut watch = Watch {
        subject,
        form: view.output,
        every: view.interval,
        address: client.address(),
        terminal: |form| (form.width(), colours()),
        place: (std::io::stdout().is_terminal() && view.output.is_table()).then(InPlace::default),
        rows: None,
        last: None,
        outage: None,
    };
    let mut tick = clock::ticks(view.interval.0);
    loop {
        tick.tick().await;
        let answer = client.get_within(&["v1", "status"], TIMEOUT).await;
        match answer.and_then(|status| selection.of(&status)) {
            Ok(status) => watch.answered(status, clock::wall())?,
            Err(error) if watch.last.is_none() => return Err(error),
            Err(error) => watch.unanswered(&error, clock::wall())?,
        }
    }
}

struct Watch {
    subject: Subject,
    form: Form,
    every: HumanDuration,
    address: String,
    /// Returns the width of the table (`None` for no limit), and whether to use colours. Called for each drawing,
    /// because a window may be resized.
    terminal: fn(Form) -> (Option<usize>, bool),
    /// Area of the terminal that is redrawn in place; `None` to print a line for each change.
    place: Option<InPlace>,
    /// Rows of the last status document, to find what changed in the next one.
    rows: Option<Vec<Row>>,
    /// Last status document from the hub, and its time.
    last: Option<(Timestamp, Value)>,
    /// Time since which the hub does not answer; `None` while it answers.
    outage: Option<Timestamp>,
}

impl Watch {
    fn answered(&mut self, status: Value, now: Timestamp) -> anyhow::Result<()> {
        let outage = self.outage.take();
        let shown = self.shown(&status, now, None);
        match (&mut self.place, self.form) {
            (Some(place), _) => place.draw(&shown)?,
            (None, Form::Table | Form::Wide) => {
                if let Some(since) = outage {
                    say(format_args!("{} hub: answers again after {}", time(now), ago(since, now)))?;
                }
                let rows = rows::rows(self.subject, &status);
                let changes = changes(self.subject, self.rows.as_deref(), &rows);
                changes.into_iter().try_for_each(|change| say(printable(&change)))?;
                self.rows = Some(rows);
            }
            (None, Form::Json) => say(printable_json(&select::document(self.subject, &status).to_string()))?,
            (None, _) => out(&format!("---\n{}", yaml(&select::document(self.subject, &status))?))?,
        }
        self.last = Some((now, status));
        Ok(())
    }

    fn unanswered(&mut self, error: &anyhow::Error, now: Timestamp) -> anyhow::Result<()> {
        let is_new = self.outage.is_none();
        let since = *self.outage.get_or_insert(now);
        let error_text = printable(&format!("{error:#}"));
        let state = if error.is::<Unanswered>() { "unreachable" } else { "no status" };
        let last = self.last.as_ref().map(|(at, status)| (*at, stale(status)));
        let shown = last.map(|(at, status)| {
            let trouble = format!("hub {state} since {} ({}): {error_text}", time(since), ago(since, now));
            self.shown(&status, now, Some((&trouble, at)))
        });
        match (&mut self.place, self.form) {
            (Some(place), _) => place.draw(&shown.unwrap_or_default()),
            (None, Form::Table | Form::Wide) if is_new => say(format_args!("{} hub: {state}: {error_text}", time(now))),
            (None, _) if is_new => {
                note!("informer-hub: {} hub {state}: {error_text}", time(now));
                Ok(())
            }
            (None, _) => Ok(()),
        }
    }

    /// Renders a screen: time and address, the outage if there is one, and the last answer.
    fn shown(&self, status: &Value, now: Timestamp, trouble: Option<(&str, Timestamp)>) -> String {
        let (width, colours) = (self.terminal)(self.form);
        let room = width.unwrap_or(usize::MAX);
        let head = format!("{}  {}  every {}, Ctrl-C ends", time(now), self.address, self.every);
        let trouble = trouble.map(|(trouble, at)| {
            let trouble = painted(&wrapped(trouble, room, "  "), Color::Red, colours);
            format!("\n{trouble}\nretrying; the last answer, of {}:\n", time(at))
        });
        let page = page(self.subject, status, width, colours);
        format!("{}\n{}\n{page}", wrapped(&head, room, "  "), trouble.unwrap_or_default())
    }
}

/// Returns a copy of an old answer without its readiness, which is no longer known.
fn stale(status: &Value) -> Value {
    let mut status = status.clone();
    if let Some(members) = status.as_object_mut() {
        members.remove("ready");
    }
    status
}

pub(super) fn time(at: Timestamp) -> String {
    at.strftime("%H:%M:%SZ").to_string()
}

fn ago(since: Timestamp, now: Timestamp) -> String {
    span(now.as_second().saturating_sub(since.as_second()).max(0).unsigned_abs())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_screen_has_a_header_and_an_unreachable_hub_is_not_ready() {
        let mut watch = Watch {
            subject: Subject::Status,
            form: Form::Name,
            every: HumanDuration(Duration::from_secs(2)),
            address: "http://127.0.0.1:7080".to_owned(),
            terminal: |_| (None, false),
            place: None,
            rows: None,
            last: None,
            outage: None,
        };
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let status = json!({ "ready": true, "clusters": [], "sinks": [] });
        let shown = watch.shown(&status, at(5), None);
        assert!(
            shown.starts_with("00:00:05Z  http://127.0.0.1:7080  every 2s, Ctrl-C ends\n\nready      yes\n"),
            "{shown}"
        );
        watch.last = Some((at(5), status.clone()));
        watch.unanswered(&Unanswered::of("nothing listens").into(), at(7)).unwrap();
        watch.unanswered(&Unanswered::of("nothing listens").into(), at(19)).unwrap();
        assert_eq!(watch.outage, Some(at(7)), "the beginning of the outage");
        let dead = watch.shown(&stale(&status), at(19), Some(("hub unreachable since 00:00:07Z (12s): x", at(5))));
        let expected = "00:00:19Z  http://127.0.0.1:7080  every 2s, Ctrl-C ends\n\nhub unreachable since 00:00:07Z (12s): x\n\
                      retrying; the last answer, of 00:00:05Z:\n\nready      unknown\n";
        assert!(dead.starts_with(expected), "{dead}");
        watch.answered(status, at(20)).unwrap();
        assert_eq!(watch.outage, None);
    }
}
