//! A test for each target.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::targets;

/// So that a change cannot grow an input without end.
const LONGEST: usize = 8 << 10;

/// Seed of the changes: `INFORMER_HUB_SEED`, or 1, so that each run tries the same inputs.
fn seed() -> u64 {
    let seed = std::env::var("INFORMER_HUB_SEED").ok();
    seed.map_or(1, |seed| seed.parse().expect("INFORMER_HUB_SEED is a number"))
}

/// Replays a target's corpus, and so many changed inputs; says which one it was that failed.
fn replay(target: &str, run: fn(&[u8]), changed: u64) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut files: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let corpus: Vec<_> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    assert!(corpus.len() > 4, "{target} has hardly any corpus");
    for (file, input) in files.iter().zip(&corpus) {
        attempt(run, input, || format!("{}", file.display()));
    }
    let seed = seed();
    let mut rng = StdRng::seed_from_u64(seed);
    for number in 0..changed {
        let mut input = corpus.choose(&mut rng).unwrap().clone();
        for _ in 0..rng.random_range(1..5) {
            change(&mut input, &corpus, &mut rng);
        }
        input.truncate(LONGEST);
        attempt(run, &input, || {
            let text = String::from_utf8_lossy(&input);
            format!("INFORMER_HUB_SEED={seed}, changed input {number}: {}", text.escape_debug())
        });
    }
}

fn attempt(run: fn(&[u8]), input: &[u8], what: impl Fn() -> String) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(input))) {
        eprintln!("this is what failed: {}", what());
        resume_unwind(panic);
    }
}

/// Changes a place, cuts out a part, or puts in one of another input.
fn change(input: &mut Vec<u8>, corpus: &[Vec<u8>], rng: &mut StdRng) {
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
    ($($test:ident: $target:ident, $changed:literal;)*) => {
        $(
            #[test]
            fn $test() {
                replay(stringify!($target), targets::$target::run, $changed);
            }
        )*

        #[test]
        fn every_target_is_replayed_and_has_its_program() {
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
    watch_lines_in_pieces_are_what_they_are_as_a_whole: watch_lines, 2000;
    pages_of_a_list_in_pieces_are_what_they_are_as_a_whole: list_pages, 2000;
    a_journal_of_whatever_bytes_takes_records_and_has_them: journal, 1000;
    caches_of_whatever_bytes_are_written_again_and_read: caches, 300;
    what_sources_find_is_a_cluster_or_a_problem_and_never_a_command: clusters, 1000;
    a_configuration_is_taken_or_its_mistakes_are_named: config, 500;
    a_filter_is_refused_or_soon_over: filter, 150;
    whatever_a_receiver_answers_loses_no_event: webhook, 500;
    a_template_is_refused_or_keeps_its_bounds: template, 500;
    what_a_sink_has_written_comes_back: records, 1000;
    what_people_write_means_the_same_when_it_is_written_again: texts, 2000;
}
