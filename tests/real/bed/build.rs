//! Builds the Go binaries that tests need, by the scripts in `tests/testbed`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Returns the test bed's binary.
pub(crate) fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| built("tests/testbed/build.sh"))
}

/// Returns the binary of client-go's readers.
pub(crate) fn reader() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| built_program("tests/testbed/build.sh", &["reader"]))
}

/// Returns the binary that writes the schema of built-in types.
pub(crate) fn protobuf() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| built_program("tests/testbed/build.sh", &["protobuf"]))
}

/// Returns the binary that writes objects of the older Kubernetes version.
pub(crate) fn protobuf_older() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| built_program("tests/testbed/build.sh", &["protobuf-older"]))
}

/// Returns the binary of kubectl.
pub(crate) fn kubectl() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| built_program("tests/testbed/build.sh", &["kubectl"]))
}

/// Runs a build script and returns the path that it prints. Quick if the binary is up to date; callers cache the path.
///
/// # Panics
/// If the build fails. Its output is on stderr.
pub(crate) fn built(script: &str) -> PathBuf {
    built_program(script, &[])
}

fn built_program(script: &str, arguments: &[&str]) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(script);
    // Cargo gives integration tests `<target>/tmp`; binaries go to `<target>/testbed`.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a directory of cargo's has a parent");
    let output = Command::new(&script)
        .args(arguments)
        .env("CARGO_TARGET_DIR", target)
        .stderr(Stdio::inherit())
        .output()
        .unwrap_or_else(|error| panic!("{} does not run: {error}", script.display()));
    assert!(output.status.success(), "{} failed with {}", script.display(), output.status);
    PathBuf::from(String::from_utf8(output.stdout).expect("a path in UTF-8").trim_end())
}
