//! The z-pages of kube components, `/statusz` and `/flagz`: what runs here, since when, and with
//! which flags. Text for people.

use std::fmt::Debug;
use std::time::{Duration, Instant, SystemTime};

use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::tz::Offset;
use kubecache::Error;
use kubecache::clock::Clock;
use kubecache::endpoints::{Endpoints, WebPage};

use crate::args::Options;

/// Programs should read /metrics and the probes instead.
const WARNING: &str = "Warning: for people who look for a fault; the text changes at any time.";

/// What both pages tell.
#[derive(Clone, Debug)]
pub(crate) struct ZPages {
    started: Instant,
    started_at: Timestamp,
    flags: Vec<(&'static str, String)>,
}

impl ZPages {
    /// The pages of a run that starts now.
    pub(crate) fn new(options: &Options) -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let seconds = i64::try_from(since.unwrap_or_default().as_secs());
        let since = Timestamp::from_second(seconds.unwrap_or_default());
        Self {
            started: Clock::system().now(),
            started_at: since.unwrap_or_default(),
            flags: flags(options),
        }
    }

    /// Adds both pages.
    pub(crate) fn add_to(&self, endpoints: &Endpoints) -> Result<(), Error> {
        let pages = self.clone();
        endpoints.add_page("/statusz", move || {
            let now = Clock::system().now();
            page(
                "statusz",
                &pages.status(now.saturating_duration_since(pages.started)),
            )
        })?;
        let flags = self.flags.iter();
        let flags: Vec<_> = flags
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        endpoints.add_page("/flagz", move || page("flagz", &flags))
    }

    fn status(&self, up: Duration) -> Vec<String> {
        let seconds = up.as_secs();
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        vec![
            format!("Started: {}", date(self.started_at)),
            format!("Up: {hours} hr {minutes:02} min {:02} sec", seconds % 60),
            concat!("Version: ", env!("CARGO_PKG_VERSION")).to_owned(),
            "Paths: /flagz /healthz /livez /readyz /statusz".to_owned(),
        ]
    }
}

/// As date(1) writes it. The library's own format of the kind takes ten kilobytes of the program.
fn date(at: Timestamp) -> String {
    let at = Offset::UTC.to_datetime(at);
    let months = "JanFebMarAprMayJunJulAugSepOctNovDec";
    let month = usize::from(at.month().unsigned_abs()).saturating_mul(3);
    let month = months
        .get(month.saturating_sub(3)..month)
        .unwrap_or_default();
    let day = format!("{:?}", at.weekday());
    let day = day.get(..3).unwrap_or_default();
    let (hour, minute, second) = (at.hour(), at.minute(), at.second());
    let (of_month, year) = (at.day(), at.year());
    format!("{day} {month} {of_month:2} {hour:02}:{minute:02}:{second:02} UTC {year}")
}

fn page(name: &str, lines: &[String]) -> WebPage {
    let lines = lines.join("\n");
    WebPage::text(format!("\nnode_agent {name}\n{WARNING}\n\n{lines}\n"))
}

/// The flags by name with the values that apply. Whoever reaches the port can read them: those of
/// the connection, which may hold a token, and the names of objects are left out.
fn flags(options: &Options) -> Vec<(&'static str, String)> {
    let files = &options.files;
    let mut flags = vec![
        (
            "change-detection",
            format!("{:?}", options.change_detection),
        ),
        ("demo", options.demo.to_string()),
        (
            "exec-on-change",
            files
                .tells
                .hook
                .command
                .first()
                .cloned()
                .unwrap_or_default(),
        ),
        ("exec-timeout", told(files.tells.hook.limit)),
        (
            "health-probe-bind-address",
            set(options.health_probe_bind_address.as_ref()),
        ),
        ("idle-limit", told(options.idle_limit)),
        (
            "metrics-bind-address",
            set(options.metrics_bind_address.as_ref()),
        ),
        ("namespace", set(options.namespace.as_ref())),
        ("node-name", set(options.node_name.as_ref())),
        ("once", options.once.to_string()),
        ("output", format!("{:?}", options.output).to_lowercase()),
        (
            "output-dir",
            set(files.directory.as_ref().map(|path| path.display()).as_ref()),
        ),
        (
            "references",
            format!("{} objects", options.wanted.references.len()),
        ),
        ("selector", options.selector.clone()),
        (
            "signal-on-change",
            set(files
                .tells
                .signal
                .as_ref()
                .map(|path| path.display())
                .as_ref()),
        ),
        (
            "snapshot",
            set(options
                .snapshot
                .as_ref()
                .map(|files| files.snapshot.display())
                .as_ref()),
        ),
        ("sync-frequency", told(Some(options.sync_frequency()))),
        ("timeout", told(options.timeout)),
        ("v", options.verbosity.to_string()),
        ("watch-scope", format!("{:?}", options.watch_scope)),
        ("watches-max", told(options.watches_max)),
    ];
    flags.sort_unstable();
    flags
}

fn set(value: Option<&impl ToString>) -> String {
    value.map(ToString::to_string).unwrap_or_default()
}

/// Empty: what the library does without the flag.
fn told(value: Option<impl Debug>) -> String {
    value.map(|value| format!("{value:?}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_as_other_programs_write_it() {
        for (seconds, told) in [
            (0, "Thu Jan  1 00:00:00 UTC 1970"),
            (951_868_799, "Tue Feb 29 23:59:59 UTC 2000"),
            (1_796_040_305, "Mon Nov 30 12:05:05 UTC 2026"),
        ] {
            assert_eq!(date(Timestamp::from_second(seconds).unwrap()), told);
        }
    }

    #[test]
    fn the_time_since_the_start_is_told_in_hours_minutes_and_seconds() {
        let pages = ZPages::new(&Options::default());
        let status = pages.status(Duration::from_secs(2 * 86_400 + 3 * 3600 + 4 * 60 + 5));
        assert_eq!(status[1], "Up: 51 hr 04 min 05 sec");
        assert!(
            status[0].ends_with(|c: char| c.is_ascii_digit()),
            "{status:?}"
        );
    }
}
