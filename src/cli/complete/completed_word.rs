//! The word that the shell completes: the kind of its candidates, derived from the words before it, and the hub to ask.

use clap::{ArgMatches, Command, FromArgMatches};

use crate::cli::client::HubArgs;

/// The word that the shell completes, and what the words before it select.
#[derive(Debug)]
pub(super) struct CompletedWord {
    pub(super) kind: Kind,
    /// Part of the word that was typed before completion.
    pub(super) word: String,
    /// Beginning of the word, such as `pods,` or `pod/`, that is copied to each candidate unchanged.
    pub(super) prefix: String,
    /// Namespace that the preceding words select.
    pub(super) namespace: Option<String>,
    /// Clusters that the preceding words select.
    pub(super) clusters: String,
    /// Resource that the preceding words name.
    pub(super) resource: Option<String>,
    /// Address of the hub that has the candidates, and credentials for it.
    pub(super) hub: HubArgs,
}

/// Kind of the completion candidates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Resources,
    /// Names of objects of the resource.
    Names,
    Namespaces,
    Clusters,
    /// Names of clusters, and their labels.
    ClustersAndLabels,
    Sinks,
    Formats,
}

impl CompletedWord {
    /// Determines the candidates for `word` after the words `before`; `None` if the hub has no candidates for it.
    pub(super) fn of(command: Command, before: &[String], word: &str) -> Option<Self> {
        let (before, word) = joined(before, word);
        let command = command.ignore_errors(true);
        let words = std::iter::once("informer-hub").chain(before.iter().map(String::as_str));
        let matches = command.clone().try_get_matches_from(words).ok()?;
        let (name, given) = matches.subcommand()?;
        let command = command.find_subcommand(name)?;
        // Only commands that ask a hub have the option `--url`; others have no candidates.
        command.get_arguments().find(|arg| arg.get_id() == "url")?;
        let option = before.last().and_then(|last| option(command, last));
        let mut completed = Self {
            kind: Kind::Resources,
            prefix: String::new(),
            namespace: text(given, "namespace"),
            clusters: text(given, "clusters").unwrap_or_else(|| "*".to_owned()),
            resource: words_of(given, "what").or_else(|| words_of(given, "resources")).into_iter().flatten().next(),
            hub: HubArgs::from_arg_matches(given).unwrap_or_default(),
            word,
        };
        match option.as_deref() {
            Some("namespace") => completed.kind = Kind::Namespaces,
            Some("clusters") => completed.kind = Kind::ClustersAndLabels,
            Some("cluster") => completed.kind = Kind::Clusters,
            Some("resource") => {}
            Some("output") if matches!(name, "get" | "query") => completed.kind = Kind::Formats,
            Some(_) => return None,
            None if completed.word.starts_with('-') => return None,
            None => match name {
                "get" | "tree" => completed.object(),
                "watch" => completed.after(','),
                "resources" => {}
                "clusters" => completed.kind = Kind::Clusters,
                "sinks" => completed.kind = Kind::Sinks,
                _ => return None,
            },
        }
        Some(completed)
    }

    /// Sets the kind of candidates of `get` and `tree`: object names if a resource precedes the word, else resources.
    fn object(&mut self) {
        if let Some((resource, _)) = self.word.split_once('/') {
            (self.kind, self.resource) = (Kind::Names, Some(resource.to_owned()));
            self.prefix = format!("{resource}/");
        } else if self.resource.as_ref().is_some_and(|resource| !resource.contains('/')) {
            self.kind = Kind::Names;
        } else {
            self.after(',');
        }
    }

    fn after(&mut self, separator: char) {
        if let Some(at) = self.word.rfind(separator) {
            self.prefix = self.word[..=at].to_owned();
        }
    }
}

/// Joins words that bash has split at `=`. Returns the words before the completed word, and the completed word.
fn joined(before: &[String], word: &str) -> (Vec<String>, String) {
    let mut words: Vec<String> = Vec::new();
    let mut is_open = false;
    for part in before.iter().map(String::as_str).chain([word]) {
        let is_sign = part == "=";
        match words.last_mut() {
            Some(last) if (is_sign || is_open) && words_can_join(last) => last.push_str(part),
            _ => words.push(part.to_owned()),
        }
        is_open = is_sign;
    }
    let word = words.pop().unwrap_or_default();
    (words, word)
}

/// Returns whether `=` and the text after it belong to the same word as `last`, the text before it. False if `last` is
/// an option, because the option's value counts as a separate word.
fn words_can_join(last: &str) -> bool {
    !last.starts_with('-')
}

/// Returns the long name of the option in `word`, if that option takes a value.
fn option(command: &Command, word: &str) -> Option<String> {
    let is_it = |arg: &&clap::Arg| match word.strip_prefix("--") {
        Some(long) => arg.get_long() == Some(long),
        None => word.strip_prefix('-').is_some_and(|short| arg.get_short().is_some_and(|it| short.ends_with(it))),
    };
    let arg = command.get_arguments().find(is_it).filter(|arg| arg.get_action().takes_values())?;
    arg.get_long().map(str::to_owned)
}

fn text(given: &ArgMatches, id: &str) -> Option<String> {
    given.try_get_one::<String>(id).ok().flatten().cloned()
}

fn words_of(given: &ArgMatches, id: &str) -> Option<Vec<String>> {
    Some(given.try_get_many::<String>(id).ok()??.cloned().collect())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    fn completed(line: &str) -> String {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let (word, before) = words.split_last().unwrap();
        let Some(completed) = CompletedWord::of(Cli::command(), before, word) else { return "nothing".to_owned() };
        let CompletedWord { kind, word, prefix, namespace, clusters, resource, .. } = completed;
        format!(
            "{kind:?} {prefix}|{word} {} {} {clusters}",
            resource.unwrap_or_default(),
            namespace.unwrap_or_default()
        )
    }

    #[test]
    fn candidates_follow_from_the_words_before() {
        for (line, expected) in [
            ("get ", "Resources |   *"),
            ("get -n shop po", "Resources |po  shop *"),
            ("get pods,no", "Resources pods,|pods,no   *"),
            ("get pods ", "Names | pods  *"),
            ("get pods a --clusters tier=prod w", "Names |w pods  tier=prod"),
            ("get pod/we", "Names pod/|pod/we pod  *"),
            ("get pod/a we", "Resources |we pod/a  *"),
            ("get pods -n ", "Namespaces | pods  *"),
            ("get --namespace s", "Namespaces |s   *"),
            ("get pods --clusters pro", "ClustersAndLabels |pro pods  *"),
            ("get pods --clusters tier = p", "ClustersAndLabels |tier=p pods  *"),
            ("get pods -o j", "Formats |j pods  *"),
            ("get pods --sort-by x", "nothing"),
            ("get pods -", "nothing"),
            ("status --cluster p", "Clusters |p   *"),
            ("query -r no", "Resources |no   *"),
            ("clusters ", "Clusters |   *"),
            ("sinks a", "Sinks |a   *"),
            ("run ", "nothing"),
            ("", "nothing"),
        ] {
            assert_eq!(completed(line), expected, "{line}");
        }
    }
}
