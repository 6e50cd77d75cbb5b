//! Credential plugins: the `exec` section of a kubeconfig's user, for a process without a terminal.
//!
//! kube's own support passes the whole environment, standard input and standard error to a plugin, and waits without a
//! bound. So the hub removes `exec` from a configuration before kube reads it. [`plugin`] builds the command and reads
//! its answer, [`process`] runs the command, [`environment`] selects the command's environment variables, and [`token`]
//! renews the token before it expires.

mod environment;
mod plugin;
mod process;
mod stderr_log;
mod token;

pub(crate) use plugin::{ExecError, Plugin};
pub use process::end_all as end_plugins;
pub(crate) use token::{ExecToken, NoCredentials};
