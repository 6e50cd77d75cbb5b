//! Name of the host, a part of the unique names of processes.

/// Returns the name of the pod or host; `informer-hub` if it is unknown.
pub(super) fn host_name() -> String {
    // The variable is set in containers. In a pod, its value is the name of the pod.
    let variable = std::env::var("HOSTNAME").ok();
    let read = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let trimmed = |name: String| Some(name.trim().to_owned()).filter(|name| !name.is_empty());
    variable.and_then(trimmed).or_else(|| read().and_then(trimmed)).unwrap_or_else(|| "informer-hub".to_owned())
}
