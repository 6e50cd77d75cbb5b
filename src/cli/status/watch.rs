//! `--watch`: the same again and again, in place on a terminal, else a line for each change. While the hub gives no
//! answer that is said, with its beginning, and the last answer is no longer shown as the present.

use std::io::IsTerminal;
use std::time::Duration;

use comfy_table::Color;
use jiff::Timestamp;
use serde_json::Value;

use super::rows::{self, Row};
use super::select::{self, Selection};
use super::{Form, Subject, View, changes, page};
use crate::cli::client::{Client, Unanswered};
use crate::cli::print::{InPlace, colours, out, painted, say, span, width, wrapped, yaml};
use informer_hub_config::HumanDuration;
use informer_hub_types::{clock, printable, printable_json};

/// How long an answer may take before the hub counts as unreachable.
const PATIENCE: Duration = Duration::from_secs(5);

/// Watches until a signal ends it, or its output has no reader any more.
///
/// # Errors
/// Why the first answer is none; later ones are waited for.
pub(super) async fn watch(client: &Client, subject: Subject, selection: &Selection, view: &View) -> anyhow::Result<()> {
    let mut watch = Watch {
        subject,
        form: view.output,
        every: view.interval,
        address: client.address(),
        terminal: || (width(), colours()),
        place: (std::io::stdout().is_terminal() && view.output == Form::Table).then(InPlace::default),
        rows: None,
        last: None,
        outage: None,
    };
    let mut tick = clock::ticks(view.interval.0);
    loop {
        tick.tick().await;
        let answer = client.get_within(&["v1", "status"], PATIENCE).await;
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
    /// Columns that there are, and whether there are colours. Asked again each time: a window changes its size.
    terminal: fn() -> (Option<usize>, bool),
    /// Where it is drawn over and over; `None`: lines are written.
    place: Option<InPlace>,
    /// The rows of which changes were written.
    rows: Option<Vec<Row>>,
    /// The last answer, and when it came.
    last: Option<(Timestamp, Value)>,
    /// Since when there is none.
    outage: Option<Timestamp>,
}

impl Watch {
    fn answered(&mut self, status: Value, now: Timestamp) -> anyhow::Result<()> {
        let outage = self.outage.take();
        let shown = self.shown(&status, now, None);
        match (&mut self.place, self.form) {
            (Some(place), _) => place.draw(&shown)?,
            (None, Form::Table) => {
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
        let what = if error.is::<Unanswered>() { "unreachable" } else { "no status" };
        let last = self.last.as_ref().map(|(at, status)| (*at, stale(status)));
        let shown = last.map(|(at, status)| {
            let trouble = format!("hub {what} since {} ({}): {error_text}", time(since), ago(since, now));
            self.shown(&status, now, Some((&trouble, at)))
        });
        match (&mut self.place, self.form) {
            (Some(place), _) => place.draw(&shown.unwrap_or_default()),
            (None, Form::Table) if is_new => say(format_args!("{} hub: {what}: {error_text}", time(now))),
            (None, _) if is_new => {
                eprintln!("informer-hub: {} hub {what}: {error_text}", time(now));
                Ok(())
            }
            (None, _) => Ok(()),
        }
    }

    /// A screen: a clock and how to end it, what is wrong with the hub itself since an earlier answer, and that answer.
    fn shown(&self, status: &Value, now: Timestamp, trouble: Option<(&str, Timestamp)>) -> String {
        let (width, colours) = (self.terminal)();
        let room = width.unwrap_or(usize::MAX);
        let head = format!("{}  {}  every {}, Ctrl-C ends", time(now), self.address, self.every);
        let trouble = trouble.map(|(trouble, at)| {
            let trouble = painted(&wrapped(trouble, room, "  "), Color::Red, colours);
            format!("\n{trouble}\nit is tried again; its last answer, of {}:\n", time(at))
        });
        let page = page(self.subject, status, width, colours);
        format!("{}\n{}\n{page}", wrapped(&head, room, "  "), trouble.unwrap_or_default())
    }
}

/// An answer of the past: what held then is not claimed to hold.
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
    fn a_screen_has_a_clock_and_says_how_to_end_it_and_a_dead_hub_is_not_ready() {
        let mut watch = Watch {
            subject: Subject::Status,
            form: Form::Name,
            every: HumanDuration(Duration::from_secs(2)),
            address: "http://127.0.0.1:7080".to_owned(),
            terminal: || (None, false),
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
        assert_eq!(watch.outage, Some(at(7)), "of an outage the beginning counts");
        let dead = watch.shown(&stale(&status), at(19), Some(("hub unreachable since 00:00:07Z (12s): x", at(5))));
        let wanted = "00:00:19Z  http://127.0.0.1:7080  every 2s, Ctrl-C ends\n\nhub unreachable since 00:00:07Z (12s): x\n\
                      it is tried again; its last answer, of 00:00:05Z:\n\nready      unknown\n";
        assert!(dead.starts_with(wanted), "{dead}");
        watch.answered(status, at(20)).unwrap();
        assert_eq!(watch.outage, None);
    }
}
