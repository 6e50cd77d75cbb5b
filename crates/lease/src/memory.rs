//! Store in memory, for tests.

use crate::{Answer, Record, Request};

/// Store of the record of one lease.
#[derive(Debug, Default)]
pub struct MemoryStore {
    record: Option<(Record, u64)>,
    writes: u64,
}

impl MemoryStore {
    /// Returns the record; `None` if none was written.
    #[must_use]
    pub fn record(&self) -> Option<&Record> {
        self.record.as_ref().map(|(record, _)| record)
    }

    /// Applies a request of an elector to the record, and returns the answer.
    pub fn apply(&mut self, request: &Request) -> Answer {
        let current = self.record.as_ref().map(|(_, version)| version.to_string());
        let record = match request {
            Request::Get => {
                return self.record.as_ref().map_or(Answer::Missing, |(record, version)| Answer::Found {
                    record: record.clone(),
                    version: version.to_string().into(),
                });
            }
            Request::Create(record) if current.is_none() => record,
            Request::Update { record, version } if current.as_deref() == Some(&**version) => record,
            Request::Create(_) | Request::Update { .. } => return Answer::Conflict,
        };
        self.writes += 1;
        self.record = Some((record.clone(), self.writes));
        Answer::Written(self.writes.to_string().into())
    }
}
