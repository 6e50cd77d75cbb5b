//! Environment variables that the configuration declares as secrets. Programs started by the hub do not inherit them.

use std::collections::BTreeSet;

use parking_lot::Mutex;

/// Names of the variables that are secrets. Process-wide, like the environment.
static NAMES: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Marks a variable as a secret for the lifetime of the process.
pub fn mark_secret_variable(name: &str) {
    let mut names = NAMES.lock();
    if !names.contains(name) {
        names.insert(name.to_owned());
    }
}

/// Returns whether a variable is marked as a secret.
#[must_use]
pub fn is_secret_variable(name: &str) -> bool {
    NAMES.lock().contains(name)
}
