//! Figures of the process and the machine: memory, descriptors, temperature, disks.

use std::path::{Path, PathBuf};

use serde::Serialize;

/// Room on the disk of one folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Disk {
    pub folder: PathBuf,
    pub free: u64,
    /// What has to stay free.
    pub keep: u64,
}

/// The process and its machine; what the kernel does not say is absent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Machine {
    pub pid: u32,
    pub rss_kib: Option<u64>,
    pub fds: Option<usize>,
    pub threads: Option<u64>,
    /// Name and degrees Celsius of each thermal zone.
    pub temperatures: Vec<(String, f32)>,
    pub disks: Vec<Disk>,
}

/// Most thermal zones that are told of.
const ZONES: usize = 32;

/// Looks at the machine. `disks`: folders, and what has to stay free there.
#[must_use]
pub fn machine(disks: &[(&Path, u64)]) -> Machine {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let number = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim().trim_end_matches("kB").trim().parse().ok()
    };
    let disks = disks.iter().filter_map(|(folder, keep)| {
        let stat = rustix::fs::statvfs(existing(folder)).ok()?;
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        Some(Disk { folder: (*folder).to_owned(), free, keep: *keep })
    });
    Machine {
        pid: std::process::id(),
        rss_kib: number("VmRSS:"),
        fds: std::fs::read_dir("/proc/self/fd").ok().map(Iterator::count),
        threads: number("Threads:"),
        temperatures: temperatures(),
        disks: disks.collect(),
    }
}

/// The folder, or the nearest one above it that is there.
fn existing(folder: &Path) -> &Path {
    folder.ancestors().find(|folder| folder.exists()).unwrap_or(folder)
}

fn temperatures() -> Vec<(String, f32)> {
    let Ok(zones) = std::fs::read_dir("/sys/class/thermal") else { return Vec::new() };
    let mut found: Vec<(String, f32)> = zones
        .take(4 * ZONES)
        .filter_map(|zone| {
            let zone = zone.ok()?.path();
            let name = std::fs::read_to_string(zone.join("type")).ok()?;
            let milli: f32 =
                std::fs::read_to_string(zone.join("temp")).ok()?.trim().parse().ok()?;
            Some((name.trim().chars().take(64).collect(), milli / 1000.0))
        })
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    found.truncate(ZONES);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_is_seen_and_a_folder_that_is_not_there_yet_has_its_disk() {
        let found = machine(&[(Path::new("/nowhere/at/all"), 7)]);
        assert!(found.rss_kib.unwrap() > 100 && found.fds.unwrap() > 2);
        assert_eq!(found.disks[0].keep, 7);
        assert!(found.disks[0].free > 0);
    }
}
