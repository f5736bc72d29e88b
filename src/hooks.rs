//! Functions of the program that are told what an owner does, and the readings of its state that
//! they are given.

use std::fmt;
use std::sync::Weak;
use std::time::Duration;

use crate::clock::Clock;
use crate::error::{Error, clone_of, debug_of};
use crate::guard::{guard_call, guard_logged};
use crate::sync::Arc;

/// A function of the program that the crate calls with each `T` as it happens.
///
/// Clones are the same hook. The function is called under no lock, on the thread that does what it
/// is told of, and that thread waits for it: it must not block. A panic of it is logged. Told of a
/// start, its panic fails the start with [`Panicked`](crate::ErrorKind::Panicked).
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "testing")] {
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kubecache::Hook;
/// use kubecache::clock::Clock;
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
    /// A hook that calls `function`.
    pub fn new(function: impl Fn(&T) + Send + Sync + 'static) -> Self {
        Self::fallible(move |told| {
            function(told);
            Ok(())
        })
    }

    /// A hook that can refuse a start.
    pub(crate) fn fallible(
        function: impl Fn(&T) -> Result<(), Error> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(function))
    }

    /// A hook that passes what it is told on to this one, as `whole` wraps it.
    pub(crate) fn of_part<P: Clone + 'static>(&self, whole: fn(P) -> T) -> Hook<P>
    where
        T: 'static,
    {
        let hook = self.clone();
        Hook::fallible(move |part: &P| hook.0(&whole(part.clone())))
    }

    /// Tells it of something; `port` names it in the log if it panics.
    pub(crate) fn tell(&self, port: &str, told: &T) {
        guard_logged(port, || self.0(told).unwrap_or_default());
    }
}

clone_of!([T] Hook<T>: 0);

impl<T> fmt::Debug for Hook<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook(..)")
    }
}

/// Reads the state of one owner at any time after its start. It does not keep the owner alive.
pub struct Reading<S>(Weak<dyn Fn() -> S + Send + Sync>);

impl<S> Reading<S> {
    /// The state now; `None` once the owner has ended. Takes locks of the owner for a moment; never
    /// waits for the network or for code of the program.
    pub fn state(&self) -> Option<S> {
        self.0.upgrade().map(|look| look())
    }

    /// Whether the owner has ended, so that there is nothing to read any more. Takes no lock.
    pub fn is_over(&self) -> bool {
        self.0.strong_count() == 0
    }
}

clone_of!([S] Reading<S>: 0);

debug_of!([S] Reading<S>, |it| is_over: it.is_over(), ..);

/// What an owner with metrics has: their hook, and the look of its readings, which end with this.
pub(crate) struct Telemetry<T, S> {
    hook: Option<Hook<T>>,
    _look: Arc<dyn Fn() -> S + Send + Sync>,
    port: String,
    clock: Clock,
}

impl<T, S: 'static> Telemetry<T, S> {
    /// Tells `hook` that the owner of this name starts; `look` is what the reading in `started`
    /// does. It must keep nothing alive whose drop waits for a thread.
    ///
    /// # Errors
    ///
    /// `Panicked` if the hook panics, or what it has against the start.
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

    /// Tells the hook, if there is one.
    pub(crate) fn tell(&self, told: impl FnOnce() -> T) {
        if let Some(hook) = &self.hook {
            hook.tell(&self.port, &told());
        }
    }

    /// Tells the hook how long `act` took; without a hook it looks at no clock.
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
