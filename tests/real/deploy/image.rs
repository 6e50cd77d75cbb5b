//! The Containerfile, before the rules of those who build images.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use super::{path, text};
use crate::bed::built;

/// Whether the checker is content with a file, and what it says.
fn check(file: &Path) -> (bool, String) {
    static BINARY: OnceLock<std::path::PathBuf> = OnceLock::new();
    let output =
        Command::new(BINARY.get_or_init(|| built("tests/testbed/containerfile/build.sh"))).arg(file).output().unwrap();
    (output.status.success(), text(&output.stdout) + &text(&output.stderr))
}

#[test]
fn the_containerfile_breaks_no_rule() {
    let (content, said) = check(&path("deploy/Containerfile"));
    assert!(content && said.is_empty(), "{said}");
}

#[test]
fn a_bad_containerfile_is_told() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "FROM scratch AS a\nENV API_TOKEN=1\nCMD run it\n").unwrap();
    let (content, said) = check(file.path());
    assert!(!content && said.contains("SecretsUsedInArgOrEnv") && said.contains("JSONArgsRecommended"), "{said}");
}
