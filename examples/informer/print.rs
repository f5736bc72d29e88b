//! Tables on standard output, from whichever thread has something to tell.

use std::io::{self, Write as _};
use std::time::SystemTime;

use crossbeam_channel::{Receiver, Sender, bounded};
use k8s_openapi::api::core::v1::Pod;
use kubecache::informer::{Notification, Registration};
use parking_lot::Mutex;

use crate::args::Options;
use crate::duration;
use crate::pods;
use crate::table::{NONE, Table};

/// Columns of a notification.
const TOLD: usize = 9;

/// Columns of a wide table alone.
const WIDE: [&str; 3] = ["NODE", "VERSION", "AGE"];

/// No cell stands on a line below the others.
const NO_COLUMN: &str = "";

/// A line about a notification.
type Line = [String; TOLD];

/// Writes notifications as they come, and tables between them.
pub(crate) struct Printer {
    label: String,
    width: Option<usize>,
    shows_namespaces: bool,
    page: Mutex<Page>,
    failed: Sender<io::Error>,
}

/// What is on standard output.
struct Page {
    /// The table that goes on; none behind another table.
    told: Option<Table<TOLD>>,
    /// The initial list, held back until it is complete: its columns are then as wide as they have
    /// to be.
    initial: Vec<Line>,
    is_empty: bool,
}

impl Printer {
    /// A printer, and the receiver of the error by which standard output ends.
    pub(crate) fn new(options: &Options) -> (Self, Receiver<io::Error>) {
        let (failed, failure) = bounded(1);
        let page = Page {
            told: None,
            initial: Vec::new(),
            is_empty: true,
        };
        let printer = Self {
            label: options.index_label.clone(),
            width: options.width,
            shows_namespaces: options.all_namespaces,
            page: Mutex::new(page),
            failed,
        };
        (printer, failure)
    }

    /// A line about what `handler` was told.
    pub(crate) fn told(&self, handler: &str, notification: &Notification<Pod>) {
        let line = self.line(handler, notification);
        let mut page = self.page.lock();
        if let Notification::Added {
            is_in_initial_list: true,
            ..
        } = notification
        {
            page.initial.push(line);
            return;
        }
        let result = self.write_initial(&mut page);
        self.check(result.and_then(|()| self.write(&mut page, &[line])));
    }

    /// The initial list is complete.
    pub(crate) fn initial_list(&self) {
        let mut page = self.page.lock();
        self.check(self.write_initial(&mut page));
    }

    /// A table of its own, with an empty line around it.
    pub(crate) fn table<const N: usize>(&self, headers: [&str; N], lines: &[[String; N]]) {
        if lines.is_empty() {
            return;
        }
        let mut page = self.page.lock();
        page.told = None;
        let mut stdout = io::stdout().lock();
        let result = page.begin(&mut stdout);
        let result = result.and_then(|()| Table::new(headers).write(&mut stdout, lines));
        self.check(result.and_then(|()| stdout.flush()));
    }

    fn write_initial(&self, page: &mut Page) -> io::Result<()> {
        let mut lines = std::mem::take(&mut page.initial);
        lines.sort();
        self.write(page, &lines)
    }

    fn write(&self, page: &mut Page, lines: &[Line]) -> io::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        let mut stdout = io::stdout().lock();
        if page.told.is_none() {
            page.begin(&mut stdout)?;
        }
        let table = page.told.get_or_insert_with(|| self.headers());
        table.write(&mut stdout, lines)?;
        stdout.flush()
    }

    fn headers(&self) -> Table<TOLD> {
        // As kubectl shows a label: the last part of its key.
        let label = self.label.rsplit('/').next().unwrap_or_default();
        let label = label.to_uppercase();
        let headers = [
            "HANDLER",
            "NOTIFICATION",
            "NAMESPACE",
            "NAME",
            "NODE",
            &label,
            "STATUS",
            "VERSION",
            "AGE",
        ];
        let table = Table::new(headers.map(str::to_owned))
            .at_least("STATUS", "Terminating".len())
            .at_least("NODE", NONE.len());
        let Some(width) = self.width else {
            return table;
        };
        let table = table
            .without(&WIDE)
            .narrow(width, NO_COLUMN)
            .without(&[&label]);
        if self.shows_namespaces {
            table
        } else {
            table.without(&["NAMESPACE"])
        }
    }

    fn line(&self, handler: &str, notification: &Notification<Pod>) -> Line {
        let pod = notification.object();
        let key = notification.key();
        let none = || NONE.to_owned();
        [
            handler.to_owned(),
            word(notification).to_owned(),
            key.namespace().to_owned(),
            key.name().to_owned(),
            pods::node(pod).map_or_else(none, str::to_owned),
            pods::label_of(pod, &self.label).map_or_else(none, str::to_owned),
            pods::status(pod).to_owned(),
            pod.metadata.resource_version.clone().unwrap_or_default(),
            pods::age(pod, SystemTime::now()).map_or_else(none, duration::age),
        ]
    }

    fn check(&self, result: io::Result<()>) {
        if let Err(error) = result {
            // The first failure ends the run; those after it say the same.
            drop(self.failed.try_send(error));
        }
    }
}

impl Page {
    fn begin(&mut self, stdout: &mut io::StdoutLock<'_>) -> io::Result<()> {
        if std::mem::replace(&mut self.is_empty, false) {
            return Ok(());
        }
        writeln!(stdout)
    }
}

/// What the notification is. A resync, and a list that is fetched anew, deliver a pod once more as
/// it is.
fn word(notification: &Notification<Pod>) -> &'static str {
    match notification {
        Notification::Added {
            is_in_initial_list: true,
            ..
        } => "Initial",
        Notification::Added { .. } => "Added",
        Notification::Updated { old, new }
            if old.metadata.resource_version == new.metadata.resource_version =>
        {
            "Repeated"
        }
        Notification::Updated { .. } => "Updated",
        Notification::Deleted(deleted) if deleted.final_state_known => "Deleted",
        Notification::Deleted(_) => "DeleteMissed",
    }
}

/// How far the handlers are.
pub(crate) fn handlers(printer: &Printer, registrations: &[Registration]) {
    let headers = [
        "HANDLER",
        "SYNCED",
        "DELIVERED",
        "QUEUED",
        "LAG",
        "COALESCED",
        "PANICS",
    ];
    let lines = registrations.iter().map(|handler| {
        let readings = handler.readings();
        let lag = readings.lag;
        [
            handler.name().to_owned(),
            readings.has_synced.to_string(),
            readings.delivered.to_string(),
            readings.queued.to_string(),
            lag.map_or_else(|| NONE.to_owned(), |lag| format!("{}ms", lag.as_millis())),
            readings.coalesced.to_string(),
            readings.panics.to_string(),
        ]
    });
    printer.table(headers, &lines.collect::<Vec<_>>());
}
