//! Tests of the Containerfile with BuildKit's lint rules.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use super::{path, text};
use crate::bed::built;

/// Runs the linter. Returns whether the file passes, and the messages.
fn check(file: &Path) -> (bool, String) {
    static BINARY: OnceLock<std::path::PathBuf> = OnceLock::new();
    let output =
        Command::new(BINARY.get_or_init(|| built("tests/testbed/containerfile/build.sh"))).arg(file).output().unwrap();
    (output.status.success(), text(&output.stdout) + &text(&output.stderr))
}

#[test]
fn containerfile_passes_the_linter() {
    let (passed, messages) = check(&path("deploy/Containerfile"));
    assert!(passed && messages.is_empty(), "{messages}");
}

#[test]
fn linter_reports_a_bad_containerfile() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "FROM scratch AS a\nENV API_TOKEN=1\nCMD run it\n").unwrap();
    let (passed, messages) = check(file.path());
    assert!(
        !passed && messages.contains("SecretsUsedInArgOrEnv") && messages.contains("JSONArgsRecommended"),
        "{messages}"
    );
}
