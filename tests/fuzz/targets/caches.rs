//! Fuzz target: the files of a saved cache (snapshots and deltas), with valid checksums and damage.
//!
//! The input bytes are instructions that build each file. The loaded cache must be readable object by object. Written
//! again, it must load as the same state at the next start.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use informer_hub::cache::{PartitionId, Snapshot};
use informer_hub::state::caches::{Claim, Commit, Loaded, LoadedCache, PartitionHeader, inspect, load};
use informer_hub_disk::{Disk, Open, frame};
use informer_hub_sim::SimDisk;
use informer_hub_types::{ApiResource, ClusterLabels};

use super::input::Input;

const ROOT: &str = "/state/caches";
const DIR: &str = "/state/caches/core/v1/pods";
/// File names, with the kind, number and part from which the salt of their checksums is computed.
const FILES: [(&str, [u64; 3]); 6] = [
    ("snapshot-1", [1, 1, 0]),
    ("deltas-1-0", [2, 1, 0]),
    ("deltas-1-1", [2, 1, 1]),
    ("snapshot-2", [1, 2, 0]),
    ("deltas-2-0", [2, 2, 0]),
    ("deltas-1-18446744073709551615", [2, 1, u64::MAX]),
];

/// Objects by cluster and scope, then by key: head, and body if it is readable.
type State = BTreeMap<String, BTreeMap<String, (String, Option<String>)>>;

pub(crate) fn run(data: &[u8]) {
    let mut input = Input(data);
    let disk = build_files(&mut input);
    let _ = inspect(&disk, Path::new(ROOT), true).expect("the simulated disk has no faults");
    let mut loaded = load_all(&disk);
    let Some(cache) = loaded.caches.pop() else {
        assert!(loaded.lost.len() <= 1);
        return;
    };
    rewrite_and_compare(&disk, cache);
}

/// Writes the loaded cache twice and verifies that a restart loads the same state.
fn rewrite_and_compare(disk: &SimDisk, mut cache: LoadedCache) {
    let snapshot = cache.store.published().load_full();
    let state = state(&snapshot);
    let commits: Vec<_> = snapshot.partitions().map(|(id, _)| commit(id)).collect();
    for now in [1_000, 1 << 40] {
        cache.files.checkpoint(&snapshot, &commits, now, true).expect("the simulated disk has no faults");
    }
    drop(cache);
    disk.kill();
    let mut again = load_all(disk);
    let Some(again) = again.caches.pop() else {
        assert!(state.is_empty(), "no state left of {state:?}");
        return;
    };
    let state_again = self::state(&again.store.published().load_full());
    assert_eq!(state_again, state, "after the next start; {:?}", again.damage);
}

fn commit(id: PartitionId) -> Commit {
    Commit { id, readers: ["reader".to_owned()].into() }
}

fn load_all(disk: &SimDisk) -> Loaded {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let claim = |_: &ApiResource, header: &PartitionHeader| {
        let claim = Claim { labels: ClusterLabels::new(), indexes: vec!["i".into()], settings: 1, any_version: false };
        (header.cluster.as_str() != "unwanted").then_some(claim)
    };
    load(&disk, Path::new(ROOT), &claim).expect("the simulated disk has no faults")
}

fn state(snapshot: &Snapshot) -> State {
    let mut state = State::new();
    for (_, partition) in snapshot.partitions() {
        let scope = format!("{} {:?}", partition.origin().cluster, partition.origin().scope);
        let objects = state.entry(scope).or_default();
        for object in partition.iter() {
            assert_eq!(partition.get(object.key()).map(Arc::as_ptr), Some(Arc::as_ptr(object)));
            for entry in object.index_values() {
                // A damaged file may name an undeclared index.
                let _ = snapshot.by_index(&entry.index, &entry.value).count();
            }
            let labels: Vec<_> = object.labels().iter().collect();
            let values = object.index_values();
            let head = format!("{} {} {labels:?} {values:?}", object.uid(), object.resource_version());
            objects.insert(object.key().to_string(), (head, object.json_text().ok()));
        }
    }
    state
}

/// Builds the files that the input describes, on a simulated disk.
fn build_files(input: &mut Input<'_>) -> SimDisk {
    let mut files = [const { Vec::new() }; FILES.len()];
    let mut at = 0;
    begin(&mut files[0], salt(FILES[0].1));
    while !input.is_empty() && files.iter().map(Vec::len).sum::<usize>() < 200_000 {
        match input.pick(12) {
            0 => {
                at = input.pick(FILES.len());
                if FILES[at].0.starts_with("snapshot") && files[at].is_empty() {
                    begin(&mut files[at], salt(FILES[at].1));
                }
            }
            instruction => change(&mut files[at], salt(FILES[at].1), instruction, input),
        }
    }
    let disk = SimDisk::new(1);
    disk.create_dir_all(Path::new(DIR)).expect("the simulated disk has no faults");
    for ((name, _), bytes) in FILES.iter().zip(&files).filter(|(_, bytes)| !bytes.is_empty()) {
        let mut file =
            disk.open(&Path::new(DIR).join(name), Open::CreateNew).expect("the simulated disk has no faults");
        file.append(bytes).and_then(|()| file.sync()).expect("the simulated disk has no faults");
    }
    disk
}

/// Copy of the salt in `src/state/caches/file_name.rs`. If they differ, no built file loads any more.
fn salt([kind, number, part]: [u64; 3]) -> u32 {
    let mixed = (kind << 60 ^ number << 20 ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as u32
}

/// Writes the first record of a file, which names its resource.
fn begin(file: &mut Vec<u8>, salt: u32) {
    let mut payload = vec![1];
    for text in ["", "v1", "pods", "Pod"] {
        block(text.as_bytes(), &mut payload);
    }
    payload.push(1);
    block(b"shared", &mut payload);
    frame::write(salt, &payload, file).expect("short enough");
}

fn change(file: &mut Vec<u8>, salt: u32, instruction: usize, input: &mut Input<'_>) {
    let mut put = |payload: &[u8]| frame::write(salt, payload, file).expect("short enough");
    let mut payload = vec![u8::try_from(instruction).expect("few")];
    match instruction {
        1 => file.extend_from_slice(input.chunk()),
        2 => {
            number(input.number(), &mut payload);
            block(input.chunk(), &mut payload);
            put(&payload);
        }
        3 => {
            partition(input, &mut payload);
            put(&payload);
        }
        4 => {
            objects(input, &mut payload);
            put(&payload);
        }
        5 => {
            number(input.number(), &mut payload);
            (0..input.pick(4)).for_each(|_| block(input.chunk(), &mut payload));
            put(&payload);
        }
        6..=8 => {
            number(input.number(), &mut payload);
            put(&payload);
        }
        9 => put(input.chunk()),
        _ => {
            let at = usize::try_from(input.number()).unwrap_or_default() % file.len().max(1);
            match input.byte() {
                0 => file.truncate(at),
                mask => file.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= mask),
            }
        }
    }
}

fn partition(input: &mut Input<'_>, out: &mut Vec<u8>) {
    number(input.number(), out);
    let cluster = ["a", "b", "unwanted", "c"][input.pick(4)];
    block(cluster.as_bytes(), out);
    for _ in 0..3 {
        match input.pick(4) {
            0 => {
                out.push(1);
                block(input.chunk(), out);
            }
            _ => out.extend([0, 0]),
        }
    }
    number(input.number(), out);
    out.push(1);
    number(input.number() << 1, out);
    out.push(input.byte() & 1);
    number(input.number(), out);
    number(input.number(), out);
    number(1, out);
    block(b"reader", out);
}

/// Writes a record of objects, with valid heads except for the defects that the input asks for.
fn objects(input: &mut Input<'_>, out: &mut Vec<u8>) {
    let (mut heads, mut bodies) = (Vec::new(), Vec::new());
    let partition = input.number();
    for _ in 0..=input.pick(3) {
        match input.pick(8) {
            0 => heads.extend_from_slice(input.chunk()),
            _ => object(input, &mut heads, &mut bodies),
        }
    }
    let len = if input.pick(16) == 1 { input.number() } else { heads.len() as u64 };
    let heads = zstd::bulk::compress(&heads, 1).expect("enough memory");
    number(partition, out);
    number(len, out);
    block(&heads, out);
    out.extend_from_slice(&bodies);
}

fn object(input: &mut Input<'_>, heads: &mut Vec<u8>, bodies: &mut Vec<u8>) {
    block(["ns/a", "ns/b", "c", "ns/", ""][input.pick(5)].as_bytes(), heads);
    heads.push(1);
    heads.extend_from_slice(&[input.byte(); 16]);
    number(input.number() << 1, heads);
    for _ in 0..2 {
        let (mut pairs, count) = (Vec::new(), input.pick(3));
        for _ in 0..count {
            block([&b"i"[..], b"app", b"k"][input.pick(3)], &mut pairs);
            block(input.chunk(), &mut pairs);
        }
        block(&pairs, heads);
    }
    // Plain, or packed: original length and a "folded" bit, then a zstd frame without its first four bytes.
    let (form, body) = (input.number(), input.chunk());
    number(form, heads);
    let mut packed = Vec::new();
    if form > 1 && input.pick(8) != 0 {
        let frame = zstd::bulk::compress(body, 1).expect("enough memory");
        let len = if input.pick(8) == 1 { input.number() } else { body.len() as u64 * 2 + u64::from(input.byte() & 1) };
        number(len, &mut packed);
        block(&frame[4..], &mut packed);
    } else {
        packed.extend_from_slice(body);
    }
    number(packed.len() as u64, heads);
    bodies.extend_from_slice(&packed);
}

fn number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

fn block(bytes: &[u8], out: &mut Vec<u8>) {
    number(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}
