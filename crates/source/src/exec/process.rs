//! Runs a command in its own process group, with bounded output and a deadline.
//!
//! The whole group is killed when the command exits, exceeds its deadline or writes too much, when the future that
//! waits for the command is dropped, or when the hub ends ([`end_all`]). A child of the command survives only if it
//! leaves the group.

use std::io;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Child;
use tokio::time::timeout;

/// Limit of standard output in bytes; an ExecCredential has a few kilobytes.
pub(super) const MAX_STDOUT: usize = 1 << 20;
/// Limit of standard error in bytes; a command that writes more is killed.
pub(super) const MAX_STDERR: u64 = 1 << 20;
/// Bytes kept from the end of standard error.
pub(super) const KEPT_STDERR: usize = 4 << 10;
/// Deadline of a command.
pub(super) const DEADLINE: Duration = Duration::from_secs(25);
/// How long to wait for output after the command has exited, since a process outside the group may hold the pipes open.
const GRACE: Duration = Duration::from_secs(1);
/// Size of the read buffer, in bytes.
const PIECE: usize = 8 << 10;

/// Process groups of all running commands, and whether new ones are still allowed.
static GROUPS: Mutex<Groups> = Mutex::new(Groups { closed: false, running: Vec::new() });

struct Groups {
    closed: bool,
    running: Vec<Pid>,
}

#[derive(Debug)]
pub(super) struct Run {
    /// Exit status; `None` if the command was killed.
    pub(super) status: Option<ExitStatus>,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Tail,
    /// Why the command was killed; `None` if it exited itself.
    pub(super) kill_reason: Option<KillReason>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum KillReason {
    Deadline,
    Stdout,
    Stderr,
}

/// The last bytes of an output stream, at most [`KEPT_STDERR`].
#[derive(Default, Debug)]
pub(super) struct Tail {
    pub(super) kept: Vec<u8>,
    /// Number of bytes written, including those dropped.
    pub(super) total: u64,
}

impl Tail {
    fn push(&mut self, piece: &[u8]) {
        self.total += piece.len() as u64;
        self.kept.extend_from_slice(piece);
        let surplus = self.kept.len().saturating_sub(KEPT_STDERR);
        self.kept.drain(..surplus);
    }

    /// Returns the kept bytes. If earlier bytes were dropped, the first word may be incomplete and is left out: a
    /// secret in it could not be recognized and redacted.
    pub(super) fn words(&self) -> &[u8] {
        let is_whole = self.total == self.kept.len() as u64;
        let start = self.kept.iter().position(u8::is_ascii_whitespace).filter(|_| !is_whole);
        &self.kept[start.unwrap_or_default()..]
    }
}

/// Runs a command in its own process group, without standard input.
///
/// # Errors
/// The command cannot be started.
///
/// # Cancel safety
/// Dropping the future kills the process group.
pub(super) async fn run(command: Command, deadline: Duration) -> io::Result<Run> {
    let mut command = tokio::process::Command::from(command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).kill_on_drop(true);
    let (mut child, group) = Group::start(&mut command)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let mut run = Run { status: None, stdout: Vec::new(), stderr: Tail::default(), kill_reason: None };
    let ended = {
        let (out, err) = (&mut run.stdout, &mut run.stderr);
        let read = async { tokio::try_join!(read_stdout(stdout, out), read_stderr(stderr, err)).map(|_| ()) };
        timeout(deadline, end(&mut child, &group, read)).await
    };
    match ended {
        Ok(Ok(status)) => run.status = Some(status?),
        Ok(Err(kill_reason)) => run.kill_reason = Some(kill_reason),
        Err(_) => run.kill_reason = Some(KillReason::Deadline),
    }
    drop(group);
    if run.kill_reason.is_some() {
        // Reap the process: after SIGKILL it runs no more, but the kernel may need some time to end it.
        let _ = timeout(GRACE, child.wait()).await;
    }
    Ok(run)
}

/// Waits until the command has exited and its output is read. Returns the exit status, or the reason to kill the
/// command.
async fn end(
    child: &mut Child,
    group: &Group,
    read: impl Future<Output = Result<(), KillReason>>,
) -> Result<io::Result<ExitStatus>, KillReason> {
    let mut read = std::pin::pin!(read);
    tokio::select! {
        done = &mut read => {
            done?;
            Ok(child.wait().await)
        }
        status = child.wait() => {
            // Kill the children of the command, which would hold the pipes open.
            group.kill();
            match timeout(GRACE, read).await {
                Ok(Err(kill_reason)) => Err(kill_reason),
                Ok(Ok(())) | Err(_) => Ok(status),
            }
        }
    }
}

async fn read_stdout(pipe: Option<impl AsyncRead + Unpin>, out: &mut Vec<u8>) -> Result<(), KillReason> {
    let Some(mut pipe) = pipe else { return Ok(()) };
    let mut piece = vec![0; PIECE];
    while let Ok(count @ 1..) = pipe.read(&mut piece).await {
        if out.len() + count > MAX_STDOUT {
            return Err(KillReason::Stdout);
        }
        out.extend_from_slice(&piece[..count]);
    }
    Ok(())
}

async fn read_stderr(pipe: Option<impl AsyncRead + Unpin>, out: &mut Tail) -> Result<(), KillReason> {
    let Some(mut pipe) = pipe else { return Ok(()) };
    let mut piece = vec![0; PIECE];
    while let Ok(count @ 1..) = pipe.read(&mut piece).await {
        out.push(&piece[..count]);
        if out.total > MAX_STDERR {
            return Err(KillReason::Stderr);
        }
    }
    Ok(())
}

/// A process group, which is killed when this value is dropped.
struct Group(Option<Pid>);

impl Group {
    fn start(command: &mut tokio::process::Command) -> io::Result<(Child, Self)> {
        // Hold the lock while starting, so that `end_all` sees every group.
        let mut groups = GROUPS.lock();
        if groups.closed {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "the process is shutting down"));
        }
        let child = command.spawn()?;
        let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        groups.running.extend(pid);
        Ok((child, Self(pid)))
    }

    fn kill(&self) {
        if let Some(pid) = self.0 {
            // Ignore the error: the group has no process left.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
        GROUPS.lock().running.retain(|pid| Some(*pid) != self.0);
    }
}

/// Kills all running credential plugins and prevents new ones. Call it before the process exits.
pub fn end_all() {
    let mut groups = GROUPS.lock();
    groups.closed = true;
    for pid in groups.running.drain(..) {
        let _ = kill_process_group(pid, Signal::KILL);
    }
}
