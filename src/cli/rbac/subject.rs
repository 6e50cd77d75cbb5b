//! Subjects of bindings: parsing them from options, and the command that grants rights to the credentials in use.

use std::path::Path;

use super::builtin::needs_discovery;
use super::grants::Account;
use crate::cli::Misuse;
use crate::cli::quote::shell;
use informer_hub_config::{ClusterAccess, ResourceConfig};
use informer_hub_source::{self as source, Identity};
use informer_hub_types::printable;

/// Default name of the service account, its namespace and its roles.
const HUB: &str = "informer-hub";

/// Default name of roles and bindings for users and groups. Differs from the name of the service account's bindings:
/// applying a binding of the same name would take the rights from the service account.
const HUB_USERS: &str = "informer-hub-users";

/// Names of cluster roles of Kubernetes. A role of the same name would replace one of them.
const BUILT_IN_ROLES: [&str; 4] = ["admin", "cluster-admin", "edit", "view"];

/// Maximum length of a user or group in bytes.
const MAX_LENGTH: usize = 1024;

/// Service account given as `NAME` or `NAMESPACE/NAME`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct AccountArg {
    namespace: Option<String>,
    name: String,
}

impl AccountArg {
    /// Combines the options `--service-account` and `--namespace`.
    ///
    /// # Errors
    /// If the options contradict each other.
    pub(super) fn account(argument: Option<&Self>, namespace: Option<&str>) -> anyhow::Result<Account> {
        let own = argument.and_then(|argument| argument.namespace.as_deref());
        if let (Some(own), Some(given)) = (own, namespace)
            && own != given
        {
            return Err(Misuse::error(format!(
                "--service-account is in namespace {own}, and --namespace is {given}: leave one of them out"
            )));
        }
        let name = argument.map_or(HUB, |argument| &argument.name).to_owned();
        Ok(Account { name, namespace: own.or(namespace).unwrap_or(HUB).to_owned() })
    }
}

pub(super) fn account(text: &str) -> Result<AccountArg, String> {
    let (namespace, text) = match text.split_once('/') {
        Some((namespace, text)) => (Some(name(namespace)?), text),
        None => (None, text),
    };
    Ok(AccountArg { namespace, name: name(text)? })
}

pub(super) fn name(text: &str) -> Result<String, String> {
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    let ends = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if text.len() <= 253 && text.chars().all(legal) && text.starts_with(ends) && text.ends_with(ends) {
        return Ok(text.to_owned());
    }
    Err("is not a Kubernetes name: a-z 0-9 - . with a letter or digit at both ends".to_owned())
}

/// Parses a user or a group. Kubernetes accepts any text; control characters and line separators are refused here.
pub(super) fn user(text: &str) -> Result<String, String> {
    let is_legal = |c: char| !c.is_control() && !matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}');
    if text.is_empty() || text.len() > MAX_LENGTH || !text.chars().all(is_legal) {
        return Err(format!("is not a user or group: write 1 to {MAX_LENGTH} bytes without control characters"));
    }
    Ok(text.to_owned())
}

/// Returns the default name of roles and bindings.
pub(super) fn role(account: Option<&Account>) -> String {
    match account.map(|account| account.name.as_str()) {
        None => HUB_USERS.to_owned(),
        Some(name) if BUILT_IN_ROLES.contains(&name) => HUB.to_owned(),
        Some(name) => name.to_owned(),
    }
}

/// Returns the `kubectl` command for a cluster, with the options for its kubeconfig and context.
pub(in crate::cli) fn kubectl(access: &ClusterAccess) -> String {
    let ClusterAccess::Kubeconfig { path, context, .. } = access else { return "kubectl".to_owned() };
    let mut command = "kubectl".to_owned();
    // kubectl reads the default kubeconfigs without an option.
    if !source::default_kubeconfigs().contains(path) {
        command = format!("{command} --kubeconfig {}", shell(&path.display().to_string()));
    }
    match context {
        Some(context) => command + &option("context", context),
        None => command,
    }
}

/// Formats an option with a value and a leading blank. Uses `=` for a value that begins with a dash.
fn option(name: &str, value: &str) -> String {
    let between = if value.starts_with('-') { '=' } else { ' ' };
    format!(" --{name}{between}{}", shell(value))
}

/// Input for the advice on missing rights.
#[derive(Clone, Copy, Debug)]
pub(in crate::cli) struct Advice<'a> {
    /// Path of the configuration file.
    pub(in crate::cli) config: &'a Path,
    pub(in crate::cli) target: RightsTarget<'a>,
    /// Address and credentials of the cluster.
    pub(in crate::cli) access: &'a ClusterAccess,
    /// User and groups of the hub in the cluster; `None` if they are unknown.
    pub(in crate::cli) identity: Option<&'a Identity>,
}

/// Cluster in which rights are missing.
#[derive(Clone, Copy, Debug)]
pub(in crate::cli) enum RightsTarget<'a> {
    /// A cluster of a `[clusters]` table, and the resources watched there.
    Cluster(&'a str, &'a [&'a ResourceConfig]),
    /// A cluster found by a cluster source.
    Sourced,
    /// The management cluster of the cluster source with this name.
    Source(&'a str),
}

impl Advice<'_> {
    /// Returns how to grant the missing rights, in one sentence.
    pub(in crate::cli) fn text(&self) -> String {
        let subject = match self.identity {
            Some(identity) if identity.is_anonymous() => {
                return "the cluster knows none of the credentials: configure a token, a client certificate or a \
                        credential command"
                    .to_owned();
            }
            Some(identity) => match self::subject(identity) {
                Some(subject) => subject,
                None => {
                    return "grant the rights that informer-hub rbac prints to the user of the hub; its name \
                                        cannot be part of a command"
                        .to_owned();
                }
            },
            // Unknown identity: kubeconfigs usually belong to a user, other credentials to the hub's service account.
            None if matches!(self.access, ClusterAccess::Kubeconfig { .. }) => " --user NAME".to_owned(),
            None => String::new(),
        };
        let file = shell(&self.config.display().to_string());
        let rbac = format!("informer-hub rbac -c {file}");
        let unknown = if subject == " --user NAME" {
            format!("; NAME is the user that `{} auth whoami` prints", kubectl(self.access))
        } else {
            String::new()
        };
        // The credentials of the hub cannot grant rights that they lack.
        let (kubectl, admin) = match self.access {
            ClusterAccess::Kubeconfig { .. } => {
                ("kubectl --kubeconfig ADMIN", "; ADMIN is a kubeconfig of such an administrator, not the hub's")
            }
            _ => ("kubectl", ""),
        };
        match self.target {
            RightsTarget::Sourced => {
                format!("grant the rights that `{rbac}{subject}` prints for clusters of sources{unknown}")
            }
            RightsTarget::Source(source) => {
                let source = option("source", source);
                format!(
                    "as an administrator of that cluster: `{rbac}{source}{subject} | {kubectl} apply -f -`{admin}{unknown}"
                )
            }
            RightsTarget::Cluster(cluster, resources) => {
                let discover = if resources.iter().any(|it| needs_discovery(it)) { " --discover" } else { "" };
                let cluster = option("cluster", cluster);
                format!(
                    "as an administrator of the cluster: `{rbac}{cluster}{subject}{discover} | {kubectl} apply -f \
                     -`{admin}{unknown}"
                )
            }
        }
    }
}

/// Returns the options of `rbac` for an identity; `None` if its name cannot be part of a command.
fn subject(identity: &Identity) -> Option<String> {
    let account = identity
        .service_account()
        .and_then(|(namespace, account)| Some(Account { name: name(account).ok()?, namespace: name(namespace).ok()? }));
    match account {
        Some(Account { name, namespace }) if (name.as_str(), namespace.as_str()) == (HUB, HUB) => Some(String::new()),
        Some(Account { name, namespace }) => Some(option("service-account", &format!("{namespace}/{name}"))),
        // A command that shows the name in escaped form would grant the rights to another user.
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
        let target = RightsTarget::Cluster("prod-eu", &[]);
        Advice { config: Path::new("hub.toml"), target, access, identity: identity.as_ref() }.text()
    }

    fn kubeconfig(path: &str, context: &str) -> ClusterAccess {
        ClusterAccess::kubeconfig(path, Some(context.to_owned()))
    }

    #[test]
    fn advice_names_the_user_or_account_or_how_to_find_it() {
        let access = kubeconfig("/k/config", "eu");
        assert_eq!(
            advice(&access, Some("jane@example.com")),
            "as an administrator of the cluster: `informer-hub rbac -c hub.toml --cluster prod-eu --user \
             jane@example.com | kubectl --kubeconfig ADMIN apply -f -`; ADMIN is a kubeconfig of such an administrator, \
             not the hub's"
        );
        let unknown = advice(&access, None);
        assert!(unknown.contains("--user NAME | kubectl --kubeconfig ADMIN apply -f -`; ADMIN is"), "{unknown}");
        let whoami = "; NAME is the user that `kubectl --kubeconfig /k/config --context eu auth whoami` prints";
        assert!(unknown.ends_with(whoami), "{unknown}");
        let account = |name: &str| advice(&ClusterAccess::InCluster, Some(&format!("system:serviceaccount:{name}")));
        assert!(account("informer-hub:informer-hub").contains("--cluster prod-eu | kubectl apply"));
        assert!(account("tools:hub").contains(" --service-account tools/hub | kubectl apply"));
        assert!(account("tools").contains(" --user system:serviceaccount:tools | "), "it is not an account");
        let anonymous = advice(&access, Some("system:anonymous"));
        assert!(anonymous.contains("none of the credentials") && !anonymous.contains("rbac"), "{anonymous}");
        for name in ["a\nb", "", "a\u{2028}b", "\u{1b}[31m", &"x".repeat(2000)] {
            let text = advice(&access, Some(name));
            assert!(!text.contains("--user") && !text.contains('\n'), "{text}");
        }
    }

    #[test]
    fn every_name_in_advice_survives_the_shell_and_the_option_parser() {
        use clap::Parser;

        #[derive(Parser)]
        struct Whole {
            #[command(flatten)]
            args: super::super::Args,
        }
        let hostile = [
            "jane@example.com",
            "o'brien",
            "$(touch x)",
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
            let (rbac, _) = text.split_once('`').unwrap().1.split_once(" | kubectl ").unwrap();
            let unknown = advice(&access, None);
            let (whoami, _) =
                unknown.split_once("; NAME is the user that `kubectl ").unwrap().1.rsplit_once('`').unwrap();
            let words = |command: &str| {
                let script = format!("printf '%s\\n' {command}");
                let done = Command::new("sh").args(["-c", &script]).output().unwrap();
                let text = String::from_utf8(done.stdout).unwrap();
                text.lines().map(str::to_owned).collect::<Vec<_>>()
            };
            let read = Whole::try_parse_from(words(rbac).into_iter().skip(1));
            assert_eq!(read.unwrap_or_else(|error| panic!("{rbac}: {error}")).args.users, [name]);
            let context =
                words(whoami).into_iter().skip_while(|word| !word.starts_with("--context")).collect::<Vec<_>>();
            let given = context[0].strip_prefix("--context=").unwrap_or_else(|| &context[1]);
            assert_eq!(given, name);
        }
    }

    #[test]
    fn an_account_is_parsed_with_and_without_a_namespace() {
        let parsed = |text: &str, namespace: Option<&str>| {
            let account = AccountArg::account(Some(&account(text).unwrap()), namespace);
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
    fn a_role_never_has_the_name_of_a_built_in_role() {
        let of = |name: &str| role(Some(&Account { name: name.to_owned(), namespace: "a".to_owned() }));
        assert_eq!([of("hub"), of("view"), of("admin")], ["hub", "informer-hub", "informer-hub"]);
        assert_eq!(role(None), "informer-hub-users");
    }
}
