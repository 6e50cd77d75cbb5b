//! Test that `fuzz/Cargo.lock`, which only `make fuzz` uses, has every dependency.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use toml_edit::{DocumentMut, Item};

fn read(path: &Path) -> DocumentMut {
    std::fs::read_to_string(path).unwrap().parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the dependencies of each package in `fuzz/Cargo.lock`, as names without versions.
fn locked(root: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let lock = read(&root.join("fuzz/Cargo.lock"));
    let packages = lock["package"].as_array_of_tables().unwrap().iter().map(|package| {
        let names = package.get("dependencies").and_then(Item::as_array).into_iter().flatten();
        let names = names.filter_map(|name| name.as_str()?.split(' ').next()).map(str::to_owned);
        (package["name"].as_str().unwrap().to_owned(), names.collect())
    });
    packages.collect()
}

/// Returns the name of a manifest's package, and the names of its dependencies that are not optional.
fn required(manifest: &Path) -> (String, BTreeSet<String>) {
    let document = read(manifest);
    let dependencies = document["dependencies"].as_table_like().unwrap();
    let is_optional = |item: &Item| item.get("optional").and_then(Item::as_bool) == Some(true);
    let required = dependencies.iter().filter(|(_, item)| !is_optional(item)).map(|(name, _)| name.to_owned());
    (document["package"]["name"].as_str().unwrap().to_owned(), required.collect())
}

#[test]
fn lock_file_has_every_dependency() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let locked = locked(root);
    let crates = std::fs::read_dir(root.join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let manifests: Vec<PathBuf> =
        crates.chain([root.to_owned(), root.join("fuzz")]).map(|dir| dir.join("Cargo.toml")).collect();
    assert!(manifests.len() > 10);
    for manifest in manifests {
        let (package, required) = required(&manifest);
        let Some(locked) = locked.get(&package) else { continue };
        let missing: Vec<_> = required.difference(locked).collect();
        assert!(missing.is_empty(), "fuzz/Cargo.lock: {package} needs {missing:?}; run `cargo update -w` in fuzz");
    }
}
