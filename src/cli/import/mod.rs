//! `informer-hub import-kubeconfig`: makes a configuration from the contexts of a kubeconfig. The configuration refers
//! to the kubeconfig and contains no secrets.

mod context;
mod name;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args as ClapArgs;

use self::context::ContextSummary;
use self::name::{matches, name_for};
use super::print::out;
use informer_hub_source::{default_kubeconfigs, read_any_kubeconfig};
use informer_hub_types::{clock, printable, printable_char};

/// Arguments of `import-kubeconfig`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "Examples:\n  informer-hub import-kubeconfig > hub.toml\n  informer-hub import-kubeconfig \
    --context 'prod-*' --context staging ~/.kube/work > hub.toml\n  informer-hub check -c hub.toml\n\nExit codes: 0 \
    done, also with warnings; 1 no context was found, or a file cannot be read.")]
pub(super) struct Args {
    /// The kubeconfig; default: the files in KUBECONFIG, or ~/.kube/config
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Only this context, or all that match a pattern (* any text, ? any character); may be given several times
    #[arg(long = "context", value_name = "NAME|GLOB")]
    contexts: Vec<String>,
    /// Leave out [resources], to append the output to a file
    #[arg(long)]
    clusters_only: bool,
}

pub(super) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let files = args.file.as_ref().map_or_else(default_kubeconfigs, |file| vec![file.clone()]);
    let found = gather(&files)?;
    let known: Vec<_> = found.iter().map(|(_, it)| it.context.clone()).collect();
    if let Some(unmet) = args.contexts.iter().find(|pattern| !known.iter().any(|name| matches(pattern, name))) {
        bail!(
            "no context matches {unmet:?}; known: {}",
            if known.is_empty() { "none".to_owned() } else { known.join(", ") }
        );
    }
    let is_chosen = |name: &str| args.contexts.is_empty() || args.contexts.iter().any(|pattern| matches(pattern, name));
    let chosen: Vec<_> = found.into_iter().filter(|(_, found)| is_chosen(&found.context)).collect();
    if chosen.is_empty() {
        bail!(
            "no context in {}; give the FILE of a kubeconfig, whose contexts `kubectl --kubeconfig FILE config \
             get-contexts` lists",
            shown(&files)
        );
    }
    for (_, found) in &chosen {
        found.warnings.iter().for_each(|warning| note!("context {:?}: {}", found.context, printable(warning)));
    }
    out(&toml(&chosen, !args.clusters_only))?;
    Ok(ExitCode::SUCCESS)
}

fn shown(files: &[PathBuf]) -> String {
    files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// Reads the contexts of all files, each with its file. If several files have a context of the same name, the context
/// in the first of these files counts, as with kubectl.
fn gather(files: &[PathBuf]) -> anyhow::Result<Vec<(PathBuf, ContextSummary)>> {
    if !files.iter().any(|file| file.exists()) {
        bail!("there is no kubeconfig {}; give the path of one as FILE, or set KUBECONFIG", shown(files));
    }
    let mut all: Vec<(PathBuf, ContextSummary)> = Vec::new();
    for file in files {
        if !file.exists() {
            note!("{}: there is no such file", file.display());
            continue;
        }
        let kubeconfig = read_any_kubeconfig(file)?;
        let file = std::path::absolute(file).with_context(|| format!("{} is not a path", file.display()))?;
        for named in &kubeconfig.contexts {
            if let Some((first, _)) = all.iter().find(|(_, it)| it.context == named.name) {
                let (name, file) = (&named.name, file.display());
                note!("context {name:?} of {file}: ignored, because {} has a context of this name", first.display());
                continue;
            }
            all.push((file.clone(), ContextSummary::of(&kubeconfig, named, clock::wall())));
        }
    }
    Ok(all)
}

fn toml(contexts: &[(PathBuf, ContextSummary)], resources: bool) -> String {
    let mut text = String::from(
        "# Made by informer-hub import-kubeconfig. Credentials stay where they are: this file refers to the kubeconfig.\n\
         # config/hub.toml in the source repository has every key; `informer-hub check -c FILE` checks this file.\n",
    );
    let mut taken = BTreeSet::new();
    for (file, found) in contexts {
        let name = name_for(&found.context, &mut taken);
        let _ = write!(text, "\n[clusters.{}]\n# {}", toml_edit::Key::new(name), comment(&about(found)));
        text.push('\n');
        for warning in &found.warnings {
            let _ = writeln!(text, "# WARNING: {}", comment(warning));
        }
        let _ = writeln!(text, "kubeconfig = {}", quoted(&short(file)));
        let _ = writeln!(text, "context = {}", quoted(&found.context));
        text.push_str("# Labels to select clusters by:\n# labels = { tier = \"prod\" }\n");
    }
    if resources {
        text.push_str("\n# Watched resources, named as for kubectl: pods, deployments.apps, …\n[resources.pods]\n");
    }
    text
}

fn about(found: &ContextSummary) -> String {
    let server = found.server.as_deref().unwrap_or("no address");
    let user = found.user.as_deref().map_or_else(|| "without a user".to_owned(), |user| format!("as {user:?}"));
    let namespace = found.namespace.as_deref();
    let namespace = namespace.map(|name| format!("; its namespace {name} does not limit what is watched"));
    format!("{server}, {user} ({}){}", found.credentials, namespace.unwrap_or_default())
}

/// Makes a text of the kubeconfig safe for a comment of one line: replaces line breaks and control characters.
fn comment(text: &str) -> String {
    printable(text)
}

/// Returns a text as a TOML value that is safe on a terminal.
fn quoted(text: &str) -> String {
    if printable(text) == text {
        return toml_edit::Value::from(text).to_string();
    }
    let mut value = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => value.extend(['\\', c]),
            c if printable_char(c) == c => value.push(c),
            c => {
                let _ = write!(value, "\\U{:08X}", u32::from(c));
            }
        }
    }
    value + "\""
}

/// Returns a path with `~` for the home directory.
fn short(file: &Path) -> String {
    let home = std::env::home_dir().filter(|home| home.as_os_str().len() > 1);
    match home.as_deref().and_then(|home| file.strip_prefix(home).ok()) {
        Some(rest) => format!("~/{}", rest.display()),
        None => file.display().to_string(),
    }
}

#[cfg(test)]
mod tests;
