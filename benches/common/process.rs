//! What the kernel says of this process, and processes that help it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// The bench's own binary, started again as something else, so that its memory and CPU are not counted. It obeys over
/// stdin: one line a command, one line an answer; the first line it says by itself. Dropping it kills it.
pub struct Helper {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Helper {
    /// Starts it with these arguments and variables, on these cores where the bench says which (as `taskset -c` does).
    pub fn start(args: &[&str], variables: &[(&str, String)], cores: Option<&str>) -> Self {
        let mut command = pinned(cores);
        command.args(args).envs(variables.iter().map(|(name, value)| (name, value)));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let commands = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, commands, answers }
    }

    /// The next line that it says.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// Its answer to a command.
    pub fn ask(&mut self, command: &str) -> String {
        writeln!(self.commands, "{command}").unwrap();
        self.line()
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The bench's own binary on some cores, or on those that this process has.
pub fn pinned(cores: Option<&str>) -> Command {
    let binary = std::env::current_exe().unwrap();
    let Some(cores) = cores else { return Command::new(binary) };
    let mut command = Command::new("taskset");
    command.args(["-c", cores]).arg(binary);
    command
}

/// How busy the machine is, as the kernel's load averages say.
pub fn load() -> String {
    std::fs::read_to_string("/proc/loadavg").map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

/// User and system time of this process.
pub fn cpu() -> Duration {
    cpu_at("/proc/self/stat")
}

/// The same of another one.
pub fn cpu_of(process: u32) -> Duration {
    cpu_at(&format!("/proc/{process}/stat"))
}

fn cpu_at(path: &str) -> Duration {
    let stat = std::fs::read_to_string(path).unwrap();
    let after_name = stat.rsplit_once(") ").unwrap().1;
    let fields: Vec<_> = after_name.split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    // USER_HZ is 100 on every Linux that this runs on.
    Duration::from_millis(ticks * 10)
}

/// Bytes resident now.
pub fn rss() -> u64 {
    status("VmRSS:")
}

/// Bytes resident now that are nobody else's: heap, stacks, and data that was written to. What is not among them are
/// pages of the program's file, which the kernel has once for all who run it and takes back when it wants to.
pub fn anonymous() -> u64 {
    status("RssAnon:")
}

/// The most bytes that were ever resident, or since [`forget_peak`].
pub fn peak_rss() -> u64 {
    status("VmHWM:")
}

/// Lets [`peak_rss`] start again from what is resident now.
pub fn forget_peak() {
    // Without the right to (some sandboxes), the peak is the one since the start.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// A size from this process's status, in bytes.
fn status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}
