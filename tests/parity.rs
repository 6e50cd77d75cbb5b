//! Holds `docs/client-go-parity.md` and `docs/bad-input.md` to what they promise: every one of client-go's tests is
//! answered for, and every test of ours that is named exists and is one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Tests of client-go's `tools/cache`, v0.37.0.
const CLIENT_GO_TESTS: usize = 187;

/// What an answer without a test has to begin with: why there is none.
const EXCUSES: [&str; 2] = ["cannot apply", "not offered"];

/// A line of a table below a heading.
#[derive(Debug, PartialEq)]
struct Row<'d> {
    line: usize,
    /// The `##` heading above it, then the `###` one.
    headings: [&'d str; 2],
    cells: Vec<&'d str>,
}

/// All rows of all tables, without their heads.
fn rows(document: &str) -> Vec<Row<'_>> {
    let (mut found, mut headings) = (Vec::new(), ["", ""]);
    let mut lines = document.lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        if let Some(heading) = line.strip_prefix("## ") {
            headings = [heading.trim(), ""];
        } else if let Some(heading) = line.strip_prefix("### ") {
            headings[1] = heading.trim();
        }
        let Some(cells) = cells(line) else { continue };
        let rule = |cells: &[&str]| cells.iter().all(|cell| !cell.is_empty() && cell.bytes().all(|b| b == b'-'));
        let is_head = lines.peek().and_then(|(_, next)| self::cells(next)).is_some_and(|next| rule(&next));
        if !is_head && !rule(&cells) {
            found.push(Row { line: number + 1, headings, cells });
        }
    }
    found
}

fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(str::trim).collect())
}

/// The tests that a cell names, as file and function: `` `src/a.rs::name` ``.
fn named(cell: &str) -> Vec<(&str, &str)> {
    cell.split('`')
        .skip(1)
        .step_by(2)
        .filter_map(|span| span.split_once("::"))
        .filter(|(file, _)| is_file(file))
        .collect()
}

fn is_file(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|extension| extension == "rs")
}

/// Whether `source` has a test of that name: a function with a test attribute above it.
fn has_test(source: &str, name: &str) -> Result<(), String> {
    let lines: Vec<_> = source.lines().map(str::trim_start).collect();
    let is_it = |line: &&str| {
        let rest = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
        rest.and_then(|rest| rest.strip_prefix(name)).is_some_and(|rest| rest.starts_with('('))
    };
    let Some(at) = lines.iter().position(is_it) else { return Err(format!("no function {name}")) };
    let above = lines[..at].iter().rev().take_while(|line| line.starts_with("#[") || line.starts_with("//"));
    let tests = ["#[test]", "#[tokio::test", "#[actix::test", "#[actix_rt::test"];
    if above.into_iter().any(|line| tests.iter().any(|test| line.starts_with(test))) {
        Ok(())
    } else {
        Err(format!("{name} is no test"))
    }
}

/// What is wrong with the tests that a row names. `read` gives a file's text.
fn missing_tests(row: &Row<'_>, cell: &str, read: &impl Fn(&str) -> Option<String>) -> Vec<String> {
    let check = |(file, name): (&str, &str)| {
        let source = read(file).ok_or_else(|| format!("no file {file}"))?;
        has_test(&source, name).map_err(|problem| format!("{file}: {problem}"))
    };
    let problems = named(cell).into_iter().filter_map(|test| check(test).err());
    problems.map(|problem| format!("line {}: {problem}", row.line)).collect()
}

/// Everything that is wrong with a table of client-go's tests.
fn parity_problems(document: &str, tests: usize, read: &impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut problems = Vec::new();
    let mut by_place: BTreeMap<[&str; 2], BTreeSet<&str>> = BTreeMap::new();
    let mut informers = BTreeMap::new();
    for row in rows(document) {
        let mut wrong = |problem: String| problems.push(format!("line {}: {problem}", row.line));
        let [name, pins, ours] = row.cells[..] else {
            wrong(format!("{} cells instead of three", row.cells.len()));
            continue;
        };
        if !name.starts_with("Test") {
            wrong(format!("{name:?} is no name of a Go test"));
        }
        if pins.is_empty() || ours.is_empty() {
            wrong(format!("{name} has no answer"));
        }
        if named(ours).is_empty() && !EXCUSES.iter().any(|excuse| ours.starts_with(excuse)) {
            wrong(format!("{name} names no test, and does not begin with {}", EXCUSES.join(" or ")));
        }
        if !by_place.entry(row.headings).or_default().insert(name) {
            wrong(format!("{name} is there twice"));
        }
        if row.headings[0] == "The informers"
            && let Some(before) = informers.insert(name, row.line)
        {
            wrong(format!("{name} is in line {before} already"));
        }
        problems.extend(missing_tests(&row, ours, read));
    }
    if informers.len() != tests {
        problems.push(format!("{} of client-go's {tests} tests are there", informers.len()));
    }
    for (headings, names) in by_place {
        if !headings[1].ends_with(&format!(" ({})", names.len())) {
            problems.push(format!("the heading {:?} has {} tests below it", headings[1], names.len()));
        }
    }
    problems
}

/// Everything that is wrong with the table of bad input.
fn bad_input_problems(document: &str, read: &impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut problems = Vec::new();
    let mut inputs = BTreeSet::new();
    for row in rows(document) {
        if row.cells.len() != 4 || row.cells.iter().any(|cell| cell.is_empty()) {
            problems.push(format!("line {}: not four cells with something in them", row.line));
            continue;
        }
        if !inputs.insert(row.cells[0]) {
            problems.push(format!("line {}: {} is there twice", row.line, row.cells[0]));
        }
        if named(row.cells[3]).is_empty() {
            problems.push(format!("line {}: it names no test", row.line));
        }
        problems.extend(missing_tests(&row, row.cells[3], read));
    }
    if inputs.is_empty() {
        problems.push("no table".to_owned());
    }
    problems
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).ok()
}

#[test]
fn every_test_of_client_go_is_answered_for() {
    let document = read("docs/client-go-parity.md").expect("the table is there");
    let problems = parity_problems(&document, CLIENT_GO_TESTS, &read);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn every_bad_input_has_a_test() {
    let document = read("docs/bad-input.md").expect("the table is there");
    let problems = bad_input_problems(&document, &read);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

// === the check itself ===

const SOURCE: &str = "
    #[test]
    fn plain() {}
    #[tokio::test(flavor = \"multi_thread\")]
    // With a reason.
    #[ignore]
    async fn waits() {}
    proptest! {
        #[test]
        fn drawn(x in 0..3) {}
    }
    fn helper() {}
    #[test]

    fn apart() {}
    #[cfg(test)]
    fn built() {}
";

fn a_source(path: &str) -> Option<String> {
    (path == "src/a.rs").then(|| SOURCE.to_owned())
}

fn table(rows: &[&str]) -> String {
    let head = "# Title\n\n| not | a row |\n\n## The informers\n\n### a_test.go (2)\n\n| test | pins | ours |\n|---|---|---|\n";
    format!("{head}{}\n", rows.join("\n"))
}

/// The first problem of a table of two tests, of which `rows` should be.
fn first_problem(rows: &[&str]) -> Option<String> {
    parity_problems(&table(rows), 2, &a_source).into_iter().next()
}

#[test]
fn a_table_that_is_right_has_no_problems() {
    let good = ["| TestA | it | `src/a.rs::plain`, and so on |", "| TestB | that | not offered: why |"];
    // Three cells were expected of the line above the first heading too.
    assert_eq!(first_problem(&good), Some("line 3: 2 cells instead of three".to_owned()));
    let document = table(&good).replace("| not | a row |\n", "");
    assert_eq!(parity_problems(&document, 2, &a_source), [""; 0]);
    let other =
        "\n## Neighbours\n\n### b (1)\n\n| test | pins | ours |\n|---|---|---|\n| TestA | it | cannot apply: why |\n";
    assert_eq!(parity_problems(&(document + other), 2, &a_source), [""; 0], "a neighbour may have the same name");
}

#[test]
fn each_mistake_is_found() {
    let good = "| TestA | it | `src/a.rs::plain` |";
    for (bad, problem) in [
        ("| TestB | that | |", "line 12: TestB has no answer"),
        ("| TestB | | `src/a.rs::plain` |", "line 12: TestB has no answer"),
        ("| TestB | that |", "line 12: 2 cells instead of three"),
        (
            "| TestB | that | one day |",
            "line 12: TestB names no test, and does not begin with cannot apply or not offered",
        ),
        (
            "| TestB | that | `plain` |",
            "line 12: TestB names no test, and does not begin with cannot apply or not offered",
        ),
        (
            "| TestB | that | src/a.rs::plain |",
            "line 12: TestB names no test, and does not begin with cannot apply or not offered",
        ),
        ("| TestB | that | `src/b.rs::plain` |", "line 12: no file src/b.rs"),
        ("| TestB | that | `src/a.rs::plai` |", "line 12: src/a.rs: no function plai"),
        ("| TestB | that | not offered, `src/a.rs::lain` |", "line 12: src/a.rs: no function lain"),
        ("| TestB | that | `src/a.rs::plain`, `src/a.rs::helper` |", "line 12: src/a.rs: helper is no test"),
        ("| TestB | that | `src/a.rs::built` |", "line 12: src/a.rs: built is no test"),
        ("| TestB | that | `src/a.rs::apart` |", "line 12: src/a.rs: apart is no test"),
        ("| B | that | `src/a.rs::plain` |", "line 12: \"B\" is no name of a Go test"),
        ("| TestA | that | `src/a.rs::plain` |", "line 12: TestA is there twice"),
        ("", "1 of client-go's 2 tests are there"),
        ("## The informers\n### b (1)\n| TestA | x | `src/a.rs::plain` |", "line 14: TestA is in line 11 already"),
        (
            "| TestB | that | `src/a.rs::plain` |\n| TestC | x | `src/a.rs::plain` |",
            "3 of client-go's 2 tests are there",
        ),
    ] {
        let document = table(&[good, bad]).replace("| not | a row |\n", "\n");
        assert_eq!(parity_problems(&document, 2, &a_source).first().map(String::as_str), Some(problem), "{bad}");
    }
}

#[test]
fn a_heading_says_how_many_tests_are_below_it() {
    let document =
        table(&["| TestA | it | `src/a.rs::plain` |", "| TestB | x | `src/a.rs::waits`, `src/a.rs::drawn` |"]);
    let document = document.replace("| not | a row |\n", "");
    assert_eq!(parity_problems(&document, 2, &a_source), [""; 0]);
    let wrong = document.replace("a_test.go (2)", "a_test.go (12)");
    assert_eq!(parity_problems(&wrong, 2, &a_source), ["the heading \"a_test.go (12)\" has 2 tests below it"]);
}

#[test]
fn a_table_of_bad_input_is_checked_alike() {
    let problems = |rows: &str| {
        let document = format!("| input | what happens | where it shows | test |\n|---|---|---|---|\n{rows}");
        bad_input_problems(&document, &a_source)
    };
    assert_eq!(problems("| a | b | c | `src/a.rs::plain` |"), [""; 0]);
    assert_eq!(problems(""), ["no table"]);
    assert_eq!(problems("| a | b | | `src/a.rs::plain` |")[0], "line 3: not four cells with something in them");
    assert_eq!(problems("| a | b | c | plain |"), ["line 3: it names no test"]);
    assert_eq!(problems("| a | b | c | `src/a.rs::other` |"), ["line 3: src/a.rs: no function other"]);
    let twice = "| a | b | c | `src/a.rs::plain` |\n| a | b | c | `src/a.rs::plain` |";
    assert_eq!(problems(twice), ["line 4: a is there twice"]);
}
