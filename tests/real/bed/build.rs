//! Finds the binaries that tests need and scripts build, and has them built when their sources changed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The test bed's binary.
pub(crate) fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| built("tests/testbed/build.sh"))
}

/// The binary that a script builds, which is quick unless there is something to build. Callers keep it, and ask once a run.
///
/// # Panics
/// When the build fails; what it wrote is on stderr above.
pub(crate) fn built(script: &str) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(script);
    // Cargo gives integration tests `<target>/tmp`; the binary goes beside it.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a directory of cargo's has a parent");
    let output = Command::new(&script)
        .env("CARGO_TARGET_DIR", target)
        .stderr(Stdio::inherit())
        .output()
        .unwrap_or_else(|error| panic!("{} does not run: {error}", script.display()));
    assert!(output.status.success(), "{} failed with {}", script.display(), output.status);
    PathBuf::from(String::from_utf8(output.stdout).expect("a path in UTF-8").trim_end())
}
