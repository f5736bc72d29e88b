//! Reads the kernel's accounts.

use std::fs;

/// KiB of a line such as `Rss:  123 kB` in a file of /proc.
fn kib(file: &str, name: &str) -> f64 {
    let text = fs::read_to_string(file).unwrap();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Resident KiB of a process.
pub(crate) fn resident(process: &str) -> f64 {
    kib(&format!("/proc/{process}/smaps_rollup"), "Rss:")
}

/// KiB of page tables of this process.
pub(crate) fn page_tables() -> f64 {
    kib("/proc/self/status", "VmPTE:")
}

/// Open descriptors of this process.
pub(crate) fn descriptors() -> f64 {
    fs::read_dir("/proc/self/fd").unwrap().count() as f64
}

/// Resident KiB in mappings of the size of a thread's stack.
pub(crate) fn stacks() -> f64 {
    let text = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut sum = 0.0;
    let mut is_stack = false;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            (Some("Size:"), Some(size)) => is_stack = size == "2048" || size == "2052",
            (Some("Rss:"), Some(resident)) if is_stack => sum += resident.parse::<f64>().unwrap(),
            _ => {}
        }
    }
    sum
}

/// What the kernel holds for all processes.
pub(crate) struct Kernel {
    pub(crate) stacks: f64,
    pub(crate) slab: f64,
}

impl Kernel {
    pub(crate) fn now() -> Self {
        Self {
            stacks: kib("/proc/meminfo", "KernelStack:"),
            slab: kib("/proc/meminfo", "Slab:"),
        }
    }

    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            stacks: self.stacks - before.stacks,
            slab: self.slab - before.slab,
        }
    }
}
