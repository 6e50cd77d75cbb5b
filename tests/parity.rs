//! Checks `docs/client-go-parity.md` and `docs/bad-input.md`. Every one of client-go's tests has an answer. Every test
//! that a table names exists, is compiled and is not ignored. A test whose comment names a test of client-go is in that
//! test's row.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Tests of client-go's `tools/cache`, v0.37.0.
const CLIENT_GO_TESTS: usize = 187;

/// What an answer without a test has to begin with: why there is none.
const EXCUSES: [&str; 2] = ["cannot apply", "not offered"];

/// The section whose rows are packages instead of tests.
const PACKAGES: &str = "What else controllers use";

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
    let above: Vec<_> = above(&lines, at).collect();
    if !above.iter().any(|line| is_test_attribute(line)) {
        Err(format!("{name} is no test"))
    } else if above.iter().any(|line| line.starts_with("#[ignore")) {
        Err(format!("{name} is ignored"))
    } else {
        Ok(())
    }
}

/// The attributes and comments right above a line.
fn above<'s>(lines: &[&'s str], at: usize) -> impl Iterator<Item = &'s str> {
    lines[..at].iter().rev().take_while(|line| line.starts_with("#[") || line.starts_with("//")).copied()
}

fn is_test_attribute(line: &str) -> bool {
    ["#[test]", "#[tokio::test", "#[actix::test", "#[actix_rt::test"].iter().any(|test| line.starts_with(test))
}

/// Whether a file of `tests` is compiled: it is a target of its own, or its target's root declares it. That each file of
/// `src` is, `tests/layering.rs` checks.
fn is_compiled(file: &str, read: &impl Fn(&str) -> Option<String>) -> bool {
    let Some((target, module)) = file.strip_prefix("tests/").and_then(|rest| rest.rsplit_once('/')) else {
        return true;
    };
    let module = module.trim_end_matches(".rs");
    let declares = |root: String| root.lines().any(|line| line.trim() == format!("mod {module};"));
    module == "main"
        || [format!("tests/{target}/main.rs"), format!("tests/{target}/mod.rs")]
            .iter()
            .filter_map(|root| read(root))
            .any(declares)
}

/// The tests of client-go that the comments of each test name, directly above it or at the start of its body.
fn claims(source: &str) -> Vec<(&str, BTreeSet<&str>)> {
    let lines: Vec<_> = source.lines().map(str::trim_start).collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(rest) = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ") else { continue };
        if !above(&lines, at).any(is_test_attribute) {
            continue;
        }
        let body = lines[at + 1..].iter().copied();
        let comments = above(&lines, at).chain(body.take_while(|line| line.starts_with("//")));
        let words = comments
            .filter(|line| line.starts_with("//"))
            .flat_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'))
            .filter(|word| {
                word.strip_prefix("Test").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
            });
        found.push((rest.split('(').next().unwrap_or_default(), words.collect()));
    }
    found
}

/// The tests whose comments name a test of client-go whose rows do not name them.
fn uncited(document: &str, sources: &BTreeMap<String, String>) -> Vec<String> {
    let mut cited: BTreeMap<&str, BTreeSet<(&str, &str)>> = BTreeMap::new();
    for row in rows(document).iter().filter(|row| row.cells.len() == 3) {
        cited.entry(row.cells[0]).or_default().extend(named(row.cells[2]));
    }
    let mut problems = Vec::new();
    for (file, source) in sources {
        for (test, names) in claims(source) {
            let lacks = |go: &&str| cited.get(go).is_some_and(|tests| !tests.contains(&(file.as_str(), test)));
            let lacking = names.into_iter().filter(lacks);
            problems.extend(lacking.map(|go| format!("{file}: {test} names {go}, whose row lacks it")));
        }
    }
    problems
}

/// What is wrong with the tests that a row names. `read` gives a file's text.
fn missing_tests(row: &Row<'_>, cell: &str, read: &impl Fn(&str) -> Option<String>) -> Vec<String> {
    let check = |(file, name): (&str, &str)| {
        let source = read(file).ok_or_else(|| format!("no file {file}"))?;
        if !is_compiled(file, read) {
            return Err(format!("no `mod` declares {file}"));
        }
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
        if row.headings[0] != PACKAGES && !name.starts_with("Test") {
            wrong(format!("{name:?} is no name of a Go test"));
        }
        if pins.is_empty() || ours.is_empty() {
            wrong(format!("{name} has no answer"));
        }
        if row.headings[0] != PACKAGES
            && named(ours).is_empty()
            && !EXCUSES.iter().any(|excuse| ours.starts_with(excuse))
        {
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
fn row_of_a_client_go_test_names_each_test_whose_comment_names_it() {
    let document = read("docs/client-go-parity.md").expect("the table is there");
    let mut sources = BTreeMap::new();
    for folder in ["src", "crates", "tests/hub"] {
        collect(Path::new(env!("CARGO_MANIFEST_DIR")), Path::new(folder), &mut sources);
    }
    assert!(sources.contains_key("src/cache/tests/fifo.rs") && sources.contains_key("tests/hub/informers.rs"));
    let problems = uncited(&document, &sources);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// The Rust files below a folder, by their paths from `root`.
fn collect(root: &Path, folder: &Path, into: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(root.join(folder)).expect("the folder is there") {
        let entry = entry.expect("the folder can be read");
        let path = folder.join(entry.file_name());
        if entry.path().is_dir() {
            collect(root, &path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(entry.path()).expect("the file can be read");
            into.insert(path.to_string_lossy().into_owned(), text);
        }
    }
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
    async fn waits() {}
    #[test]
    #[ignore = \"slow\"]
    fn sleeps() {}
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
    match path {
        "tests/real/main.rs" => Some("mod found;\n".to_owned()),
        "src/a.rs" | "tests/whole.rs" | "tests/hub/main.rs" | "tests/hub/lost.rs" | "tests/real/found.rs" => {
            Some(SOURCE.to_owned())
        }
        _ => None,
    }
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
        ("| TestB | that | `src/a.rs::sleeps` |", "line 12: src/a.rs: sleeps is ignored"),
        ("| TestB | that | `tests/hub/lost.rs::plain` |", "line 12: no `mod` declares tests/hub/lost.rs"),
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
fn file_of_tests_is_compiled_if_it_is_a_target_or_its_target_declares_it() {
    for (file, compiled) in [
        ("src/a.rs", true),
        ("tests/whole.rs", true),
        ("tests/hub/main.rs", true),
        ("tests/hub/lost.rs", false),
        ("tests/real/found.rs", true),
    ] {
        assert_eq!(is_compiled(file, &a_source), compiled, "{file}");
    }
}

#[test]
fn row_of_a_package_needs_no_test_but_an_answer() {
    let document = table(&["| TestA | it | `src/a.rs::plain` |", "| TestB | x | `src/a.rs::drawn` |"]);
    let packages = "\n## What else controllers use\n\n### packages (1)\n\n| package | what | here |\n|---|---|---|\n";
    let document = document.replace("| not | a row |\n", "") + packages;
    let good = format!("{document}| `tools/watch` | waits | `wait` |\n");
    assert_eq!(parity_problems(&good, 2, &a_source), [""; 0]);
    let bad = format!("{document}| `tools/watch` | waits | |\n");
    assert_eq!(parity_problems(&bad, 2, &a_source), ["line 19: `tools/watch` has no answer"]);
}

#[test]
fn test_that_names_a_client_go_test_and_is_not_in_its_row_is_found() {
    let source = "// client-go: TestA, TestMany and TestB's.\n#[test]\nfn above() {}\n#[tokio::test]\nasync fn inside() {\n    // TestB (TestA)\n    // Testing: TestA_x\n    go();\n    // TestA\n}\n// TestA\nfn helper() {}\n";
    let sources = BTreeMap::from([("src/a.rs".to_owned(), source.to_owned())]);
    assert_eq!(
        claims(source),
        [("above", ["TestA", "TestB", "TestMany"].into()), ("inside", ["TestA", "TestA_x", "TestB"].into())]
    );
    let both = "`src/a.rs::above`, `src/a.rs::inside`";
    let good = table(&[&format!("| TestA | it | {both} |"), &format!("| TestB | x | {both} |")]);
    assert_eq!(uncited(&good, &sources), [""; 0]);
    let bad = table(&["| TestA | it | `src/a.rs::inside` |", &format!("| TestB | x | {both} |")]);
    assert_eq!(uncited(&bad, &sources), ["src/a.rs: above names TestA, whose row lacks it"]);
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
