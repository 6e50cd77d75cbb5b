//! One replay test per fuzz target.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;

use informer_hub_testing::{SEED, cases, replayed};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::targets;

/// Maximum size of a mutated input, in bytes.
const MAX_INPUT: usize = 8 << 10;

/// Replays a target's corpus and then `mutations` mutated inputs; `INFORMER_HUB_CASES` overrides this number. Without a
/// seed to replay, each run tries the same inputs. A failure prints the input.
fn replay(target: &str, run: fn(&[u8]), mutations: u32) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut files: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let corpus: Vec<_> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    assert!(corpus.len() > 4, "{target}: the corpus has too few files");
    for (file, input) in files.iter().zip(&corpus) {
        attempt(run, input, || format!("{}", file.display()));
    }
    let seed = replayed().unwrap_or(1);
    let mut rng = StdRng::seed_from_u64(seed);
    for number in 0..cases(mutations) {
        let mut input = corpus.choose(&mut rng).unwrap().clone();
        for _ in 0..rng.random_range(1..5) {
            mutate(&mut input, &corpus, &mut rng);
        }
        input.truncate(MAX_INPUT);
        attempt(run, &input, || {
            let text = String::from_utf8_lossy(&input);
            format!("{SEED}={seed}, mutated input {number}: {}", text.escape_debug())
        });
    }
}

fn attempt(run: fn(&[u8]), input: &[u8], describe: impl Fn() -> String) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(input))) {
        eprintln!("failing input: {}", describe());
        resume_unwind(panic);
    }
}

/// Mutates an input: changes or inserts a byte, removes or repeats a part, or splices in a part of another input.
fn mutate(input: &mut Vec<u8>, corpus: &[Vec<u8>], rng: &mut StdRng) {
    let at = rng.random_range(0..=input.len());
    let end = rng.random_range(at..=input.len().min(at + 40));
    match rng.random_range(0..6) {
        0 => input.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << rng.random_range(0..8)),
        1 => input.iter_mut().skip(at).take(1).for_each(|byte| *byte = rng.random()),
        2 => input.insert(at, *b"\0\xff\"{}[],:.\\'()0-1e \n".choose(rng).unwrap()),
        3 => drop(input.drain(at..end)),
        4 => {
            let part = input[at..end].to_vec();
            input.splice(at..at, part);
        }
        _ => {
            let other = corpus.choose(rng).unwrap();
            let from = rng.random_range(0..=other.len());
            let to = rng.random_range(from..=other.len().min(from + 200));
            input.splice(at..end, other[from..to].iter().copied());
        }
    }
}

macro_rules! targets {
    ($($test:ident: $target:ident, $mutations:literal;)*) => {
        $(
            #[test]
            fn $test() {
                replay(stringify!($target), targets::$target::run, $mutations);
            }
        )*

        #[test]
        fn every_target_has_a_replay_test_and_a_fuzz_program() {
            let manifest = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/Cargo.toml")).unwrap();
            let programs = manifest.lines().filter(|line| line.starts_with("path = \"fuzz_targets/")).count();
            let targets = [$(stringify!($target)),*];
            assert_eq!(targets.len(), programs);
            for target in targets {
                assert!(manifest.contains(&format!("path = \"fuzz_targets/{target}.rs\"")), "{target}");
            }
        }
    };
}

targets! {
    watch_stream_in_pieces_decodes_as_the_whole: watch_lines, 2000;
    list_page_in_pieces_decodes_as_the_whole: list_pages, 2000;
    protobuf_in_pieces_decodes_as_the_whole: protobuf, 2000;
    object_in_json_survives_its_way_through_protobuf: protobuf_json, 4000;
    journal_over_arbitrary_files_stores_and_returns_records: journal, 1000;
    cache_from_arbitrary_files_survives_a_rewrite: caches, 300;
    cluster_source_input_yields_clusters_or_problems_never_commands: clusters, 1000;
    configuration_is_accepted_or_its_mistakes_are_named: config, 500;
    filter_is_rejected_or_ends_within_its_budget: filter, 150;
    arbitrary_receiver_response_loses_no_event: webhook, 500;
    template_is_rejected_or_stays_within_its_bounds: template, 500;
    sink_records_round_trip: records, 1000;
    user_input_formats_round_trip: texts, 2000;
}
