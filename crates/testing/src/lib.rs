//! Helpers of tests: seeds and case counts of randomised tests, so that each failure can be replayed; choices by
//! environment variables; text files that tests check; a test CA with TLS servers; and a signer of tokens.

#[cfg(feature = "jwt")]
pub mod jwt;
#[cfg(feature = "tls")]
pub mod tls;

use std::collections::BTreeMap;
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::Range;
use std::path::{Path, PathBuf};

use proptest::test_runner::{Config, RngSeed};

/// Returns the number of cases that a property test runs: `INFORMER_HUB_CASES`, or `default`.
///
/// # Panics
/// If the variable is not a number.
#[must_use]
pub fn cases(default: u32) -> u32 {
    match std::env::var("INFORMER_HUB_CASES") {
        Ok(cases) => cases.parse().expect("INFORMER_HUB_CASES is a number"),
        Err(_) => default,
    }
}

/// Returns the choice that an environment variable names; `None` if the variable is unset or empty.
///
/// # Panics
/// If its value is not one of the names.
#[must_use]
pub fn choice<T: Copy>(variable: &str, choices: &[(&str, T)]) -> Option<T> {
    let value = std::env::var(variable).ok().filter(|value| !value.is_empty())?;
    let chosen = choices.iter().find(|(name, _)| *name == value);
    let names = || choices.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" or ");
    Some(chosen.unwrap_or_else(|| panic!("{variable} is {}, not {value:?}", names())).1)
}

/// Returns the texts of all files below `root/folder` with this extension, by their path relative to `root`.
///
/// # Panics
/// If a folder or file cannot be read.
#[must_use]
pub fn texts_below(root: &Path, folder: &str, extension: &str) -> BTreeMap<PathBuf, String> {
    let mut texts = BTreeMap::new();
    let mut folders = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.expect("an entry of a folder can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                texts.insert(path.strip_prefix(root).expect("it was found below the root").to_owned(), text);
            }
        }
    }
    texts
}

/// Environment variable that replays a randomised test with the seed printed by a failed run.
pub const SEED: &str = "INFORMER_HUB_SEED";

/// Returns the seed to replay; `None` if [`SEED`] is not set.
///
/// # Panics
/// If the variable is not a number.
#[must_use]
pub fn replayed() -> Option<u64> {
    let text = std::env::var(SEED).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{SEED}={text:?} is not a number")))
}

/// Returns the seed of a randomised test: [`replayed`] or a new one. Prints it; the test harness shows it if the test
/// fails.
#[must_use]
pub fn seed() -> u64 {
    let seed = replayed().unwrap_or_else(fresh);
    println!("{SEED}={seed}");
    seed
}

/// Returns the configuration of a property test: the number of cases from [`cases`], and the seed from [`seed`].
/// Failures are not saved to regression files.
#[must_use]
pub fn properties(default: u32) -> Config {
    let config = seeded(default, seed());
    println!("INFORMER_HUB_CASES={}", config.cases);
    config
}

fn seeded(default: u32, seed: u64) -> Config {
    let rng_seed = RngSeed::Fixed(seed);
    Config { cases: cases(default), rng_seed, failure_persistence: None, ..Config::default() }
}

/// Returns the seeds in a range, or only the seed to replay if [`SEED`] is set. If the test panics, prints the seed in
/// use.
#[must_use]
pub fn seeds(range: Range<u64>) -> Seeds {
    Seeds { rest: replayed().map_or(range, |seed| seed..seed + 1), current: None }
}

/// Iterator over seeds; see [`seeds`].
#[derive(Debug)]
pub struct Seeds {
    rest: Range<u64>,
    current: Option<u64>,
}

impl Iterator for Seeds {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.current = self.rest.next();
        self.current
    }
}

impl Drop for Seeds {
    fn drop(&mut self) {
        if let Some(seed) = self.current.filter(|_| std::thread::panicking()) {
            eprintln!("{SEED}={seed}");
        }
    }
}

/// Returns a new random seed.
fn fresh() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::process::Command;

    use proptest::prelude::*;
    use proptest::test_runner::TestRunner;

    use super::*;

    fn first_failure(seed: u64) -> Vec<u32> {
        let tried = RefCell::new(Vec::new());
        let failed = TestRunner::new(seeded(64, seed)).run(&any::<u32>(), |number| {
            tried.borrow_mut().push(number);
            prop_assert!(number % 7 != 3);
            Ok(())
        });
        assert!(failed.is_err());
        tried.into_inner()
    }

    #[test]
    fn seed_replays_a_property_case_by_case() {
        assert_eq!(first_failure(17), first_failure(17));
        assert_ne!(first_failure(17), first_failure(18));
    }

    /// Property test that fails on purpose. Runs only in the process that [`probe`] starts.
    #[test]
    fn replay_probe() {
        if std::env::var_os("REPLAY_PROBE").is_none() {
            return;
        }
        let result = TestRunner::new(properties(8)).run(&any::<u64>(), |number| {
            println!("drew {number}");
            Ok(())
        });
        panic!("{result:?}");
    }

    /// Runs [`replay_probe`] in a process of its own. Returns the environment variables that it printed for a replay,
    /// and the numbers that it drew.
    fn probe(seed: Option<&str>) -> (BTreeMap<String, String>, Vec<String>) {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "tests::replay_probe"]).env("REPLAY_PROBE", "1");
        match seed {
            Some(seed) => child.env(SEED, seed),
            None => child.env_remove(SEED),
        };
        let output = child.output().unwrap();
        assert!(!output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        let variables = text.lines().filter_map(|line| line.split_once('='));
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        (variables, text.lines().filter(|line| line.starts_with("drew ")).map(str::to_owned).collect())
    }

    #[test]
    fn failed_property_prints_the_variables_to_replay_it() {
        let (variables, drawn) = probe(None);
        assert_eq!(drawn.len(), variables["INFORMER_HUB_CASES"].parse::<usize>().unwrap());
        assert_eq!(probe(Some(&variables[SEED])).1, drawn);
        assert_ne!(probe(None).1, drawn, "another run draws other cases");
    }

    #[test]
    fn seeds_tracks_the_current_round_until_the_end() {
        let mut rounds = Seeds { rest: 3..6, current: None };
        assert_eq!((rounds.next(), rounds.current), (Some(3), Some(3)));
        assert_eq!((rounds.by_ref().last(), rounds.current), (Some(5), None));
    }

    #[test]
    fn every_property_test_uses_properties() {
        let mut blocks = 0;
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for (file, text) in ["src", "crates"].into_iter().flat_map(|folder| texts_below(&root, folder, "rs")) {
            let lines: Vec<_> = text.lines().map(str::trim).collect();
            let is_block = |line: &str| line == "proptest! {" || line == "proptest::proptest! {";
            for (at, _) in lines.iter().enumerate().filter(|(_, line)| is_block(line)) {
                blocks += 1;
                let configuration = lines[at + 1];
                let is_ours = configuration.starts_with("#![proptest_config(") && configuration.contains("properties(");
                assert!(is_ours, "{}:{}: use informer_hub_testing::properties", file.display(), at + 1);
            }
        }
        assert!(blocks > 30, "{blocks} properties");
    }
}
