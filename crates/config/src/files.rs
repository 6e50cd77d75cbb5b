//! Parser of keys that name files, directories and secrets. Checks that these exist and are readable.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use figment::value::Value;

use super::Secret;
use super::spans::KeyPath;
use super::table::{Checker, Table, text};
use informer_hub_types::mark_secret_variable;

impl Secret {
    /// Returns the path of the file with the secret; `None` if the secret is in an environment variable.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Env(_) => None,
        }
    }

    /// Returns the name of the environment variable with the secret; `None` if the secret is in a file.
    #[must_use]
    pub fn variable(&self) -> Option<&str> {
        match self {
            Self::Env(name) => Some(name),
            Self::File(_) => None,
        }
    }

    /// Reads the secret, without a file's trailing line break. A file is read each time, so that a replacement is used.
    ///
    /// # Errors
    /// An I/O error if the variable or file is missing, empty, or not text. The error does not contain the secret.
    pub fn read(&self) -> io::Result<String> {
        let secret = match self {
            Self::Env(name) => {
                mark_secret_variable(name);
                std::env::var(name).map_err(|e| match e {
                    std::env::VarError::NotPresent => io::Error::new(io::ErrorKind::NotFound, "variable is not set"),
                    std::env::VarError::NotUnicode(_) => {
                        io::Error::new(io::ErrorKind::InvalidData, "variable is not UTF-8")
                    }
                })?
            }
            Self::File(path) => fs::read_to_string(path)?,
        };
        let trimmed = secret.strip_suffix('\n').map_or(secret.as_str(), |s| s.strip_suffix('\r').unwrap_or(s));
        if trimmed.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "secret is empty"));
        }
        Ok(trimmed.to_owned())
    }
}

impl Table<'_> {
    /// Reads the path of a readable file.
    pub(super) fn file(&mut self, key: &'static str) -> Option<PathBuf> {
        let text = self.text(key)?;
        Some(readable(self.checker, &self.path.key(key), &text))
    }

    /// Reads the path of a directory, which need not exist.
    pub(super) fn folder(&mut self, key: &'static str) -> Option<PathBuf> {
        let text = self.text(key)?;
        let path = place(self.checker, &text);
        if fs::metadata(&path).is_ok_and(|found| !found.is_dir()) {
            self.mistake(key, format!("{} is a file; write the name of a directory", path.display()));
        }
        Some(path)
    }

    /// Reads the path of an output file. The file need not exist, but its directory must.
    pub(super) fn output_file(&mut self, key: &'static str) -> Option<PathBuf> {
        let text = self.text(key)?;
        let file = place(self.checker, &text);
        let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if file.is_dir() {
            self.mistake(key, format!("{} is a directory; write the name of a file in it", file.display()));
        } else if self.checker.check_references && !parent.is_dir() {
            self.mistake(key, format!("there is no directory {}; create it first", parent.display()));
        }
        Some(file)
    }

    /// Reads `{ env = "NAME" }` or `{ file = "path" }`, and checks that the variable or file exists.
    pub(super) fn secret(&mut self, key: &'static str) -> Option<Secret> {
        let value = self.take(key)?;
        secret_at(self.checker, &self.path.key(key), value)
    }
}

/// Reads a secret from the value of the key at `path`: `{ env = "NAME" }` or `{ file = "path" }`.
pub(super) fn secret_at(checker: &Checker<'_>, path: &KeyPath, value: Value) -> Option<Secret> {
    const SHAPE: &str = "write { env = \"NAME\" } or { file = \"path\" }";
    if !matches!(value, Value::Dict(..)) {
        checker.mistake(path, format!("a secret does not belong in the configuration; {SHAPE}"));
        return None;
    }
    let mut table = Table::new(checker, path.clone(), value);
    let given = (table.has("env"), table.has("file"));
    let (env, file) = (table.text("env"), table.file("file"));
    table.finish();
    match given {
        (true, true) => checker.mistake(path, "has both env and file; keep one of them"),
        (false, false) => checker.mistake(path, format!("names no secret; {SHAPE}")),
        _ => {}
    }
    if let Some(file) = &file {
        checker.check_secret_file(&path.key("file"), file);
    }
    if let Some(name) = &env {
        mark_secret_variable(name);
        check_variable(checker, &path.key("env"), name);
    }
    env.map(Secret::Env).or_else(|| file.map(Secret::File))
}

/// Reads a map of strings such as labels, whose values may be empty.
pub(super) fn labels(checker: &Checker<'_>, path: &KeyPath, value: Value) -> super::ClusterLabels {
    let entries = Table::new(checker, path.clone(), value).entries();
    entries
        .filter_map(|(key, path, value)| match &value {
            Value::String(_, empty) if empty.is_empty() => Some((key, String::new())),
            value => text(checker, &path, value).map(|text| (key, text)),
        })
        .collect()
}

fn check_variable(checker: &Checker<'_>, path: &KeyPath, name: &str) {
    let Some(environment) = checker.environment.filter(|_| checker.check_references) else { return };
    match environment.get(name).map(String::as_str) {
        None => checker.mistake(path, format!("environment variable {name:?} is not set")),
        Some("") => checker.mistake(path, format!("environment variable {name:?} is empty")),
        Some(_) => {}
    }
}

/// Resolves the path of a file, and reports a mistake if it is not readable.
fn readable(checker: &Checker<'_>, path: &KeyPath, text: &str) -> PathBuf {
    let file = place(checker, text);
    if checker.check_references
        && let Err(problem) = can_read(&file)
    {
        checker.mistake(path, format!("cannot read {}: {problem}", file.display()));
    }
    file
}

/// Resolves a path: `~` is the home directory, and relative paths start at the configuration's directory.
fn place(checker: &Checker<'_>, text: &str) -> PathBuf {
    match (text.strip_prefix('~'), checker.home.as_deref()) {
        (Some(""), Some(home)) => home.to_owned(),
        (Some(rest), Some(home)) if rest.starts_with('/') => home.join(&rest[1..]),
        _ => checker.folder.join(text),
    }
}

/// Checks that a file is readable. A pipe is not opened, because its content can be read only once.
fn can_read(file: &Path) -> Result<(), String> {
    let described = |e: io::Error| match e.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => e.to_string(),
    };
    let metadata = fs::metadata(file).map_err(described)?;
    if metadata.is_dir() {
        return Err("it is a directory".to_owned());
    }
    if metadata.is_file() {
        File::open(file).map_err(described)?;
    }
    Ok(())
}
