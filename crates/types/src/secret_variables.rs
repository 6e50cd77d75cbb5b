//! Names of environment variables that the configuration names as secrets. Programs that the hub starts do not get them.

use std::collections::BTreeSet;

use parking_lot::Mutex;

/// The environment is the process's, and so are these names. They are few: as many as the configuration has.
static NAMES: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Marks a variable as a secret for the life of the process.
pub fn mark_secret_variable(name: &str) {
    let mut names = NAMES.lock();
    if !names.contains(name) {
        names.insert(name.to_owned());
    }
}

/// Whether a variable has been marked as a secret.
#[must_use]
pub fn is_secret_variable(name: &str) -> bool {
    NAMES.lock().contains(name)
}
