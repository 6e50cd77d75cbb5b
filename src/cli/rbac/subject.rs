//! Subjects of bindings: how they are written on the command line, and the command that gives rights to the credentials in
//! use.

use std::path::Path;

use anyhow::bail;

use super::grants::Account;
use super::needs_discovery;
use crate::cli::quote::shell;
use informer_hub_config::{ClusterAccess, ResourceConfig};
use informer_hub_source::{self as source, Identity};
use informer_hub_types::printable;

/// The name of the service account, its namespace, and its roles, unless others are given.
const HUB: &str = "informer-hub";

/// The name of roles and bindings for users and groups. Another than that of the service account, whose binding would
/// otherwise lose its subject.
const HUB_USERS: &str = "informer-hub-users";

/// Cluster roles that Kubernetes has. A role of the same name would replace one of them.
const BUILT_IN_ROLES: [&str; 4] = ["admin", "cluster-admin", "edit", "view"];

/// The longest user or group.
const MOST: usize = 1024;

/// A service account as it is written: `NAME` or `NAMESPACE/NAME`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Written {
    namespace: Option<String>,
    name: String,
}

impl Written {
    /// The service account that is meant.
    ///
    /// # Errors
    /// Two namespaces are given.
    pub(super) fn account(written: Option<&Self>, namespace: Option<&str>) -> anyhow::Result<Account> {
        let own = written.and_then(|written| written.namespace.as_deref());
        if let (Some(own), Some(given)) = (own, namespace)
            && own != given
        {
            bail!("--service-account is in namespace {own}, and --namespace is {given}: leave one of them out");
        }
        let name = written.map_or(HUB, |written| &written.name).to_owned();
        Ok(Account { name, namespace: own.or(namespace).unwrap_or(HUB).to_owned() })
    }
}

/// Parses a service account.
pub(super) fn account(text: &str) -> Result<Written, String> {
    let (namespace, text) = match text.split_once('/') {
        Some((namespace, text)) => (Some(name(namespace)?), text),
        None => (None, text),
    };
    Ok(Written { namespace, name: name(text)? })
}

/// Parses a name of an object.
pub(super) fn name(text: &str) -> Result<String, String> {
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    let ends = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if text.len() <= 253 && text.chars().all(legal) && text.starts_with(ends) && text.ends_with(ends) {
        return Ok(text.to_owned());
    }
    Err("is no name of Kubernetes: a-z 0-9 - . with a letter or digit at both ends".to_owned())
}

/// Parses a user or a group. Kubernetes takes any text for a name; one that could end a line of YAML, or that no person
/// could read, is refused.
pub(super) fn user(text: &str) -> Result<String, String> {
    let is_legal = |c: char| !c.is_control() && !matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}');
    if text.is_empty() || text.len() > MOST || !text.chars().all(is_legal) {
        return Err(format!("is no user or group: write 1 to {MOST} bytes without control characters"));
    }
    Ok(text.to_owned())
}

/// The name of roles and bindings where none is given.
pub(super) fn role(account: Option<&Account>) -> String {
    match account.map(|account| account.name.as_str()) {
        None => HUB_USERS.to_owned(),
        Some(name) if BUILT_IN_ROLES.contains(&name) => HUB.to_owned(),
        Some(name) => name.to_owned(),
    }
}

/// `kubectl` for a cluster that is reached in this way.
pub(in crate::cli) fn kubectl(access: &ClusterAccess) -> String {
    let ClusterAccess::Kubeconfig { path, context } = access else { return "kubectl".to_owned() };
    let mut command = "kubectl".to_owned();
    // kubectl finds the others itself.
    if !source::default_kubeconfigs().contains(path) {
        command = format!("{command} --kubeconfig {}", shell(&path.display().to_string()));
    }
    match context {
        Some(context) => command + &option("context", context),
        None => command,
    }
}

/// An option with a value, a blank before it. A value that begins with a dash is not taken for an option.
fn option(name: &str, value: &str) -> String {
    let between = if value.starts_with('-') { '=' } else { ' ' };
    format!(" --{name}{between}{}", shell(value))
}

/// What is needed to say how the credentials in use get their rights.
#[derive(Clone, Copy, Debug)]
pub(in crate::cli) struct Advice<'a> {
    /// The configuration file.
    pub(in crate::cli) config: &'a Path,
    pub(in crate::cli) of: Of<'a>,
    /// How the cluster is reached.
    pub(in crate::cli) access: &'a ClusterAccess,
    /// Unset: the cluster does not say.
    pub(in crate::cli) identity: Option<&'a Identity>,
}

/// The cluster in which rights are missing.
#[derive(Clone, Copy, Debug)]
pub(in crate::cli) enum Of<'a> {
    /// One of a table, and what is watched there.
    Cluster(&'a str, &'a [&'a ResourceConfig]),
    /// One that a source brings.
    Sourced,
    /// The management cluster of a source.
    Source(&'a str),
}

impl Advice<'_> {
    /// How to give the rights that are missing, in a sentence.
    pub(in crate::cli) fn text(&self) -> String {
        let subject = match self.identity {
            Some(identity) if identity.is_anonymous() => {
                return "the cluster was shown no credentials that it knows: name a token, a client certificate or a \
                        command for it"
                    .to_owned();
            }
            Some(identity) => match self::subject(identity) {
                Some(subject) => subject,
                None => {
                    return "give its user the rights that informer-hub rbac prints; its name cannot be \
                                written in a command"
                        .to_owned();
                }
            },
            // Without a word of the cluster: a kubeconfig has a user, a token that was made for the hub its account.
            None if matches!(self.access, ClusterAccess::Kubeconfig { .. }) => " --user NAME".to_owned(),
            None => String::new(),
        };
        let file = shell(&self.config.display().to_string());
        let rbac = format!("informer-hub rbac -c {file}");
        let kubectl = kubectl(self.access);
        let unknown = if subject == " --user NAME" {
            format!("; NAME is what `{kubectl} auth whoami` says")
        } else {
            String::new()
        };
        match self.of {
            Of::Sourced => {
                format!("give it the rights that `{rbac}{subject}` prints for clusters that sources bring{unknown}")
            }
            Of::Source(source) => {
                let source = option("source", source);
                format!(
                    "as an administrator of that cluster: `{rbac}{source}{subject} | {kubectl} apply -f -`{unknown}"
                )
            }
            Of::Cluster(cluster, resources) => {
                let discover = if resources.iter().any(|it| needs_discovery(it)) { " --discover" } else { "" };
                let cluster = option("cluster", cluster);
                format!(
                    "as an administrator of the cluster: `{rbac}{cluster}{subject}{discover} | {kubectl} apply -f -`{unknown}"
                )
            }
        }
    }
}

/// The options of `rbac` for somebody; `None` where no command can have the name.
fn subject(identity: &Identity) -> Option<String> {
    let account = identity
        .service_account()
        .and_then(|(namespace, account)| Some(Account { name: name(account).ok()?, namespace: name(namespace).ok()? }));
    match account {
        Some(Account { name, namespace }) if (name.as_str(), namespace.as_str()) == (HUB, HUB) => Some(String::new()),
        Some(Account { name, namespace }) => Some(option("service-account", &format!("{namespace}/{name}"))),
        // A command in which a name is shown otherwise than it is would bind somebody else.
        None if printable(&identity.username) != identity.username => None,
        None => Some(option("user", &user(&identity.username).ok()?)),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn identity(username: &str) -> Identity {
        Identity { username: username.to_owned(), groups: Vec::new() }
    }

    fn advice(access: &ClusterAccess, username: Option<&str>) -> String {
        let identity = username.map(identity);
        let of = Of::Cluster("prod-eu", &[]);
        Advice { config: Path::new("hub.toml"), of, access, identity: identity.as_ref() }.text()
    }

    fn kubeconfig(path: &str, context: &str) -> ClusterAccess {
        ClusterAccess::Kubeconfig { path: path.into(), context: Some(context.to_owned()) }
    }

    #[test]
    fn advice_names_the_user_the_account_or_what_tells_of_it() {
        let access = kubeconfig("/k/config", "eu");
        assert_eq!(
            advice(&access, Some("jane@example.com")),
            "as an administrator of the cluster: `informer-hub rbac -c hub.toml --cluster prod-eu --user \
             jane@example.com | kubectl --kubeconfig /k/config --context eu apply -f -`"
        );
        assert!(advice(&access, None).ends_with(
            "--user NAME | kubectl --kubeconfig /k/config --context eu apply -f -`; NAME is what `kubectl --kubeconfig \
             /k/config --context eu auth whoami` says"
        ));
        let account = |name: &str| advice(&ClusterAccess::InCluster, Some(&format!("system:serviceaccount:{name}")));
        assert!(account("informer-hub:informer-hub").contains("--cluster prod-eu | kubectl apply"));
        assert!(account("tools:hub").contains(" --service-account tools/hub | kubectl apply"));
        assert!(account("tools").contains(" --user system:serviceaccount:tools | "), "it is no account");
        let nobody = advice(&access, Some("system:anonymous"));
        assert!(nobody.contains("no credentials") && !nobody.contains("rbac"), "{nobody}");
        for name in ["a\nb", "", "a\u{2028}b", "\u{1b}[31m", &"x".repeat(2000)] {
            let text = advice(&access, Some(name));
            assert!(!text.contains("--user") && !text.contains('\n'), "{text}");
        }
    }

    #[test]
    fn a_shell_and_the_program_read_back_every_name_that_advice_has() {
        use clap::Parser;

        #[derive(Parser)]
        struct Whole {
            #[command(flatten)]
            args: super::super::Args,
        }
        let hostile = [
            "jane@example.com",
            "o'brien",
            "$(touch /tmp/x)",
            "`id`",
            "a b",
            "-u",
            "--user",
            "a;b|c&d",
            "\"x\"",
            "*",
            "~",
            "oidc:ä",
            "!!",
            "\\",
            "a'b'c",
            "#",
            "https://idp.example.com/#jane",
            "''",
        ];
        for name in hostile {
            let access = kubeconfig("/k/con fig", name);
            let text = advice(&access, Some(name));
            let command = text.split_once('`').unwrap().1.strip_suffix('`').unwrap();
            let (rbac, kubectl) = command.split_once(" | kubectl ").unwrap_or_else(|| panic!("{command}"));
            let words = |command: &str| {
                let script = format!("printf '%s\\n' {command}");
                let done = Command::new("sh").args(["-c", &script]).output().unwrap();
                let text = String::from_utf8(done.stdout).unwrap();
                text.lines().map(str::to_owned).collect::<Vec<_>>()
            };
            let read = Whole::try_parse_from(words(rbac).into_iter().skip(1));
            assert_eq!(read.unwrap_or_else(|error| panic!("{rbac}: {error}")).args.users, [name]);
            let context =
                words(kubectl).into_iter().skip_while(|word| !word.starts_with("--context")).collect::<Vec<_>>();
            let given = context[0].strip_prefix("--context=").unwrap_or_else(|| &context[1]);
            assert_eq!(given, name);
        }
    }

    #[test]
    fn an_account_is_a_name_or_a_namespace_and_a_name() {
        let parsed = |text: &str, namespace: Option<&str>| {
            let account = Written::account(Some(&account(text).unwrap()), namespace);
            account.map(|account| format!("{}/{}", account.namespace, account.name)).map_err(|error| error.to_string())
        };
        assert_eq!(parsed("hub", None).as_deref(), Ok("informer-hub/hub"));
        assert_eq!(parsed("hub", Some("tools")).as_deref(), Ok("tools/hub"));
        assert_eq!(parsed("tools/hub", Some("tools")).as_deref(), Ok("tools/hub"));
        assert!(parsed("tools/hub", Some("other")).is_err_and(|error| error.contains("namespace tools")));
        for wrong in ["a/b/c", "/a", "a/", "A", "a b"] {
            assert!(account(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_role_is_never_called_as_one_of_kubernetes() {
        let of = |name: &str| role(Some(&Account { name: name.to_owned(), namespace: "a".to_owned() }));
        assert_eq!([of("hub"), of("view"), of("admin")], ["hub", "informer-hub", "informer-hub"]);
        assert_eq!(role(None), "informer-hub-users");
    }
}
