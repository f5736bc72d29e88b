//! The agent's one loop: what the pods' reflector, the managers, the signals and the clock say, one
//! after the other.

use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crossbeam_channel::{
    Receiver, Select, TryRecvError, after, at, bounded, never, select, unbounded,
};
use kubecache::clock::{Clock, Deadline};
use kubecache::http::Client;
use kubecache::manager::{ChangeDetection, Changes};
use kubecache::object::{FieldSelector, LabelSelector, Scope};
use kubecache::reflector::{Reflector, ReflectorOptions, ReflectorStatus, WaiterGuard, Waiters};
use kubecache::worker::Worker;
use kubecache::{Error, ErrorKind};

use crate::args::Options;
use crate::endpoints::Addresses;
use crate::files::Files;
use crate::follow::Follower;
use crate::health::Flag;
use crate::node::{Node, followed};
use crate::notify::Notifier;
use crate::outflow::{Pieces, STDOUT};
use crate::pod::Pod;
use crate::pods::{PodNews, PodSink, Snapshot};
use crate::presence::{Asking, Presence};
use crate::print::{Printer, Rows};
use crate::reads::{Due, Schedule, later};
use crate::rights;
use crate::rows::Facts;
use crate::signals::Stop;
use crate::tell::{one_line, tell};
use crate::wait_line::WaitLine;
use crate::wanted::Wanted;
use crate::watched_file::WatchedFile;

/// Half of the least time after which an object that nobody reads is not watched any more.
const READ_PERIOD: Duration = Duration::from_secs(30);

/// A read from a disk that works takes a small part of it.
const READ_WAIT: Duration = Duration::from_secs(5);

/// How long the first rows are held back for the answers to come in together.
const SETTLE: Duration = Duration::from_millis(750);

/// The rows that wait for a slow reader, beside one for each object.
const WAITING_ROWS: usize = 1000;

/// How long the reader of `--once` has for the rest after a signal.
const READER_PATIENCE: Duration = Duration::from_secs(5);

/// How a run ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// With all that was asked for.
    Complete,
    /// So many of the objects had no answer at the deadline.
    Missing { missing: usize, of: usize },
    /// The entries whose objects were not known at the deadline, each with the last failure.
    Unknown(Vec<String>),
    /// So many of the objects are not there, and that is a failure.
    Absent(usize),
    /// The pods of the node could not be learned.
    Failed(Error),
    /// A signal came before the answers.
    Interrupted,
    /// Nobody reads what is printed any more.
    OutputClosed(io::Error),
}

/// What the loop woke up for.
enum Woken {
    Signal,
    HangUp,
    OutputClosed(io::Error),
    ConfigChanged,
    /// A read that took too long has ended.
    Late(Result<Wanted, String>),
    /// The selections of the configuration found other objects.
    Selected,
    Something,
}

/// A run of the agent.
pub(crate) struct Agent<'a> {
    pub(crate) options: &'a Options,
    /// `None`: no pods are followed.
    pub(crate) node_name: Option<&'a str>,
    /// Its address: it names whose objects a snapshot has.
    pub(crate) server: &'a str,
    pub(crate) printer: Printer<Pieces>,
    pub(crate) signals: &'a Stop,
    pub(crate) hang_ups: &'a Receiver<()>,
    /// Whether the rows went to a terminal when the run began.
    pub(crate) is_on_terminal: bool,
    /// The file of the configuration, if there is one.
    pub(crate) config: Option<WatchedFile>,
    /// A read of files that has not ended: there is one at a time.
    pub(crate) reading: Option<Receiver<Result<Wanted, String>>>,
    /// The files are read once more, since a read took too long.
    pub(crate) repeats: bool,
    pub(crate) endpoints: Addresses,
    pub(crate) wait_line: WaitLine<Pieces>,
    pub(crate) notifier: Notifier,
}

/// What the loop listens to.
struct Ears {
    pods: Receiver<PodNews>,
    secrets: Changes,
    config_maps: Changes,
    /// What the selections of the configuration found.
    selected: Receiver<()>,
    /// Where pods are followed.
    reflector: Option<Arc<Reflector>>,
    /// Held until the pods are known: somebody waits for them, so a failed first list is tried
    /// again fast.
    waits: Option<WaiterGuard>,
    /// Where no pod was bound to the node at first.
    asking: Option<Asking>,
}

/// How far the agent is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The pods are not known yet.
    Contacting,
    /// `--once`: until all is answered, or the deadline.
    Answering,
    /// The first answers come in; until then nothing is printed.
    Settling { until: Instant },
    /// Changes are printed as they come; sometimes there is one to print although nothing came.
    Following { look_again: Option<Instant> },
}

/// What the loop knows.
struct Progress {
    clock: Clock,
    stage: Stage,
    /// When waiting for the pods, or with `--once` for all answers, ends.
    deadline: Deadline,
    reads: Schedule,
    last_error: Option<Error>,
    told_of_failure: bool,
    follower: Follower,
    /// Whether there is a node of that name, where that was asked and answered.
    presence: Option<Presence>,
    is_asked: bool,
    /// For those who ask whether the agent is ready.
    synced: Flag,
    /// For those who ask whether it is fresh.
    restored: Flag,
}

impl Agent<'_> {
    /// Runs until everything is answered (`--once`), a signal comes, or the server refuses us.
    pub(crate) fn run(mut self, client: &Client) -> Result<Ended, Error> {
        let clock = Clock::system();
        let endpoints = std::mem::take(&mut self.endpoints);
        let metrics = endpoints.metrics.clone();
        let mut node = Node::new(
            client,
            self.server,
            self.node_name,
            self.options,
            metrics.as_ref(),
        )?;
        let past_limit = self.options.watches_max.filter(|_| !self.options.demo);
        let namespace = self.options.namespace.as_deref();
        let asks = past_limit.map(|_| rights::check(client, namespace));
        let _asks = asks.transpose()?;
        let mut ears = Ears::listen(&node);
        let mut progress = Progress::new(clock, self.options);
        match self.node_name {
            Some(name) => {
                let followed = followed::<Pod>(self.options, metrics.as_ref(), "pods-of-node")?;
                ears.follow_pods(client, self.options, name, followed)?;
            }
            None => progress.pods_are_known(self.options.once),
        }
        if node.has_restored() {
            // There is something to show, whether the server answers or not.
            progress.pods_are_known(self.options.once);
        }
        progress.restored.set(node.still_restored(&node.rows()));
        let pods = ears.reflector.as_ref();
        let health = node.health(pods, progress.synced.clone(), &progress.restored);
        // Ends before what it looks at.
        let served = endpoints.serve(&health, self.options)?;
        drop(health);
        self.signals.is_listened_to();
        loop {
            // Before the first wait, too: what came before the ears listen wakes nobody.
            if let Some(ended) = self.look(&node, &mut progress, ears.reflector.as_deref()) {
                return Ok(ended);
            }
            match self.next(&ears, &progress, &mut node) {
                Woken::Signal | Woken::HangUp if self.options.once => {
                    let status = ears.reflector.as_ref().map(|pods| pods.status());
                    return Ok(self.interrupted(&node, &progress, status.as_ref()));
                }
                Woken::Signal | Woken::HangUp => return Ok(Ended::Complete),
                Woken::OutputClosed(error) => return Ok(Ended::OutputClosed(error)),
                Woken::Selected => node.look_at_selections(),
                Woken::Something | Woken::ConfigChanged | Woken::Late(_) => node.look_at_departed(),
            }
            served.follow_configuration();
            // All that came so far belongs to one look.
            for news in ears.pods.try_iter() {
                match &news {
                    PodNews::Status(status) => {
                        if let Some(error) = progress.refusal(status) {
                            return Ok(Ended::Failed(of_pods(self.options, error)));
                        }
                    }
                    PodNews::All(list) => {
                        progress.pods_are_known(self.options.once);
                        if ears.waits.take().is_some() {
                            ears.asking = self.ask_for_node(client, list)?;
                            progress.is_asked = ears.asking.is_some();
                        }
                    }
                    PodNews::Here(_) | PodNews::Gone(_) => {}
                }
                node.take(news);
            }
            self.tell_news(&ears, &mut progress);
            if ears.has_lost_pods() {
                return Err(Error::stopped("the thread that follows the pods"));
            }
        }
    }

    /// Starts to ask whether the node exists, where no pod is bound to it.
    fn ask_for_node(&self, client: &Client, list: &Snapshot) -> Result<Option<Asking>, Error> {
        let name = self.node_name.unwrap_or_default();
        // A kubelet that answers has a node.
        let is_empty =
            list.pods.is_empty() && list.undecodable.is_empty() && !self.options.kubelet.is_asked;
        is_empty.then(|| Asking::start(client, name)).transpose()
    }

    /// Tells of the connection, of a node that does not exist, and of its coming. With `--once` its
    /// absence is told at the end.
    fn tell_news(&mut self, ears: &Ears, progress: &mut Progress) {
        if let Some(notice) = progress.notice() {
            self.wait_line.clear();
            tell(&notice);
        }
        let name = self.node_name.unwrap_or_default();
        let asking = ears.asking.iter();
        for answer in asking.flat_map(|asking| asking.answers.try_iter()) {
            if answer == Presence::Unknown && progress.presence.is_some() {
                continue;
            }
            let before = progress.presence.replace(answer);
            match answer {
                _ if self.options.once => {}
                Presence::Absent => {
                    self.wait_line.clear();
                    let text = format!("warning: node {name} does not exist; waiting for it");
                    tell(&text);
                }
                Presence::There if before == Some(Presence::Absent) => {
                    tell(&format!("node {name} exists now"));
                }
                Presence::There | Presence::Unknown => {}
            }
        }
    }

    /// Waits until there is something to do, or an end. At a SIGHUP it reads again.
    fn next(&mut self, ears: &Ears, progress: &Progress, node: &mut Node) -> Woken {
        let own = self.notifier.next_timer(progress.clock.now());
        let timer = progress.next_timer().into_iter().chain(own).min();
        match ears.wait(self, timer) {
            woken @ (Woken::Something | Woken::Selected) => woken,
            Woken::HangUp if !self.has_lost_terminal() => {
                self.notifier.reloads();
                self.read_again("SIGHUP", node);
                self.notifier.reloaded();
                Woken::Something
            }
            Woken::ConfigChanged => {
                self.read_again("the configuration changed", node);
                Woken::Something
            }
            Woken::Late(late) => {
                self.notifier.look_again();
                self.reading = None;
                // The files may have changed meanwhile: once more, and not without end.
                self.repeats = !self.repeats;
                let again = self.repeats.then(|| self.read_detached());
                // What came late counts where that is slow, too.
                let again = again.filter(|_| self.reading.is_none());
                self.take_in("a slow disk answered", again.unwrap_or(late), node);
                Woken::Something
            }
            end @ (Woken::Signal | Woken::HangUp | Woken::OutputClosed(_)) => {
                self.notifier.stops();
                end
            }
        }
    }

    fn look(
        &mut self,
        node: &Node,
        progress: &mut Progress,
        pods: Option<&Reflector>,
    ) -> Option<Ended> {
        let now = progress.clock.now();
        let late = progress.deadline.has_passed(now);
        let rows = node.rows();
        progress.read(node, &rows, now);
        progress.restored.set(node.still_restored(&rows));
        self.notifier.lives(now);
        let is_known = progress.stage != Stage::Contacting;
        let unknown = (!is_known).then(|| "the pods of the node".to_owned());
        let missing = || unknown.into_iter().chain(node.missing(&rows)).collect();
        self.notifier.look(now, missing);
        let options = self.options;
        let no_contact = || {
            let waits_for = pods.and_then(|pods| pods.status().describe_activity(now));
            Ended::Failed(of_pods(options, progress.no_contact(options, waits_for)))
        };
        if progress.stage == Stage::Contacting {
            let name = self.node_name.unwrap_or_default();
            let text = format!("The server is asked for the pods of node {name}.");
            self.wait_line.show(&text);
            return late.then(no_contact);
        }
        let missing = rows.values().filter(|facts| !facts.is_definite()).count();
        let missing = missing.saturating_add(node.unknown_selections().len());
        // Out of a snapshot there are pods before these are known.
        let is_answered = missing == 0 && node.are_pods_known();
        if is_answered {
            progress.synced.set(true);
        }
        let waits = match progress.stage {
            Stage::Contacting => true,
            Stage::Answering => (!is_answered || progress.asks()) && !late,
            Stage::Settling { until } => missing > 0 && now < until,
            Stage::Following { .. } => false,
        };
        if waits {
            let of = rows.len();
            let answered = of.saturating_sub(missing);
            let text = format!("{answered} of {of} objects have their answer.");
            self.wait_line.show(&text);
            return None;
        }
        self.wait_line.clear();
        match progress.stage {
            Stage::Contacting => None,
            Stage::Answering => {
                let ended = self.end_once(node, &rows, missing, progress);
                // Where the pods are not known, the write of files fails at the same deadline.
                let hides_why = matches!(ended, Ended::Complete | Ended::Failed(_));
                let lacks_pods = hides_why && !node.are_pods_known();
                Some(if lacks_pods { no_contact() } else { ended })
            }
            Stage::Settling { .. } => {
                self.tell_if_empty(&rows);
                self.follow(&rows, now, progress)
            }
            Stage::Following { .. } => self.follow(&rows, now, progress),
        }
    }

    /// Writes the files that are asked for, then prints.
    fn end_once(&mut self, node: &Node, rows: &Rows, missing: usize, progress: &Progress) -> Ended {
        let written = match &node.files {
            Some(files) => self.write_files(files, progress.deadline),
            None => Some(Ok(())),
        };
        let printed = self.print_once(node, rows, missing, written.is_none());
        match (printed, written) {
            (Ended::Complete, Some(Err(error))) => Ended::Failed(error),
            (Ended::Complete, None) => Ended::Interrupted,
            (Ended::Complete, _) if progress.presence == Some(Presence::Absent) => {
                let name = self.node_name.unwrap_or_default();
                let text = format!("node {name} does not exist");
                Ended::Failed(Error::new(ErrorKind::NotFound, text))
            }
            (ended, _) => ended,
        }
    }

    /// Whether the terminal is gone to which the rows went.
    fn has_lost_terminal(&self) -> bool {
        self.is_on_terminal && !io::stdout().is_terminal()
    }

    /// Reads the files again that say what is kept, and tells again what was told in vain.
    fn read_again(&mut self, why: &str, node: &mut Node) {
        if self.options.once {
            return log::info!("{why}: nothing is read again with --once");
        }
        self.notifier.look_again();
        if let Some(files) = &node.files {
            files.tell_again();
        }
        if !self.options.sources.has_files() {
            return log::info!("{why}: there is no file to read again");
        }
        let read = self.read_detached();
        self.take_in(why, read, node);
    }

    /// Keeps from now on what the files say. Tells where that cannot be.
    fn take_in(&mut self, why: &str, read: Result<Wanted, String>, node: &mut Node) {
        let read = read.and_then(|wanted| self.options.check(&wanted).map(|()| wanted));
        let wrong = match read {
            Err(wrong) => wrong,
            Ok(wanted) if wanted.is_empty() && self.node_name.is_none() => {
                "no object is named".to_owned()
            }
            Ok(wanted) => match node.want(&wanted) {
                Ok(()) => {
                    log::info!("{why}: {} objects are referenced", wanted.references.len());
                    let Some(changed) = self.options.needs_restart(&wanted) else {
                        return;
                    };
                    self.wait_line.clear();
                    return tell(&format!(
                        "warning: the configuration has {changed}; it takes a restart to follow \
                         that"
                    ));
                }
                Err(error) => error.to_string(),
            },
        };
        self.wait_line.clear();
        tell(&format!(
            "warning: {why}: {wrong}; what was read before stays"
        ));
    }

    /// Reads by a thread that nothing waits for: a file system that hangs may never let it end.
    fn read_detached(&mut self) -> Result<Wanted, String> {
        let hangs = "the files are not read yet: does their disk hang?";
        if let Some(before) = self.reading.take()
            && matches!(before.try_recv(), Err(TryRecvError::Empty))
        {
            self.reading = Some(before);
            // That may have begun before the change: one more read follows it.
            self.repeats = false;
            return Err(hangs.to_owned());
        }
        let (send, came) = bounded(1);
        let sources = self.options.sources.clone();
        let thread = std::thread::Builder::new().name("agent-references".to_owned());
        let started = thread.spawn(move || drop(send.send(sources.read())));
        started.map_err(|error| format!("the thread that reads: {error}"))?;
        let mut either = Select::new();
        either.recv(&came);
        either.recv(&self.signals.came);
        // A signal stays for the loop.
        let read = either
            .ready_timeout(READ_WAIT)
            .ok()
            .and_then(|_| came.try_recv().ok());
        if read.is_none() {
            self.reading = Some(came);
        } else {
            self.repeats = false;
        }
        read.unwrap_or_else(|| Err(hangs.to_owned()))
    }

    /// Waits until the files are written and told of; `None` if a signal came first.
    fn write_files(&self, files: &Arc<Files>, deadline: Deadline) -> Option<Result<(), Error>> {
        let (send, written) = bounded(1);
        let on_thread = Arc::clone(files);
        let writing = Worker::spawn("agent-files", move |_stop| {
            let written = on_thread.write_by(deadline);
            drop(send.send(written.and(on_thread.tell_by(deadline))));
        });
        if let Err(error) = writing {
            let error = Error::new(ErrorKind::Resources, "thread agent-files").with_source(error);
            return Some(Err(error));
        }
        select! {
            recv(written) -> written => {
                Some(written.unwrap_or_else(|_| Err(Error::stopped("writing the files"))))
            }
            recv(self.signals.came) -> _ => {
                // Its waits end now.
                files.stop();
                None
            }
        }
    }

    /// Prints all there is. After a signal the reader has a few seconds for it.
    fn print_once(&mut self, node: &Node, rows: &Rows, missing: usize, signalled: bool) -> Ended {
        self.tell_if_empty(rows);
        let printed = self.printer.node(&node.pods(), rows, SystemTime::now());
        let printed = printed.and_then(|()| self.wait_for_reader(signalled));
        let absent = rows.values().filter(|facts| facts.content.is_none());
        let absent = absent.count();
        let unknown = node.unknown_selections();
        match (printed, missing) {
            (Err(error), _) => Ended::OutputClosed(error),
            (Ok(()), _) if !unknown.is_empty() => Ended::Unknown(unknown),
            (Ok(()), 0) if absent > 0 && self.options.fail_on_missing => Ended::Absent(absent),
            (Ok(()), 0) => Ended::Complete,
            (Ok(()), missing) => Ended::Missing {
                missing,
                of: rows.len(),
            },
        }
    }

    fn wait_for_reader(&self, signalled: bool) -> io::Result<()> {
        let mut late = if signalled {
            after(READER_PATIENCE)
        } else {
            never()
        };
        while !STDOUT.is_idle() {
            select! {
                recv(STDOUT.closed()) -> error => return error.map_or(Ok(()), Err),
                recv(STDOUT.idle()) -> _ => {}
                recv(self.signals.came) -> _ => late = after(READER_PATIENCE),
                recv(late) -> _ => return Err(io::ErrorKind::TimedOut.into()),
            }
        }
        STDOUT.closed().try_recv().map_or(Ok(()), Err)
    }

    /// Prints what is known; for the others, what they wait for.
    fn interrupted(
        &mut self,
        node: &Node,
        progress: &Progress,
        pods: Option<&ReflectorStatus>,
    ) -> Ended {
        self.wait_line.clear();
        if let (Stage::Contacting, Some(pods), Some(name)) = (progress.stage, pods, self.node_name)
        {
            let activity = pods.describe_activity(progress.clock.now());
            let activity = activity.as_deref().unwrap_or("nothing was asked yet");
            tell(&format!(
                "The pods of node {name} are not known yet: {activity}."
            ));
            return Ended::Interrupted;
        }
        let rows = node.rows();
        let missing = rows.values().filter(|facts| !facts.is_definite()).count();
        match self.print_once(node, &rows, missing, true) {
            Ended::OutputClosed(error) => Ended::OutputClosed(error),
            Ended::Complete
            | Ended::Missing { .. }
            | Ended::Unknown(_)
            | Ended::Absent(_)
            | Ended::Failed(_)
            | Ended::Interrupted => Ended::Interrupted,
        }
    }

    fn follow(&mut self, rows: &Rows, now: Instant, progress: &mut Progress) -> Option<Ended> {
        let news = progress.follower.look(rows, now);
        progress.stage = Stage::Following {
            look_again: news.look_again,
        };
        STDOUT.keep_at_most(rows.len().saturating_add(WAITING_ROWS));
        let changes: Vec<_> = news.rows.iter().map(|(key, facts)| (key, facts)).collect();
        let printed = self.printer.changes(&changes, SystemTime::now());
        printed.err().map(Ended::OutputClosed)
    }
}

impl Agent<'_> {
    fn tell_if_empty(&self, rows: &Rows) {
        let is_table = self.options.output.is_table();
        if let Some(name) = self.node_name.filter(|_| is_table && rows.is_empty()) {
            tell(&format!(
                "No pod that names Secrets or ConfigMaps is bound to node {name}."
            ));
        }
    }
}

impl Ears {
    fn listen(node: &Node) -> Self {
        let (secrets, config_maps) = node.subscribe();
        Self {
            pods: never(),
            secrets,
            config_maps,
            selected: node.selected(),
            reflector: None,
            waits: None,
            asking: None,
        }
    }

    fn has_lost_pods(&self) -> bool {
        let pods = self.reflector.as_ref();
        pods.is_some_and(|pods| pods.is_finished())
    }

    /// Starts to learn the pods bound to the node.
    fn follow_pods(
        &mut self,
        client: &Client,
        options: &Options,
        node_name: &str,
        followed: ReflectorOptions,
    ) -> Result<(), Error> {
        let scope = options.namespace.as_deref();
        let scope = scope.map_or_else(Scope::all, Scope::namespace);
        let scope = scope.fields(FieldSelector::node_name(node_name));
        let scope = scope.labels(LabelSelector::new(options.selector.as_str()));
        let source = if options.kubelet.is_asked {
            options.kubelet.source(node_name, options.request_timeout)?
        } else {
            client.lister_watcher(scope)
        };
        let (send, pods) = unbounded();
        let waiters = Waiters::new();
        let reflector = Reflector::spawn(
            format!("pods of {node_name}"),
            source,
            PodSink(send),
            followed.waiters(waiters.clone()),
        )?;
        self.pods = pods;
        self.reflector = Some(Arc::new(reflector));
        self.waits = Some(waiters.wait());
        Ok(())
    }

    fn wait(&self, agent: &Agent<'_>, timer: Option<Instant>) -> Woken {
        let timer = timer.map_or_else(never, at);
        let none = never();
        let asking = self.asking.as_ref().map_or(&none, |asking| &asking.answers);
        let mut select = Select::new();
        select.recv(&agent.signals.came);
        select.recv(agent.hang_ups);
        select.recv(&self.pods);
        select.recv(self.secrets.signal());
        select.recv(self.config_maps.signal());
        select.recv(&timer);
        select.recv(STDOUT.closed());
        select.recv(asking);
        select.recv(&self.selected);
        let no_file = never();
        let config = agent.config.as_ref().map_or(&no_file, |file| &file.changed);
        select.recv(config);
        let no_read = never();
        let late = agent.reading.as_ref().unwrap_or(&no_read);
        select.recv(late);
        select.ready();
        if agent.signals.came.try_recv().is_ok() {
            return Woken::Signal;
        }
        if agent.hang_ups.try_recv().is_ok() {
            return Woken::HangUp;
        }
        if let Ok(error) = STDOUT.closed().try_recv() {
            return Woken::OutputClosed(error);
        }
        match late.try_recv() {
            Ok(read) => return Woken::Late(read),
            Err(TryRecvError::Disconnected) => {
                return Woken::Late(Err("the thread that reads has ended".to_owned()));
            }
            Err(TryRecvError::Empty) => {}
        }
        if config.try_recv().is_ok() {
            return Woken::ConfigChanged;
        }
        let is_selected = self.selected.try_recv().is_ok();
        // The rows are looked at as a whole: of these subscriptions only the messages have to go.
        for changes in [&self.secrets, &self.config_maps] {
            if changes.signal().try_recv().is_ok() {
                drop(changes.take());
            }
        }
        if is_selected {
            Woken::Selected
        } else {
            Woken::Something
        }
    }
}

/// Why there are no pods. kubectl's words, `Error from server`, are for the API server alone.
fn of_pods(options: &Options, error: Error) -> Error {
    if !options.kubelet.is_asked {
        return error;
    }
    let text = "the kubelet gave no pods";
    Error::new(error.kind(), text).with_source(error)
}

impl Progress {
    fn new(clock: Clock, options: &Options) -> Self {
        let period = match options.change_detection {
            ChangeDetection::Watch => READ_PERIOD,
            ChangeDetection::Cache | ChangeDetection::Get => options.sync_frequency(),
        };
        Self {
            stage: Stage::Contacting,
            deadline: options
                .timeout
                .map_or(Deadline::NEVER, |limit| clock.after(limit)),
            reads: Schedule::new(period, clock.now()),
            last_error: None,
            told_of_failure: false,
            follower: Follower::default(),
            presence: None,
            is_asked: false,
            synced: Flag::default(),
            restored: Flag::default(),
            clock,
        }
    }

    fn pods_are_known(&mut self, once: bool) {
        if self.stage == Stage::Contacting {
            let until = later(self.clock.now(), SETTLE);
            self.stage = if once {
                Stage::Answering
            } else {
                Stage::Settling { until }
            };
        }
    }

    /// Whether the server has not said yet if there is such a node.
    fn asks(&self) -> bool {
        self.is_asked && self.presence.is_none()
    }

    /// Has read what is due.
    fn read(&mut self, node: &Node, rows: &Rows, now: Instant) {
        let failed = |facts: &Facts| facts.failed && !facts.is_definite();
        let failing = node.fetches() && rows.values().any(failed);
        match self.reads.due(now, failing) {
            Due::Nothing => {}
            Due::All => node.read(&mut rows.keys()),
            Due::Failed => {
                let rows = rows.iter().filter(|(_, facts)| failed(facts));
                node.read(&mut rows.map(|(key, _)| key));
            }
        }
    }

    /// The next instant at which there may be something to do although nothing came.
    fn next_timer(&self) -> Option<Instant> {
        let own = match self.stage {
            Stage::Contacting | Stage::Answering => self.deadline.instant(),
            Stage::Settling { until } => Some(until),
            Stage::Following { look_again } => look_again,
        };
        own.into_iter().chain([self.reads.next()]).min()
    }

    /// Why it is of no use to go on: before the first list of the pods, what waiting does not mend.
    fn refusal(&mut self, status: &ReflectorStatus) -> Option<Error> {
        self.last_error = status.failures.last().cloned();
        if !matches!(self.stage, Stage::Contacting | Stage::Answering) || status.synced {
            return None;
        }
        if let Some(denied) = &status.refusal {
            return Some(denied.clone());
        }
        let lasting = |error: &&Error| {
            matches!(
                error.kind(),
                ErrorKind::Unauthorized
                    | ErrorKind::NotFound
                    | ErrorKind::TooLarge
                    | ErrorKind::Tls
                    | ErrorKind::Config
            )
        };
        status.failures.last().filter(lasting).cloned()
    }

    /// What to tell of the connection: the first failure of a series, and its end.
    fn notice(&mut self) -> Option<String> {
        // A version that expired is the normal end of a watch.
        let error = self.last_error.as_ref();
        let failing = error.is_some_and(|error| error.kind() != ErrorKind::Expired);
        if failing == std::mem::replace(&mut self.told_of_failure, failing) {
            return None;
        }
        Some(match &self.last_error {
            Some(error) => format!("warning: {}; trying again", one_line(&error.to_string())),
            None => "the pods of the node are followed again".to_owned(),
        })
    }

    fn no_contact(&self, options: &Options, waits_for: Option<String>) -> Error {
        let limit = options.timeout.unwrap_or_default();
        let text = format!("the pods of the node are not known after {limit:?}");
        match &self.last_error {
            None => {
                let waits_for = waits_for.unwrap_or_else(|| "nothing was asked yet".to_owned());
                Error::new(ErrorKind::Timeout, format!("{text}: {waits_for}"))
            }
            Some(error) => error.clone().context(&text),
        }
    }
}
