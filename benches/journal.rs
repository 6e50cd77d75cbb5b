//! Throughput of the journal: appended events per second for each fsync setting, with one thread and a real disk.
//!
//! `cargo bench --bench journal` prints a table; `-- /some/dir` measures the disk of that directory.

use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use informer_hub_disk::RealDisk;
use informer_hub_journal::{Journal, JournalParams, Record, Seq};
use smallvec::{SmallVec, smallvec};

/// Duration of each measurement.
const DURATION: Duration = Duration::from_secs(3);
/// Number of events in one append.
const BATCH: usize = 64;
const LIMIT: u64 = 2 << 30;
const SEGMENT: u64 = 64 << 20;

struct Event(Vec<u8>);

impl Record for Event {
    type Error = &'static str;

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }

    fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        Ok(Self(bytes.to_vec()))
    }

    fn object(&self) -> u64 {
        0
    }

    fn merge(older: Self, newer: Self) -> SmallVec<[Self; 2]> {
        smallvec![older, newer]
    }
}

/// When the journal is synced.
#[derive(Clone, Copy)]
enum Sync {
    Each(usize),
    Every(Duration),
    Never,
}

fn main() {
    let dir = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let dir = dir.map_or_else(std::env::temp_dir, PathBuf::from).join(format!("journal-bench-{}", std::process::id()));
    let settings = [
        ("0s, one event at a time", Sync::Each(1)),
        ("0s, 64 events at a time", Sync::Each(BATCH)),
        ("1ms", Sync::Every(Duration::from_millis(1))),
        ("10ms", Sync::Every(Duration::from_millis(10))),
        ("100ms", Sync::Every(Duration::from_millis(100))),
        ("never", Sync::Never),
    ];
    println!("{:24} {:>10} {:>10} {:>10} {:>8} {:>12}", "fsync", "size", "events/s", "MB/s", "syncs", "slowest sync");
    for size in [1000, 6500] {
        for (name, sync) in settings {
            measure(name, sync, size, &dir);
        }
    }
    replay(&dir);
}

fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
    Instant::now()
}

fn open(dir: &Path) -> Journal<Event> {
    let params = JournalParams { limit_bytes: LIMIT, segment_bytes: SEGMENT };
    Journal::open(Arc::new(RealDisk), dir, params, &mut |_, _, _| {}).expect("the journal can be opened").0
}

/// Appends, syncs and acknowledges like a sink that keeps up.
fn measure(name: &str, sync: Sync, size: usize, dir: &Path) {
    let mut journal = open(dir);
    journal.release(Seq::MAX);
    let at_once = if let Sync::Each(count) = sync { count } else { BATCH };
    let events: Vec<Event> = (0..at_once).map(|i| Event(vec![u8::try_from(i).unwrap_or(0); size])).collect();
    let (begun, mut synced, mut count) = (now(), now(), 0_u64);
    let (mut syncs, mut slowest, mut acked) = (0_u64, Duration::ZERO, 0);
    while begun.elapsed() < DURATION {
        let seqs = journal.append(&events).expect("there is room");
        count += seqs.end - seqs.start;
        let due = match sync {
            Sync::Each(_) => true,
            Sync::Every(wait) => synced.elapsed() >= wait,
            Sync::Never => false,
        };
        if due {
            let before = now();
            journal.sync().expect("the disk syncs");
            (syncs, slowest, synced) = (syncs + 1, slowest.max(before.elapsed()), now());
            journal.ack(acked..seqs.end);
            acked = seqs.end;
        } else if matches!(sync, Sync::Never) {
            journal.ack(seqs);
        }
    }
    journal.sync().expect("the disk syncs");
    let seconds = begun.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "the printed figures are rounded")]
    let (events, megabytes) = (count as f64 / seconds, count as f64 * size as f64 / seconds / 1e6);
    println!(
        "{name:24} {size:>8} B {events:>10.0} {megabytes:>10.1} {syncs:>8} {:>9.1} ms",
        slowest.as_secs_f64() * 1e3
    );
    drop(journal);
    fs::remove_dir_all(dir).expect("the directory can be removed");
}

/// Times the opening and reading of a journal with many pending events.
fn replay(dir: &Path) {
    let events: Vec<Event> = (0..BATCH).map(|_| Event(vec![7; 1000])).collect();
    let mut journal = open(dir);
    for _ in 0..200_000 / BATCH {
        journal.append(&events).expect("there is room");
    }
    journal.sync().expect("the disk syncs");
    drop(journal);
    let begun = now();
    let mut journal = open(dir);
    println!("\n200,000 events of 1000 B: opened in {:?}", begun.elapsed());
    let begun = now();
    let mut from = 0;
    loop {
        let batch = journal.read(from, 512, 1 << 20).expect("the journal can be read").records;
        let Some((last, _)) = batch.last() else { break };
        from = last + 1;
        black_box(batch);
    }
    println!("200,000 events of 1000 B: read in {:?}", begun.elapsed());
    drop(journal);
    fs::remove_dir_all(dir).expect("the directory can be removed");
}
