//! Where an informer is between its making and its end, who owns its threads there, and how each of its ends comes about.

use std::time::Duration;

use super::consumer::Consumer;
use super::sink::InformerSink;
use crate::clock::{Clock, Deadline};
use crate::error::{Error, ErrorKind};
use crate::guard::guard;
use crate::informer::DeltaFifoHandle;
use crate::informer::handlers::Processor;
use crate::list_watch::ListerWatcher;
use crate::object::Object;
use crate::reflector::{Reflector, ReflectorOptions};
use crate::store::{Reporter, Store};
use crate::sync::{Arc, Monitor, MutexGuard, ProcessCounter, atomic::Ordering};
use crate::worker::{Ending, StopToken, Task, Worker};

/// Informers started in this process, for the names of their threads.
static STARTED: ProcessCounter = ProcessCounter::new(1);

/// What a shutdown gives the informer's own threads in any case: they end within milliseconds, so that one which takes
/// longer is held up by code of the user's, and is named for that. Of the system's time.
const OWN_TIME: Duration = Duration::from_millis(500);

enum Life<K: Object> {
    /// It was not started.
    Ready(Box<Parts<K>>),
    /// Somebody starts it, which takes a moment and code of the user's; it may have been stopped
    /// meanwhile.
    Starting {
        task: Task,
        is_stopped: bool,
    },
    Running(Threads),
    /// Somebody stops it, which takes a moment.
    Ending(Task),
    /// It is to end; its threads may still run.
    Stopped(Threads),
    /// Its threads have ended.
    Over,
}

/// What an informer is started from.
pub(super) struct Parts<K: Object> {
    pub(super) source: Arc<dyn ListerWatcher<K>>,
    pub(super) sink: InformerSink<K>,
    pub(super) consumer: Consumer<K>,
    pub(super) options: ReflectorOptions,
}

/// An informer's parts that live as long as anything of it.
pub(super) struct Common<K: Object> {
    pub(super) name: Arc<str>,
    pub(super) clock: Clock,
    pub(super) store: Store<K>,
    pub(super) reporter: Reporter<K>,
    pub(super) queue: DeltaFifoHandle<K>,
    pub(super) processor: Arc<Processor<K>>,
}

/// How far an informer is, and how it goes on; shared with its queue thread, whose end is the end of all.
pub(super) struct Lifecycle<K: Object> {
    pub(super) common: Common<K>,
    life: Arc<Monitor<Life<K>>>,
}

/// An informer's threads.
struct Threads {
    reflector: Worker,
    queue: Worker,
    /// A shutdown with a deadline has named them as late.
    named: bool,
}

impl<K: Object> Lifecycle<K> {
    pub(super) fn new(common: Common<K>, parts: Parts<K>) -> Self {
        Self {
            common,
            life: Arc::new(Monitor::new(Life::Ready(Box::new(parts)))),
        }
    }

    pub(super) fn start(&self) -> Result<(), Error> {
        let mut parts = {
            let mut life = self.life.lock();
            let starting = Life::Starting {
                task: Task::begin(),
                is_stopped: false,
            };
            match std::mem::replace(&mut *life, starting) {
                Life::Ready(parts) => parts,
                other @ (Life::Starting { .. }
                | Life::Running(_)
                | Life::Ending(_)
                | Life::Stopped(_)
                | Life::Over) => {
                    let refusal = other.refusal();
                    *life = other;
                    return Err(refusal);
                }
            }
        };
        self.common.processor.start();
        parts.options.resync_period = self.common.processor.check_period();
        match self.spawn(*parts) {
            Ok(threads) => {
                self.run_or_stop(threads);
                Ok(())
            }
            Err((error, left)) => {
                self.tell_end(Some(error.clone()));
                // First the news: the thread that is left, and joined by this drop, waits for it.
                self.turn(Life::Over);
                drop(left);
                Err(error)
            }
        }
    }

    /// It runs from now on, unless it was stopped while it was started.
    fn run_or_stop(&self, threads: Threads) {
        let mut life = self.life.lock();
        let is_stopped = matches!(
            &*life,
            Life::Starting {
                is_stopped: true,
                ..
            }
        );
        if is_stopped {
            *life = Life::Ending(Task::begin());
            drop(life);
            self.ask_to_end(&threads);
            self.turn(Life::Stopped(threads));
        } else {
            *life = Life::Running(threads);
            drop(life);
            self.life.notify_all();
        }
    }

    /// Starts both threads, or gives the one of them that there was a thread for.
    fn spawn(&self, parts: Parts<K>) -> Result<Threads, (Error, Option<Worker>)> {
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let (name, whole) = (&self.common.name, self.clone());
        let consumer = parts.consumer;
        if let Err(error) = consumer.announce(name) {
            // Before the consumer is dropped, which tells no cause.
            self.tell_end(Some(error.clone()));
            return Err((error, None));
        }
        let queue = Worker::spawn(format!("inf-{number}"), move |stop| {
            whole.run(consumer, stop);
        });
        let queue = queue.map_err(|error| {
            let text = format!("no thread for informer {name}");
            let error = Error::new(ErrorKind::Resources, text).with_source(error);
            (error, None)
        })?;
        // The queue's thread waits for what closes when the sink is dropped: also if there is no second thread.
        let (source, sink, options) = (parts.source, parts.sink, parts.options);
        let reflector = self.guarded(|| Reflector::spawn(&**name, source, sink, options));
        match reflector {
            Ok(reflector) => Ok(Threads {
                reflector: reflector.into_worker(),
                queue,
                named: false,
            }),
            Err(error) => Err((error, Some(queue))),
        }
    }

    /// Calls what calls code of the user's on the thread that starts the informer; its panic is why there is no informer.
    fn guarded<T>(&self, call: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let port = format_args!("the start of informer {}", self.common.name);
        let called = guard(port, call);
        called.unwrap_or_else(|error| {
            log::error!("{error}");
            Err(error)
        })
    }

    /// The queue thread: whatever ends it ends the informer, and says why.
    fn run(&self, mut consumer: Consumer<K>, stop: &StopToken) {
        let port = format_args!("the queue thread of informer {}", self.common.name);
        let cause = match guard(port, || consumer.run(stop)) {
            Err(error) => {
                log::error!("{error}");
                Some(error)
            }
            // The stop is raised before the queue is closed: without it, the reflector's end has closed it.
            Ok(()) if !stop.is_stopped() => Some(self.end_of_reflector()),
            Ok(()) => None,
        };
        self.stop(cause);
    }

    fn end_of_reflector(&self) -> Error {
        let failures = self.common.store.status().failures;
        let last = failures.last().cloned();
        last.filter(|error| error.kind() == ErrorKind::Panicked)
            .unwrap_or_else(|| {
                let text = format!("the reflector of informer {} has ended", self.common.name);
                Error::new(ErrorKind::Stopped, text)
            })
    }

    pub(super) fn is_ready(&self) -> bool {
        matches!(&*self.life.lock(), Life::Ready(_))
    }

    pub(super) fn is_stopped(&self) -> bool {
        match &*self.life.lock() {
            Life::Starting { is_stopped, .. } => *is_stopped,
            Life::Ready(_) | Life::Running(_) => false,
            Life::Ending(_) | Life::Stopped(_) | Life::Over => true,
        }
    }

    /// Ends everything and returns at once; `cause` is why, if nobody asked for it.
    pub(super) fn stop(&self, cause: Option<Error>) {
        let mut life = self.life.lock();
        if let (Life::Starting { is_stopped, .. }, None) = (&mut *life, &cause) {
            // Who starts it may be in code of the user's for long, or be the caller. The queue
            // thread waits instead: of
            // why there is no informer, the start knows more.
            *is_stopped = true;
            drop(life);
            return self.tell_end(None);
        }
        // Of a circle: who stops it already goes on when this returns.
        let Ok(mut life) = self.when_settled(life, Deadline::NEVER) else {
            return;
        };
        let taken = match &*life {
            Life::Ready(_) | Life::Running(_) => {
                std::mem::replace(&mut *life, Life::Ending(Task::begin()))
            }
            Life::Starting { .. } | Life::Ending(_) | Life::Stopped(_) | Life::Over => return,
        };
        drop(life);
        if let Life::Running(threads) = taken {
            self.ask_to_end(&threads);
            // The threads may be held up by code of the user's; who waits is not.
            self.tell_end(cause);
            self.turn(Life::Stopped(threads));
        } else {
            self.tell_end(cause);
            self.turn(Life::Over);
            // What was never started ends by being dropped, which is code of the user's.
            drop(taken);
        }
    }

    fn ask_to_end(&self, threads: &Threads) {
        threads.stop();
        self.common.queue.close();
    }

    /// Waits while somebody starts or stops it, at most until `deadline`.
    fn when_settled<'a>(
        &'a self,
        mut life: MutexGuard<'a, Life<K>>,
        deadline: Deadline,
    ) -> Result<MutexGuard<'a, Life<K>>, Unsettled> {
        loop {
            let (task, what) = match &*life {
                Life::Starting { task, .. } => (task, "start"),
                Life::Ending(task) => (task, "stop"),
                Life::Ready(_) | Life::Running(_) | Life::Stopped(_) | Life::Over => {
                    return Ok(life);
                }
            };
            if self.common.clock.has_passed(deadline) {
                return Err(Unsettled::Late);
            }
            let name = format!("the {what} of informer {}", self.common.name);
            let waiting = task.wait(&name);
            let waiting = waiting.map_err(|_circle| Unsettled::ByCaller(what))?;
            let clock = &self.common.clock;
            life = clock.wait_until(&self.life, life, deadline);
            drop(waiting);
        }
    }

    /// Ends every wait and lets no further call of a handler begin.
    fn tell_end(&self, cause: Option<Error>) {
        self.common.reporter.end(cause);
        self.common.processor.end();
    }

    /// Waits for the informer's own threads; the caller's is not waited for.
    pub(super) fn join(&self, deadline: Deadline) -> Result<(), Error> {
        // Several may wait: one of them may be code of the user's for which another one waits.
        let ends = match self.when_settled(self.life.lock(), deadline) {
            Ok(life) => match &*life {
                Life::Stopped(threads) => threads.ends(),
                Life::Ready(_)
                | Life::Starting { .. }
                | Life::Running(_)
                | Life::Ending(_)
                | Life::Over => return Ok(()),
            },
            Err(Unsettled::Late) => return Err(self.late("somebody else stops it")),
            Err(Unsettled::ByCaller(what)) => {
                let name = &self.common.name;
                let text = format!(
                    "informer {name} ends when its {what} returns: shutdown was called on the thread that {what}s it"
                );
                return Err(Error::new(ErrorKind::Timeout, text));
            }
        };
        let late = wait_for(&ends, &self.common.clock, deadline);
        drop(self.reap(&ends, !late.is_empty()));
        if late.is_empty() {
            return Ok(());
        }
        Err(self.late(&late.join(", ")))
    }

    /// Gives the threads if they have ended, to be dropped under no lock.
    fn reap(&self, ends: &Ends, is_late: bool) -> Option<Threads> {
        let have_ended = ends.iter().all(|(end, _)| end.has_come());
        let mut life = self.life.lock();
        match std::mem::replace(&mut *life, Life::Over) {
            Life::Stopped(threads) if have_ended => Some(threads),
            Life::Stopped(mut threads) => {
                threads.named |= is_late;
                *life = Life::Stopped(threads);
                None
            }
            // Somebody else was sooner.
            other @ (Life::Ready(_)
            | Life::Starting { .. }
            | Life::Running(_)
            | Life::Ending(_)
            | Life::Over) => {
                *life = other;
                None
            }
        }
    }

    /// Waits without a deadline, except for what a shutdown named as late: that ends detached.
    pub(super) fn close(&self) {
        self.stop(None);
        // Whoever starts or stops it on this very thread ends it when this returns.
        if let Ok(mut life) = self.when_settled(self.life.lock(), Deadline::NEVER) {
            let taken = std::mem::replace(&mut *life, Life::Over);
            drop(life);
            self.life.notify_all();
            if let Life::Stopped(threads) = taken {
                threads.close(&self.common.name);
            }
        }
        self.common.processor.close();
    }

    fn late(&self, what: &str) -> Error {
        let text = format!(
            "timed out waiting for informer {}: {what}",
            self.common.name
        );
        Error::new(ErrorKind::Timeout, text)
    }

    fn turn(&self, life: Life<K>) {
        *self.life.lock() = life;
        self.life.notify_all();
    }
}

impl<K: Object> Clone for Lifecycle<K> {
    fn clone(&self) -> Self {
        let common = &self.common;
        Self {
            common: Common {
                name: Arc::clone(&common.name),
                clock: common.clock.clone(),
                store: common.store.clone(),
                reporter: common.reporter.clone(),
                queue: common.queue.clone(),
                processor: Arc::clone(&common.processor),
            },
            life: Arc::clone(&self.life),
        }
    }
}

/// Why a wait for who starts or stops an informer gave up.
enum Unsettled {
    Late,
    /// The caller is in the middle of it, or somebody who waits for the caller.
    ByCaller(&'static str),
}

/// The ends of an informer's threads, the reflector's first (SI-5), each with what of the user's may hold it up.
type Ends = [(Ending, &'static str); 2];

/// Waits for the ends; gives the threads that are late by name. The caller's own is not waited for,
/// nor one that waits for
/// the caller.
fn wait_for(ends: &Ends, clock: &Clock, deadline: Deadline) -> Vec<String> {
    let system = Clock::system();
    let least = system.after(OWN_TIME);
    let late = ends.iter().filter(|(end, _)| {
        let is_late = |waited| matches!(waited, Ok(false));
        is_late(end.wait_until(clock, deadline)) && is_late(end.wait_until(&system, least))
    });
    late.map(|(end, held_up_by)| {
        let thread = end.name();
        format!("thread {thread} still runs, held up by {held_up_by}")
    })
    .collect()
}

impl Threads {
    fn ends(&self) -> Ends {
        let reflector = self.reflector.ending();
        let queue = self.queue.ending();
        [
            (reflector, "a transform or a call of the source"),
            (queue, "an index function"),
        ]
    }

    /// Asks both threads to end; returns at once. The queue is to be closed after this.
    fn stop(&self) {
        for worker in [&self.reflector, &self.queue] {
            worker.stop();
        }
    }

    fn close(self, informer: &str) {
        let named = self.named;
        for worker in [self.reflector, self.queue] {
            if named && !worker.has_ended() {
                let thread = worker.name();
                log::warn!(
                    "thread {thread} still runs while its informer {informer} is dropped: it ends detached"
                );
                worker.abandon();
            } else {
                drop(worker);
            }
        }
    }
}

impl<K: Object> Life<K> {
    /// Why it cannot be started.
    fn refusal(&self) -> Error {
        match self {
            Self::Ready(_) | Self::Starting { .. } | Self::Running(_) => {
                Error::new(ErrorKind::Config, "informer has already started")
            }
            Self::Ending(_) | Self::Stopped(_) | Self::Over => Error::new(
                ErrorKind::Stopped,
                "informer was not started because it has stopped already",
            ),
        }
    }
}
