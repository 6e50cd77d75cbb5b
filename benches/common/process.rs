//! CPU and memory of processes, and helper processes.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// A helper process: the binary of the bench started in another role, so that its memory and CPU are not counted.
///
/// It reads one command a line from stdin and answers with one line. It prints a first line on its own. Dropping it
/// kills the process.
pub struct Helper {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Helper {
    /// Starts a helper with arguments and variables, on `cores` (in the format of `taskset -c`) if they are given.
    pub fn start(args: &[&str], variables: &[(&str, String)], cores: Option<&str>) -> Self {
        let mut command = pinned(cores);
        command.args(args).envs(variables.iter().map(|(name, value)| (name, value)));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let commands = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, commands, answers }
    }

    /// Reads the next line of its output.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// Sends a command and returns the answer.
    pub fn ask(&mut self, command: &str) -> String {
        writeln!(self.commands, "{command}").unwrap();
        self.line()
    }

    /// Returns its process id.
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

/// Returns a command for the binary of the bench on some cores, or on those of this process.
pub fn pinned(cores: Option<&str>) -> Command {
    let binary = std::env::current_exe().unwrap();
    let Some(cores) = cores else { return Command::new(binary) };
    let mut command = Command::new("taskset");
    command.args(["-c", cores]).arg(binary);
    command
}

/// Returns the load averages of the machine.
pub fn load() -> String {
    std::fs::read_to_string("/proc/loadavg").map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

/// Returns the user and system time of this process.
pub fn cpu() -> Duration {
    cpu_at("/proc/self/stat")
}

/// Returns the user and system time of another process.
pub fn cpu_of(process: u32) -> Duration {
    cpu_at(&format!("/proc/{process}/stat"))
}

fn cpu_at(path: &str) -> Duration {
    let stat = std::fs::read_to_string(path).unwrap();
    let after_name = stat.rsplit_once(") ").unwrap().1;
    let fields: Vec<_> = after_name.split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    // USER_HZ is 100 on all supported platforms.
    Duration::from_millis(ticks * 10)
}

/// Returns the resident bytes.
pub fn rss() -> u64 {
    status("VmRSS:")
}

/// Returns the resident bytes of another process.
pub fn rss_of(process: u32) -> u64 {
    status_of(&process.to_string(), "VmRSS:")
}

/// Returns the peak of the resident bytes of another process since the start or [`forget_peak_of`].
pub fn peak_rss_of(process: u32) -> u64 {
    status_of(&process.to_string(), "VmHWM:")
}

/// Resets [`peak_rss_of`] to the current value.
pub fn forget_peak_of(process: u32) {
    // Without permission (some sandboxes), the peak counts from the start.
    let _ = std::fs::write(format!("/proc/{process}/clear_refs"), "5");
}

/// Returns the anonymous resident bytes: heap, stacks and written data. Pages of the program file are not included: the
/// kernel shares them between processes and can drop them.
pub fn anonymous() -> u64 {
    status("RssAnon:")
}

/// Returns the peak of the resident bytes since the start or [`forget_peak`].
pub fn peak_rss() -> u64 {
    status("VmHWM:")
}

/// Resets [`peak_rss`] to the current value.
pub fn forget_peak() {
    // Without permission (some sandboxes), the peak counts from the start.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// Reads a size from the status of this process, in bytes.
fn status(field: &str) -> u64 {
    status_of("self", field)
}

fn status_of(process: &str, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}
