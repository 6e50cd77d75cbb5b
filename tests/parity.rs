//! Tests of `docs/bad-input.md`, of the tables in `tests/parity`, which cite tests, and of the packages in
//! `docs/controllers.md`.
//!
//! Each client-go test and each bad input has one row. Each test that a table cites exists, is compiled and is not
//! ignored. A test whose comment names a client-go test is cited in that test's row.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use informer_hub_testing::texts_below;

/// Number of tests in client-go's `tools/cache`, v0.37.0.
const CLIENT_GO_TESTS: usize = 187;

/// Valid beginnings of an answer that cites no test.
const EXCUSES: [&str; 2] = ["cannot apply", "not offered"];

/// Table of client-go's tests.
const CLIENT_GO: &str = "tests/parity/client-go.md";

/// Page and section with the counterparts of other packages of client-go, and their number.
const PACKAGES: (&str, &str, usize) = ("docs/controllers.md", "Other packages of client-go", 17);

/// First parts of paths that are items of the hub. All others are of other crates.
const OURS: [&str; 6] = ["informer_hub", "query", "SharedInformer", "SharedInformerFactory", "Work", "workqueue"];

/// A table row and the headings above it.
#[derive(Debug, PartialEq)]
struct Row<'d> {
    line: usize,
    /// The `##` heading above it, then the `###` one.
    headings: [&'d str; 2],
    cells: Vec<&'d str>,
}

/// Returns all rows of all tables, without header rows.
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

/// Returns the tests that a cell cites, as file and function: `` `src/a.rs::name` ``.
fn cited_tests(cell: &str) -> Vec<(&str, &str)> {
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

/// Verifies that `source` has a test of that name: a function with a test attribute above it, not ignored.
fn has_test(source: &str, name: &str) -> Result<(), String> {
    let lines: Vec<_> = source.lines().map(str::trim_start).collect();
    let is_it = |line: &&str| {
        let rest = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
        rest.and_then(|rest| rest.strip_prefix(name)).is_some_and(|rest| rest.starts_with('('))
    };
    let Some(at) = lines.iter().position(is_it) else { return Err(format!("no function {name}")) };
    let above: Vec<_> = above(&lines, at).collect();
    if !above.iter().any(|line| is_test_attribute(line)) {
        Err(format!("{name} is not a test"))
    } else if above.iter().any(|line| line.starts_with("#[ignore")) {
        Err(format!("{name} is ignored"))
    } else {
        Ok(())
    }
}

/// Returns the attributes and comments directly above a line.
fn above<'s>(lines: &[&'s str], at: usize) -> impl Iterator<Item = &'s str> {
    lines[..at].iter().rev().take_while(|line| line.starts_with("#[") || line.starts_with("//")).copied()
}

fn is_test_attribute(line: &str) -> bool {
    ["#[test]", "#[tokio::test", "#[actix::test", "#[actix_rt::test"].iter().any(|test| line.starts_with(test))
}

/// Returns whether a file of `tests` is compiled: it is a target itself, or its target's root declares it. For `src`,
/// `tests/layering` verifies this.
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

/// Returns each test with the client-go tests named in its comments, above it or at the start of its body.
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

/// Returns the tests whose comments name a client-go test that does not cite them in its row.
fn uncited(document: &str, sources: &BTreeMap<String, String>) -> Vec<String> {
    let mut cited: BTreeMap<&str, BTreeSet<(&str, &str)>> = BTreeMap::new();
    for row in rows(document).iter().filter(|row| row.cells.len() == 2) {
        cited.entry(row.cells[0]).or_default().extend(cited_tests(row.cells[1]));
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

/// Returns the problems of the tests that a row cites. `read` returns a file's text.
fn missing_tests(row: &Row<'_>, cell: &str, read: &impl Fn(&str) -> Option<String>) -> Vec<String> {
    let check = |(file, name): (&str, &str)| {
        let source = read(file).ok_or_else(|| format!("no file {file}"))?;
        if !is_compiled(file, read) {
            return Err(format!("no `mod` declares {file}"));
        }
        has_test(&source, name).map_err(|problem| format!("{file}: {problem}"))
    };
    let problems = cited_tests(cell).into_iter().filter_map(|test| check(test).err());
    problems.map(|problem| format!("line {}: {problem}", row.line)).collect()
}

/// Returns the problems of the parity tables.
fn parity_problems(document: &str, tests: usize, read: &impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut problems = Vec::new();
    let mut by_place: BTreeMap<[&str; 2], BTreeSet<&str>> = BTreeMap::new();
    let mut informers = BTreeMap::new();
    for row in rows(document) {
        let mut wrong = |problem: String| problems.push(format!("line {}: {problem}", row.line));
        let [name, ours] = row.cells[..] else {
            wrong(format!("{} cells instead of 2", row.cells.len()));
            continue;
        };
        if !name.starts_with("Test") {
            wrong(format!("{name:?} is not the name of a Go test"));
        }
        if ours.is_empty() {
            wrong(format!("{name} has no answer"));
        }
        if cited_tests(ours).is_empty() && !EXCUSES.iter().any(|excuse| ours.starts_with(excuse)) {
            wrong(format!("{name} cites no test and does not begin with {}", EXCUSES.join(" or ")));
        }
        if !by_place.entry(row.headings).or_default().insert(name) {
            wrong(format!("{name} is listed twice"));
        }
        if row.headings[0] == "The informers"
            && let Some(before) = informers.insert(name, row.line)
        {
            wrong(format!("{name} is already in line {before}"));
        }
        problems.extend(missing_tests(&row, ours, read));
    }
    if informers.len() != tests {
        problems.push(format!("{} of client-go's {tests} tests are listed", informers.len()));
    }
    for (headings, names) in by_place {
        if !headings[1].ends_with(&format!(" ({})", names.len())) {
            problems.push(format!("the heading {:?} has {} tests below it", headings[1], names.len()));
        }
    }
    problems
}

/// Returns the problems of the table of packages. `api` is the listing of the public API.
fn package_problems(document: &str, packages: usize, api: &str) -> Vec<String> {
    let (mut problems, mut known, api) = (Vec::new(), BTreeSet::new(), without_generics(api));
    for row in rows(document).into_iter().filter(|row| row.headings[0] == PACKAGES.1) {
        let mut wrong = |problem: String| problems.push(format!("line {}: {problem}", row.line));
        let [package, purpose, ours] = row.cells[..] else {
            wrong(format!("{} cells instead of 3", row.cells.len()));
            continue;
        };
        if purpose.is_empty() || ours.is_empty() {
            wrong(format!("{package} has no purpose or no answer"));
        }
        if !known.insert(package) {
            wrong(format!("{package} is listed twice"));
        }
        let unknown = own_items(ours).into_iter().filter(|item| !has_item(&api, item));
        unknown.for_each(|item| wrong(format!("the public API has no {item}")));
    }
    if known.len() != packages {
        problems.push(format!("{} of {packages} packages are listed", known.len()));
    }
    problems
}

/// Returns the paths of the hub's items in the code of a cell, without generics.
fn own_items(cell: &str) -> Vec<String> {
    let paths = cell.split('`').skip(1).step_by(2).map(|code| without_generics(code).replace("::()", ""));
    paths.filter(|path| path.split_once("::").is_some_and(|(first, _)| OURS.contains(&first))).collect()
}

/// Returns whether the public API lists an item: its name and what it is in. Crates have other names there.
fn has_item(api: &str, item: &str) -> bool {
    let parts: Vec<_> = item.split("::").collect();
    let end = parts[parts.len().saturating_sub(2)..].join("::");
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    api.match_indices(&end).any(|(at, _)| !api[at + end.len()..].starts_with(is_part))
}

/// Returns a text without what is between angle brackets.
fn without_generics(text: &str) -> String {
    let (mut depth, mut before) = (0_usize, ' ');
    let mut keeps = |c: char| {
        let is_arrow = std::mem::replace(&mut before, c) == '-';
        match c {
            '<' => depth += 1,
            '>' if is_arrow => return depth == 0,
            '>' => depth = depth.saturating_sub(1),
            '\n' => depth = 0,
            _ => return depth == 0,
        }
        c == '\n'
    };
    text.chars().filter(|c| keeps(*c)).collect()
}

/// Returns the problems of the bad-input page and of the table with its tests. The table describes the effect of an
/// input that is not on the page.
fn bad_input_problems(page: &str, tests: &str, read: &impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut problems = Vec::new();
    let mut inputs = BTreeSet::new();
    // The first table links to other pages.
    for row in rows(page).into_iter().filter(|row| !row.headings[0].is_empty()) {
        if row.cells.len() != 3 || row.cells.iter().any(|cell| cell.is_empty()) {
            problems.push(format!("line {}: not three non-empty cells", row.line));
        } else if !inputs.insert(row.cells[0]) {
            problems.push(format!("line {}: {} is listed twice", row.line, row.cells[0]));
        }
    }
    if inputs.is_empty() {
        problems.push("no table".to_owned());
    }
    let mut listed = BTreeSet::new();
    for row in rows(tests) {
        let (input, has_effect, cited) = match row.cells[..] {
            [input, cited] => (input, false, cited),
            [input, effect, cited] if !effect.is_empty() => (input, true, cited),
            _ => {
                problems.push(format!("line {}: neither two nor three cells, or no effect", row.line));
                continue;
            }
        };
        if inputs.contains(input) == has_effect {
            problems.push(format!("line {}: {input} has an effect here and on the page, or on neither", row.line));
        }
        if !listed.insert(input) {
            problems.push(format!("line {}: {input} is listed twice", row.line));
        }
        if cited_tests(cited).is_empty() {
            problems.push(format!("line {}: no test is cited", row.line));
        }
        problems.extend(missing_tests(&row, cited, read));
    }
    problems.extend(inputs.difference(&listed).map(|input| format!("no tests of {input}")));
    problems
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).ok()
}

#[test]
fn every_client_go_test_has_a_row() {
    let document = read(CLIENT_GO).expect("the document exists");
    let problems = parity_problems(&document, CLIENT_GO_TESTS, &read);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn row_of_a_client_go_test_names_each_test_whose_comment_names_it() {
    let document = read(CLIENT_GO).expect("the document exists");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let texts = ["src", "crates", "tests/hub"].into_iter().flat_map(|folder| texts_below(root, folder, "rs"));
    let sources: BTreeMap<_, _> = texts.map(|(path, text)| (path.to_string_lossy().into_owned(), text)).collect();
    assert!(sources.contains_key("src/cache/tests/fifo.rs") && sources.contains_key("tests/hub/informers.rs"));
    let problems = uncited(&document, &sources);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn every_package_has_an_answer_and_names_items_that_exist() {
    let (page, _, packages) = PACKAGES;
    let (page, api) = (read(page).expect("the page exists"), read("tests/public-api.txt").expect("the list exists"));
    let problems = package_problems(&page, packages, &api);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn every_bad_input_has_a_test() {
    let page = read("docs/bad-input.md").expect("the page exists");
    let tests = read("tests/parity/bad-input.md").expect("the table exists");
    let problems = bad_input_problems(&page, &tests, &read);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

// === tests of the check ===

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
    let head = "# Title\n\n| not | a | row |\n\n## The informers\n\n### a_test.go (2)\n\n| test | ours |\n|---|---|\n";
    format!("{head}{}\n", rows.join("\n"))
}

/// Returns the first problem of a table that should have two tests.
fn first_problem(rows: &[&str]) -> Option<String> {
    parity_problems(&table(rows), 2, &a_source).into_iter().next()
}

#[test]
fn valid_table_has_no_problems() {
    let good = ["| TestA | `src/a.rs::plain`, and so on |", "| TestB | not offered: why |"];
    // The line above the first heading is a row too, and has too many cells.
    assert_eq!(first_problem(&good), Some("line 3: 3 cells instead of 2".to_owned()));
    let document = table(&good).replace("| not | a | row |\n", "");
    assert_eq!(parity_problems(&document, 2, &a_source), [""; 0]);
    let other = "\n## Neighbours\n\n### b (1)\n\n| test | ours |\n|---|---|\n| TestA | cannot apply: why |\n";
    assert_eq!(parity_problems(&(document + other), 2, &a_source), [""; 0], "a neighbour may have the same name");
}

#[test]
fn table_check_finds_each_mistake() {
    let good = "| TestA | `src/a.rs::plain` |";
    for (bad, problem) in [
        ("| TestB | |", "line 12: TestB has no answer"),
        ("| TestB | it | `src/a.rs::plain` |", "line 12: 3 cells instead of 2"),
        ("| TestB |", "line 12: 1 cells instead of 2"),
        ("| TestB | one day |", "line 12: TestB cites no test and does not begin with cannot apply or not offered"),
        ("| TestB | `plain` |", "line 12: TestB cites no test and does not begin with cannot apply or not offered"),
        (
            "| TestB | src/a.rs::plain |",
            "line 12: TestB cites no test and does not begin with cannot apply or not offered",
        ),
        ("| TestB | `src/b.rs::plain` |", "line 12: no file src/b.rs"),
        ("| TestB | `src/a.rs::plai` |", "line 12: src/a.rs: no function plai"),
        ("| TestB | not offered, `src/a.rs::lain` |", "line 12: src/a.rs: no function lain"),
        ("| TestB | `src/a.rs::plain`, `src/a.rs::helper` |", "line 12: src/a.rs: helper is not a test"),
        ("| TestB | `src/a.rs::built` |", "line 12: src/a.rs: built is not a test"),
        ("| TestB | `src/a.rs::apart` |", "line 12: src/a.rs: apart is not a test"),
        ("| TestB | `src/a.rs::sleeps` |", "line 12: src/a.rs: sleeps is ignored"),
        ("| TestB | `tests/hub/lost.rs::plain` |", "line 12: no `mod` declares tests/hub/lost.rs"),
        ("| B | `src/a.rs::plain` |", "line 12: \"B\" is not the name of a Go test"),
        ("| TestA | `src/a.rs::plain` |", "line 12: TestA is listed twice"),
        ("", "1 of client-go's 2 tests are listed"),
        ("## The informers\n### b (1)\n| TestA | `src/a.rs::plain` |", "line 14: TestA is already in line 11"),
        ("| TestB | `src/a.rs::plain` |\n| TestC | `src/a.rs::plain` |", "3 of client-go's 2 tests are listed"),
    ] {
        let document = table(&[good, bad]).replace("| not | a | row |\n", "\n");
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
fn package_check_finds_each_mistake() {
    let api = "pub fn hub::SharedInformer<K<T>>::lister(&self) -> Lister<K>\npub struct hub_workqueue::Bucket(_)\n";
    let problems = |rows: &str| {
        let document = format!("## {}\n\n| package | for | here |\n|---|---|---|\n{rows}", PACKAGES.1);
        package_problems(&(document + "\n## Other\n| a |\n"), 2, api)
    };
    let good = "| `a` | b | `workqueue::Bucket`, `kube::Api` |\n";
    assert_eq!(problems(&format!("{good}| `c` | d | `SharedInformer::lister::<K>()` |")), [""; 0]);
    assert_eq!(problems(good), ["1 of 2 packages are listed"]);
    for (row, problem) in [
        ("| `c` | d | |", "line 6: `c` has no purpose or no answer"),
        ("| `c` | | d |", "line 6: `c` has no purpose or no answer"),
        ("| `c` | d |", "line 6: 2 cells instead of 3"),
        ("| `a` | b | c |", "line 6: `a` is listed twice"),
        ("| `c` | d | `workqueue::Buck` |", "line 6: the public API has no workqueue::Buck"),
        ("| `c` | d | `SharedInformer::indexer` |", "line 6: the public API has no SharedInformer::indexer"),
    ] {
        assert_eq!(problems(&(good.to_owned() + row)).first().map(String::as_str), Some(problem), "{row}");
    }
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
    let good = table(&[&format!("| TestA | {both} |"), &format!("| TestB | {both} |")]);
    assert_eq!(uncited(&good, &sources), [""; 0]);
    let bad = table(&["| TestA | `src/a.rs::inside` |", &format!("| TestB | {both} |")]);
    assert_eq!(uncited(&bad, &sources), ["src/a.rs: above names TestA, whose row lacks it"]);
}

#[test]
fn heading_count_must_match_its_rows() {
    let document = table(&["| TestA | `src/a.rs::plain` |", "| TestB | `src/a.rs::waits`, `src/a.rs::drawn` |"]);
    let document = document.replace("| not | a | row |\n", "");
    assert_eq!(parity_problems(&document, 2, &a_source), [""; 0]);
    let wrong = document.replace("a_test.go (2)", "a_test.go (12)");
    assert_eq!(parity_problems(&wrong, 2, &a_source), ["the heading \"a_test.go (12)\" has 2 tests below it"]);
}

#[test]
fn bad_input_table_check_finds_each_mistake() {
    let problems = |rows: &str, tests: &str| {
        let page = format!("## A\n| input | what happens | where it shows |\n|---|---|---|\n{rows}");
        bad_input_problems(&page, &format!("| input | test |\n|---|---|\n{tests}"), &a_source)
    };
    let row = "| a | b | c |";
    let tested = "| a | `src/a.rs::plain` |";
    assert_eq!(problems(row, tested), [""; 0]);
    assert_eq!(problems(row, &format!("{tested}\n| b | an effect | `src/a.rs::plain` |")), [""; 0]);
    assert_eq!(problems("", ""), ["no table"]);
    assert_eq!(problems("| a | b | |", "")[0], "line 4: not three non-empty cells");
    assert_eq!(problems(&format!("{row}\n{row}"), tested), ["line 5: a is listed twice"]);
    assert_eq!(problems(row, ""), ["no tests of a"]);
    assert_eq!(problems(row, "| a | plain |"), ["line 3: no test is cited"]);
    assert_eq!(problems(row, "| a | `src/a.rs::other` |"), ["line 3: src/a.rs: no function other"]);
    assert_eq!(problems(row, &format!("{tested}\n{tested}")), ["line 4: a is listed twice"]);
    let neither = "line 4: b has an effect here and on the page, or on neither";
    assert_eq!(problems(row, &format!("{tested}\n| b | `src/a.rs::plain` |")), [neither]);
    let both = "line 3: a has an effect here and on the page, or on neither";
    assert_eq!(problems(row, "| a | an effect | `src/a.rs::plain` |"), [both]);
    assert_eq!(problems(row, "| a | | `src/a.rs::plain` |")[0], "line 3: neither two nor three cells, or no effect");
}
