//! Golden screens: the output of commands on terminals of 80, 120 and 200 columns.
//!
//! With the variable `SCREENS` set, the test rewrites the file.

use std::fmt::Write;

use crate::client::{Fleet, add_owners};
use crate::terminal::run_on_terminal;
use crate::wait::until;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/run/screens.txt");

/// Commands whose screens are kept.
const COMMANDS: [&[&str]; 7] = [
    &["get", "pods"],
    &["get", "pods", "-o", "wide"],
    &["get", "pods", "-n", "checkout", "--clusters", "prod-eu"],
    &["get", "pods/web-9", "nodes/node-0", "--clusters", "dev"],
    &["query", "status.containerStatuses[*].ready = false"],
    &["query", "select cluster, namespace, name, spec.nodeName, spec.containers[*].image order by name limit 4"],
    &["query", "spec.nodeName = node-0 and name prefix web", "--explain"],
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn screens_are_as_kept_at_every_width() {
    let fleet = Fleet::start("").await;
    let mut screens = String::new();
    for columns in [80, 120, 200] {
        for arguments in COMMANDS {
            let mut command = fleet.command(arguments);
            command.env("NO_COLOR", "1");
            let screen = masked(&run_plain(command, columns));
            for line in screen.lines() {
                assert!(line.chars().count() <= usize::from(columns), "{columns}: {line}");
            }
            let line = shlex::try_join(arguments.iter().copied()).unwrap();
            writeln!(screens, "== {columns}: informer-hub {line}").unwrap();
            screens += &screen;
        }
    }
    fleet.clusters[0].with_world(add_owners);
    until("the hub has the tree", async || {
        fleet.run(&["tree", "pod", "leaf-2"]).out.contains("Widget/root").then_some(())
    })
    .await;
    for columns in [80, 120, 200] {
        let mut command = fleet.command(&["tree", "widget", "middle"]);
        command.env("NO_COLOR", "1");
        writeln!(screens, "== {columns}: informer-hub tree widget middle").unwrap();
        screens += &run_plain(command, columns);
    }
    if std::env::var_os("SCREENS").is_some() {
        std::fs::write(FILE, &screens).unwrap();
    }
    assert_eq!(screens, std::fs::read_to_string(FILE).unwrap_or_default(), "{screens}");
}

/// Hides the token of a continued query, which differs in each process.
fn masked(text: &str) -> String {
    let line = |line: &str| match line.split_once("--continue ") {
        Some((start, _)) => format!("{start}--continue TOKEN\n"),
        None => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

fn run_plain(command: std::process::Command, columns: u16) -> String {
    let (_, screen) = run_on_terminal(command, columns);
    assert!(!screen.contains('\x1b'), "NO_COLOR is set: {screen:?}");
    screen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn colours_are_for_terminals_only() {
    let fleet = Fleet::start("").await;
    let arguments = ["get", "pods"];
    let screen = fleet.screen(&arguments, 120);
    assert!(screen.contains("\x1b[31mCrashLoopBackOff\x1b[39m"), "{screen:?}");
    assert!(screen.contains("\x1b[32mRunning\x1b[39m"), "{screen:?}");
    let piped = fleet.run(&arguments);
    assert!(!piped.out.contains('\x1b'), "{piped:?}");
    let mut dumb = fleet.command(&arguments);
    dumb.env("NO_COLOR", "");
    let (_, coloured) = run_on_terminal(dumb, 120);
    assert!(coloured.contains('\x1b'), "an empty NO_COLOR does not count");
    let narrow = fleet.screen(&arguments, 40);
    assert!(narrow.contains("no room for READY, "), "{narrow}");
    assert!(piped.out.contains("RESTARTS") && !piped.err.contains("no room"), "{piped:?}");
}
