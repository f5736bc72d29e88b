//! The process as the system counts it, for `/metrics`. Nothing where there is no `/proc`.

use std::fs;

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

/// Lines of Prometheus' text format.
#[derive(Default)]
pub(crate) struct SeriesText(pub(crate) String);

impl SeriesText {
    /// Adds a series whose values have these labels.
    pub(crate) fn add(&mut self, name: &str, kind: &str, help: &str, values: &[(&str, f64)]) {
        let head = format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
        self.0.push_str(&head);
        for (labels, value) in values {
            self.0.extend([format!("{name}{labels} {value}\n")]);
        }
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: f64) {
        self.add(name, kind, help, &[("", value)]);
    }
}

/// Adds the series that Prometheus' own clients have.
pub(crate) fn add_to(series: &mut SeriesText) {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // What stands in parentheses is the program's name, which may have anything.
    let (_, fields) = stat.rsplit_once(") ").unwrap_or_default();
    let fields: Vec<u64> = fields
        .split(' ')
        .map(|field| field.trim().parse().unwrap_or_default())
        .collect();
    let field = |number: usize| fields.get(number).copied();
    let (Some(user), Some(system)) = (field(11), field(12)) else {
        return;
    };
    let seconds = |ticks: u64| number(ticks) / number(clock_ticks_per_second());
    series.one(
        "process_cpu_seconds_total",
        "counter",
        "Total user and system CPU time spent in seconds.",
        seconds(user.saturating_add(system)),
    );
    let boot = fs::read_to_string("/proc/stat").unwrap_or_default();
    let boot = boot.lines().find_map(|line| line.strip_prefix("btime "));
    let boot = boot.and_then(|boot| boot.trim().parse().ok());
    if let (Some(boot), Some(started)) = (boot, field(19)) {
        let help = "Start time of the process since unix epoch in seconds.";
        let started = number(boot) + seconds(started);
        series.one("process_start_time_seconds", "gauge", help, started);
    }
    if let (Some(pages), Ok(size)) = (field(21), u64::try_from(page_size())) {
        let help = "Resident memory size in bytes.";
        let bytes = number(pages.saturating_mul(size));
        series.one("process_resident_memory_bytes", "gauge", help, bytes);
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        // One of them is the directory's own.
        let open = u64::try_from(open.count().saturating_sub(1)).unwrap_or_default();
        let help = "Number of open file descriptors.";
        series.one("process_open_fds", "gauge", help, number(open));
    }
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let help = "Maximum number of open file descriptors.";
    series.one("process_max_fds", "gauge", help, number(most));
}

#[expect(
    clippy::cast_precision_loss,
    clippy::as_conversions,
    reason = "a number of events or bytes of a process"
)]
pub(crate) fn number(count: u64) -> f64 {
    count as f64
}
