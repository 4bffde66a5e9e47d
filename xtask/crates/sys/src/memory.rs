//! The peak memory of a process, as the kernel counts it.

use anyhow::Context;

/// VmHWM of a process, in MiB; `self` is this one.
pub fn peak(process: &str) -> anyhow::Result<f64> {
    let file = format!("/proc/{process}/status");
    let status = std::fs::read_to_string(&file).with_context(|| format!("failed to read {file}"))?;
    let line =
        status.lines().find(|line| line.starts_with("VmHWM:")).with_context(|| format!("{file} has no VmHWM"))?;
    let kib: f64 = line.split_whitespace().nth(1).context("VmHWM has no value")?.parse()?;
    Ok(kib / 1024.0)
}

/// Resets the peak to the memory in use now, and returns it.
pub fn reset_peak() -> anyhow::Result<f64> {
    // 5 resets VmHWM, see proc(5).
    std::fs::write("/proc/self/clear_refs", "5").context("failed to reset the peak in /proc/self/clear_refs")?;
    peak("self")
}
