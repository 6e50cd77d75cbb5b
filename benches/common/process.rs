//! CPU and memory of processes, and helper processes.

use std::collections::BTreeMap;
use std::fmt;
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
        Self::spawn(pinned(cores), args, variables)
    }

    /// Starts a helper at idle priority: it runs only if no other process wants the CPU. It stands for other machines.
    ///
    /// With the kernel's autogroups, which are usual on desktops, this holds only within the session.
    pub fn start_idle(args: &[&str], variables: &[(&str, String)]) -> Self {
        let mut command = Command::new("chrt");
        command.args(["--idle", "0"]).arg(std::env::current_exe().unwrap());
        Self::spawn(command, args, variables)
    }

    fn spawn(mut command: Command, args: &[&str], variables: &[(&str, String)]) -> Self {
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

/// CPU time of a process's threads and their waits for a CPU, by name.
#[derive(Default)]
pub struct CpuWaits(BTreeMap<String, CpuWait>);

#[derive(Clone, Copy, Default)]
struct CpuWait {
    ran: Duration,
    waited: Duration,
    turns: u64,
}

impl CpuWaits {
    /// Reads the CPU times and waits of a process's threads since its start. Threads that have ended are not included.
    pub fn of(process: u32) -> Self {
        let mut waits = Self::default();
        for task in std::fs::read_dir(format!("/proc/{process}/task")).unwrap() {
            let task = task.unwrap().path();
            // A thread may have ended.
            let read = |name: &str| std::fs::read_to_string(task.join(name)).ok();
            let (Some(name), Some(schedule)) = (read("comm"), read("schedstat")) else { continue };
            let numbers: Vec<u64> = schedule.split_whitespace().map(|number| number.parse().unwrap()).collect();
            let wait = waits.0.entry(name.trim().to_owned()).or_default();
            wait.ran += Duration::from_nanos(numbers[0]);
            wait.waited += Duration::from_nanos(numbers[1]);
            wait.turns += numbers[2];
        }
        waits
    }

    /// Returns the growth since an earlier reading.
    pub fn since(&self, before: &Self) -> Self {
        let grown = |(name, now): (&String, &CpuWait)| {
            let before = before.0.get(name).copied().unwrap_or_default();
            let wait = CpuWait {
                ran: now.ran.saturating_sub(before.ran),
                waited: now.waited.saturating_sub(before.waited),
                turns: now.turns.saturating_sub(before.turns),
            };
            (name.clone(), wait)
        };
        Self(self.0.iter().map(grown).collect())
    }

    /// Returns the CPU time of all threads.
    pub fn ran(&self) -> Duration {
        self.0.values().map(|wait| wait.ran).sum()
    }

    /// Returns how long all threads whose name is not in `names` waited for a CPU.
    pub fn waited_except(&self, names: &[&str]) -> Duration {
        self.0.iter().filter(|(other, _)| !names.contains(&other.as_str())).map(|(_, wait)| wait.waited).sum()
    }
}

impl fmt::Display for CpuWaits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, CpuWait { ran, waited, turns }) in &self.0 {
            if *turns > 0 {
                write!(f, "  {name}: ran {ran:.0?}, waited {waited:.1?} in {turns} turns;")?;
            }
        }
        Ok(())
    }
}
