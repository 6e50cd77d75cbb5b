//! Table columns of jobs and cron jobs.

use serde::Deserialize;

use super::Row;
use super::age::{Time, human_duration};
use super::fields::{Condition, Count, List, Meta, Selector, Template, Text, is_true};
use super::kind::{AGE, CONTAINERS, IMAGES, Kind, NAME, SELECTOR, boolean, cells, decode, integer, text};

pub(super) const JOBS: Kind = Kind {
    columns: &[
        NAME,
        text("Status", "Outcome of the job, or how far it is"),
        text("Completions", "Pods that succeeded, of those that have to"),
        text("Duration", "Time from the start of the job to its completion, or to now"),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    print: job,
};

pub(super) const CRON_JOBS: Kind = Kind {
    columns: &[
        NAME,
        text("Schedule", "Schedule in cron's format"),
        text("Timezone", "Time zone of the schedule"),
        boolean("Suspend", "Whether no more jobs are started"),
        integer("Active", "Number of jobs that run"),
        text("Last Schedule", "Time since a job was last started"),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    print: cron_job,
};

#[derive(Deserialize, Default)]
#[serde(default)]
struct Job<'j> {
    #[serde(borrow)]
    metadata: Meta<'j>,
    #[serde(borrow)]
    spec: JobSpec<'j>,
    #[serde(borrow)]
    status: JobStatus<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct JobSpec<'j> {
    completions: Option<i64>,
    parallelism: Option<i64>,
    #[serde(borrow)]
    selector: Option<Selector<'j>>,
    #[serde(borrow)]
    template: Template<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct JobStatus<'j> {
    #[serde(borrow)]
    conditions: List<Condition<'j>>,
    start_time: Option<Time>,
    completion_time: Option<Time>,
    succeeded: i64,
}

impl Job<'_> {
    fn status(&self) -> &'static str {
        let has = |kind| is_true(&self.status.conditions, kind);
        match () {
            () if has("Complete") => "Complete",
            () if has("Failed") => "Failed",
            () if self.metadata.deletion_timestamp.is_some() => "Terminating",
            () if has("Suspended") => "Suspended",
            () if has("FailureTarget") => "FailureTarget",
            () if has("SuccessCriteriaMet") => "SuccessCriteriaMet",
            () => "Running",
        }
    }

    fn completions(&self) -> String {
        let succeeded = self.status.succeeded;
        match (self.spec.completions, self.spec.parallelism) {
            (Some(completions), _) => format!("{succeeded}/{completions}"),
            (None, Some(parallelism)) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
            _ => format!("{succeeded}/1"),
        }
    }

    fn duration(&self, now: i64) -> String {
        let Some(Time(start)) = self.status.start_time else { return String::new() };
        let end = self.status.completion_time.map_or(Some(now), |Time(end)| end);
        // An unset time is Go's zero time. It is so long ago that the difference to any other time saturates, as in Go.
        human_duration(end.unwrap_or(i64::MIN).saturating_sub(start.unwrap_or(i64::MIN)))
    }
}

fn job(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let job: Job<'_> = decode(json)?;
    cells![
        &job.metadata.name,
        job.status(),
        job.completions(),
        job.duration(now),
        job.metadata.creation_timestamp.age(now),
        job.spec.template.names(),
        job.spec.template.images(),
        Selector::format(job.spec.selector.as_ref()),
    ]
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct CronJob<'j> {
    #[serde(borrow)]
    metadata: Meta<'j>,
    #[serde(borrow)]
    spec: CronJobSpec<'j>,
    status: CronJobStatus,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct CronJobSpec<'j> {
    #[serde(borrow)]
    schedule: Text<'j>,
    #[serde(borrow)]
    time_zone: Option<Text<'j>>,
    suspend: bool,
    #[serde(borrow)]
    job_template: JobTemplate<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct JobTemplate<'j> {
    #[serde(borrow)]
    spec: JobSpec<'j>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct CronJobStatus {
    active: Count,
    last_schedule_time: Option<Time>,
}

fn cron_job(json: &[u8], now: i64) -> serde_json::Result<Row> {
    let CronJob { metadata, spec, status } = decode(json)?;
    let job = &spec.job_template.spec;
    cells![
        &metadata.name,
        &spec.schedule,
        spec.time_zone.as_deref().unwrap_or("<none>"),
        if spec.suspend { "True" } else { "False" },
        status.active.0,
        status.last_schedule_time.map_or_else(|| "<none>".to_owned(), |time| time.age(now)),
        metadata.creation_timestamp.age(now),
        job.template.names(),
        job.template.images(),
        Selector::format(job.selector.as_ref()),
    ]
}
