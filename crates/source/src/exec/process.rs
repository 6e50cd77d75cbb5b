//! One run of a command: its process group, its output within bounds, its end within a deadline.
//!
//! The command leads a process group of its own, and the whole group is killed when the run is over, however it ends:
//! the command has exited, the deadline has passed, an output has passed its bound, the caller has stopped waiting, or
//! the process ends ([`end_all`]). No child of a command survives unless it leaves the group.

use std::io;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Child;
use tokio::time::timeout;

/// Most bytes of standard output; an ExecCredential has a few kilobytes.
pub(super) const MAX_STDOUT: usize = 1 << 20;
/// Most bytes of standard error; a command that writes more is killed.
pub(super) const MAX_STDERR: u64 = 1 << 20;
/// How much of the end of standard error is kept.
pub(super) const KEPT_STDERR: usize = 4 << 10;
/// How long a command may run.
pub(super) const DEADLINE: Duration = Duration::from_secs(25);
/// How long the pipes of a command that has exited may stay open, in case a process outside of the group holds them.
const GRACE: Duration = Duration::from_secs(1);
/// Bytes that are read at once.
const PIECE: usize = 8 << 10;

/// The process groups of all commands that run now, and whether new ones may start.
static GROUPS: Mutex<Groups> = Mutex::new(Groups { closed: false, running: Vec::new() });

struct Groups {
    closed: bool,
    running: Vec<Pid>,
}

/// What a command has written and how it ended.
#[derive(Debug)]
pub(super) struct Run {
    /// `None`: it was killed.
    pub(super) status: Option<ExitStatus>,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Tail,
    /// Why it was killed, if it was.
    pub(super) killed: Option<Killed>,
}

/// Why a command was killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Killed {
    Deadline,
    Stdout,
    Stderr,
}

/// The end of what was written.
#[derive(Default, Debug)]
pub(super) struct Tail {
    pub(super) kept: Vec<u8>,
    /// Bytes in all.
    pub(super) total: u64,
}

impl Tail {
    fn push(&mut self, piece: &[u8]) {
        self.total += piece.len() as u64;
        self.kept.extend_from_slice(piece);
        let surplus = self.kept.len().saturating_sub(KEPT_STDERR);
        self.kept.drain(..surplus);
    }

    /// What is kept, without the rest of a word that begins before it: a part of a secret would not be recognised.
    pub(super) fn words(&self) -> &[u8] {
        let is_whole = self.total == self.kept.len() as u64;
        let start = self.kept.iter().position(u8::is_ascii_whitespace).filter(|_| !is_whole);
        &self.kept[start.unwrap_or_default()..]
    }
}

/// Runs a command without standard input.
///
/// # Errors
/// The command could not be started.
///
/// # Cancel safety
/// Dropping it kills the process group.
pub(super) async fn run(command: Command, deadline: Duration) -> io::Result<Run> {
    let mut command = tokio::process::Command::from(command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).kill_on_drop(true);
    let (mut child, group) = Group::start(&mut command)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let mut run = Run { status: None, stdout: Vec::new(), stderr: Tail::default(), killed: None };
    let ended = {
        let (out, err) = (&mut run.stdout, &mut run.stderr);
        let read = async { tokio::try_join!(read_stdout(stdout, out), read_stderr(stderr, err)).map(|_| ()) };
        timeout(deadline, end(&mut child, &group, read)).await
    };
    match ended {
        Ok(Ok(status)) => run.status = Some(status?),
        Ok(Err(killed)) => run.killed = Some(killed),
        Err(_) => run.killed = Some(Killed::Deadline),
    }
    drop(group);
    if run.killed.is_some() {
        // After SIGKILL this takes no time; a process that the kernel cannot end yet is left to be reaped later.
        let _ = timeout(GRACE, child.wait()).await;
    }
    Ok(run)
}

/// Waits for the command's end and for that of its output.
async fn end(
    child: &mut Child,
    group: &Group,
    read: impl Future<Output = Result<(), Killed>>,
) -> Result<io::Result<ExitStatus>, Killed> {
    let mut read = std::pin::pin!(read);
    tokio::select! {
        done = &mut read => {
            done?;
            Ok(child.wait().await)
        }
        status = child.wait() => {
            // What the command has left running would hold the pipes open.
            group.kill();
            match timeout(GRACE, read).await {
                Ok(Err(killed)) => Err(killed),
                Ok(Ok(())) | Err(_) => Ok(status),
            }
        }
    }
}

async fn read_stdout(pipe: Option<impl AsyncRead + Unpin>, out: &mut Vec<u8>) -> Result<(), Killed> {
    let Some(mut pipe) = pipe else { return Ok(()) };
    let mut piece = vec![0; PIECE];
    while let Ok(count @ 1..) = pipe.read(&mut piece).await {
        if out.len() + count > MAX_STDOUT {
            return Err(Killed::Stdout);
        }
        out.extend_from_slice(&piece[..count]);
    }
    Ok(())
}

async fn read_stderr(pipe: Option<impl AsyncRead + Unpin>, out: &mut Tail) -> Result<(), Killed> {
    let Some(mut pipe) = pipe else { return Ok(()) };
    let mut piece = vec![0; PIECE];
    while let Ok(count @ 1..) = pipe.read(&mut piece).await {
        out.push(&piece[..count]);
        if out.total > MAX_STDERR {
            return Err(Killed::Stderr);
        }
    }
    Ok(())
}

/// A process group; killed when this is dropped.
struct Group(Option<Pid>);

impl Group {
    fn start(command: &mut tokio::process::Command) -> io::Result<(Child, Self)> {
        // Under the lock, so that no group starts that `end_all` does not see.
        let mut groups = GROUPS.lock();
        if groups.closed {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "the process is ending"));
        }
        let child = command.spawn()?;
        let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        groups.running.extend(pid);
        Ok((child, Self(pid)))
    }

    fn kill(&self) {
        if let Some(pid) = self.0 {
            // The only error is that no process of the group is left.
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

/// Kills the process groups of all credential plugins that run, and lets no other start: for the end of the process.
pub fn end_all() {
    let mut groups = GROUPS.lock();
    groups.closed = true;
    for pid in groups.running.drain(..) {
        let _ = kill_process_group(pid, Signal::KILL);
    }
}
