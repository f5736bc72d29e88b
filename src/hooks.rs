//! Functions of the program that an owner calls with its events, and the readings of its state that
//! they receive.

use std::sync::Weak;
use std::time::Duration;

use crate::clock::Clock;
use crate::error::{Error, clone_of, debug_of};
use crate::guard::{guard_call, guard_logged};
use crate::sync::Arc;

/// A function of the program that the crate calls with each `T` as it happens.
///
/// Clones are the same hook. The thread of each event calls the function without a lock, and waits
/// for it, so it must not block. Its panics are logged. If it panics at a start, the start fails
/// with [`Panicked`](crate::ErrorKind::Panicked).
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "testing")] {
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kubecache::clock::Clock;
/// use kubecache::hooks::Hook;
/// use kubecache::reflector::{ReflectorMetric, ReflectorOptions};
/// use kubecache::store::{Indexers, Store};
/// use kubecache::testing::FakeSource;
///
/// let (send, lists) = std::sync::mpsc::channel();
/// let options = ReflectorOptions::default().metrics(Hook::new(move |metric| {
///     if let ReflectorMetric::Listed { items, took } = metric {
///         println!("{items} items in {took:?}");
///         drop(send.send(*items));
///     }
/// }));
/// let source = Arc::new(FakeSource::<ConfigMap>::new());
/// let (_store, reflector) = Store::spawn("settings", source, Indexers::new(), options)?;
/// assert_eq!(lists.recv(), Ok(0));
/// # drop(reflector);
/// # }
/// # Ok::<(), kubecache::Error>(())
/// ```
pub struct Hook<T>(Arc<Function<T>>);

type Function<T> = dyn Fn(&T) -> Result<(), Error> + Send + Sync;

impl<T> Hook<T> {
    /// Makes a hook that calls `function`.
    pub fn new(function: impl Fn(&T) + Send + Sync + 'static) -> Self {
        Self::fallible(move |told| {
            function(told);
            Ok(())
        })
    }

    /// Makes a hook that can refuse a start.
    pub(crate) fn fallible(
        function: impl Fn(&T) -> Result<(), Error> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(function))
    }

    /// Makes a hook that wraps its values with `whole` and passes them to this one.
    pub(crate) fn of_part<P: Clone + 'static>(&self, whole: fn(P) -> T) -> Hook<P>
    where
        T: 'static,
    {
        let hook = self.clone();
        Hook::fallible(move |part: &P| hook.0(&whole(part.clone())))
    }

    /// Calls the hook; `port` names it in the log if it panics.
    pub(crate) fn tell(&self, port: &str, told: &T) {
        guard_logged(port, || self.0(told).unwrap_or_default());
    }
}

clone_of!([T] Hook<T>: 0);

debug_of!([T] Hook<T>, |_it| ..);

/// Reads the state of one owner, at any time after its start, without keeping the owner alive.
pub struct Reading<S>(Weak<dyn Fn() -> S + Send + Sync>);

impl<S> Reading<S> {
    /// Returns the present state; `None` once the owner has ended. Takes locks of the owner for a
    /// moment, but never waits for the network or for code of the program.
    pub fn state(&self) -> Option<S> {
        self.0.upgrade().map(|look| look())
    }

    /// Whether the owner has ended, so that nothing is left to read. Takes no lock.
    pub fn is_over(&self) -> bool {
        self.0.strong_count() == 0
    }
}

clone_of!([S] Reading<S>: 0);

debug_of!([S] Reading<S>, |it| is_over: it.is_over(), ..);

/// The metrics of an owner: their hook, and the function of its readings, which end with this.
pub(crate) struct Telemetry<T, S> {
    hook: Option<Hook<T>>,
    _look: Arc<dyn Fn() -> S + Send + Sync>,
    port: String,
    clock: Clock,
}

impl<T, S: 'static> Telemetry<T, S> {
    /// Tells `hook` that the owner of this name starts. The reading in `started` calls `look`,
    /// which must keep nothing alive whose drop waits for a thread.
    ///
    /// # Errors
    ///
    /// `Panicked` if the hook panics, or its refusal of the start.
    pub(crate) fn start(
        hook: Option<Hook<T>>,
        owner: &str,
        clock: &Clock,
        look: impl Fn() -> S + Send + Sync + 'static,
        started: impl FnOnce(Reading<S>) -> T,
    ) -> Result<Self, Error> {
        let port = format!("the metrics of {owner}");
        let look: Arc<dyn Fn() -> S + Send + Sync> = Arc::new(look);
        if let Some(hook) = &hook {
            let told = started(Reading(Arc::downgrade(&look)));
            guard_call(&port, || hook.0(&told))?;
        }
        Ok(Self {
            hook,
            _look: look,
            port,
            clock: clock.clone(),
        })
    }

    pub(crate) fn has_hook(&self) -> bool {
        self.hook.is_some()
    }

    /// Calls the hook, if there is one.
    pub(crate) fn tell(&self, told: impl FnOnce() -> T) {
        if let Some(hook) = &self.hook {
            hook.tell(&self.port, &told());
        }
    }

    /// Tells the hook how long `act` took. Without a hook it reads no clock.
    pub(crate) fn time<R>(
        &self,
        act: impl FnOnce() -> R,
        told: impl FnOnce(Duration, &R) -> T,
    ) -> R {
        if !self.has_hook() {
            return act();
        }
        let begun = self.clock.now();
        let done = act();
        let took = self.clock.now().saturating_duration_since(begun);
        self.tell(|| told(took, &done));
        done
    }
}
