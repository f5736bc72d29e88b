//! Several shared informers by type over one client, started and stopped together.

mod any;
mod options;
mod result;
#[cfg(all(test, shuttle))]
mod schedules;
#[cfg(test)]
#[cfg(feature = "testing")]
mod tests;

pub use any::AnyInformer;
pub use options::InformerSetOptions;
pub use result::{SyncOutcome, SyncResult};

use crate::clock::IntoDeadline;
use crate::error::{Error, ErrorKind, debug_of};
use crate::guard::guard;
use crate::informer::{InformerOptions, SharedInformer};
use crate::list_watch::Api;
use crate::object::{Object, Scope};
use crate::store::Lister;
use crate::sync::{Arc, Mutex, Rank};

use any::SetMember;

/// Shared informers by type over one client, made at their first request, started and stopped
/// together.
///
/// Two requests for the same type and [`Scope`] return the same informer. A program asks for its
/// informers, adds its handlers, [`start`](Self::start)s the set and
/// [waits](Self::wait_until_synced) for it. Informers requested later run after the next start.
///
/// An informer whose resource the server refuses, or does not know, holds up no other. The result
/// of the wait names it, and the informer keeps trying.
///
/// The set owns its informers, even those that the program also holds. Dropping it stops all of
/// them and joins all their threads, so the drop blocks while a handler's call runs. A handler that
/// needs the set must hold a `Weak` pointer to it; otherwise neither is ever dropped. The set has
/// no thread of its own.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "testing")] {
/// use std::time::Duration;
///
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kubecache::informer::{InformerSet, InformerSetOptions};
/// use kubecache::testing::{FakeSource, objects};
///
/// let client = FakeSource::<ConfigMap>::new(); // or `http::Client`, for every type
/// client.set(objects::config_map("shop", "settings", "", &[("tax", "7")]));
///
/// let set = InformerSet::new(client, InformerSetOptions::default());
/// let settings = set.lister::<ConfigMap>()?; // makes the informer
/// set.start()?;
///
/// let deadline = Duration::from_secs(60);
/// let result = set.wait_until_synced(deadline);
/// for informer in result.unsynced() {
///     eprintln!("{}: {:?}", informer.name, informer.error); // and go on without it
/// }
/// result.into_result()?; // or insist on all
/// assert!(settings.namespace("shop").get("settings").is_ok());
/// set.shutdown(deadline)?;
/// # }
/// # Ok::<(), kubecache::Error>(())
/// ```
#[doc(alias("SharedInformerFactory", "DynamicSharedInformerFactory"))]
pub struct InformerSet<C> {
    members: Mutex<SetMembers>,
    client: C,
    options: InformerSetOptions,
}

/// An informer enters the list before any thread can start it, and never after the stop. So a stop
/// that first marks the list reaches all of them, even those that another thread is starting.
#[derive(Default)]
struct SetMembers {
    informers: Vec<(Scope, AnyInformer)>,
    stopped: bool,
}

impl<C> InformerSet<C> {
    /// Makes a set without informers. It sends no request and starts no thread.
    ///
    /// `client` must implement [`Api<K>`](Api) for each type that the program asks for, as
    /// [`http::Client`](crate::http::Client) does for all.
    #[doc(alias = "NewSharedInformerFactory")]
    pub fn new(client: C, options: InformerSetOptions) -> Self {
        Self {
            members: Mutex::ranked(Rank::INFORMER_SET, SetMembers::default()),
            client,
            options,
        }
    }

    /// Returns the informer of a type, for the set's own scope and with its options. Makes it if
    /// there is none.
    ///
    /// For a cluster-scoped kind only the scope's selectors count, not its namespace. If an
    /// informer with other options exists for the same type and scope, this returns that one. A new
    /// informer does nothing before the next [`start`](Self::start). Namespaced objects are indexed
    /// by [`NAMESPACE_INDEX`](crate::store::NAMESPACE_INDEX); the program may add more indices at
    /// any time.
    ///
    /// # Errors
    ///
    /// `Stopped` if the informer does not exist and the set has stopped. `Panicked` when the client
    /// panics while it makes the lister-watcher.
    #[doc(alias("InformerFor", "ForResource"))]
    pub fn informer<K: Object>(&self) -> Result<Arc<SharedInformer<K>>, Error>
    where
        C: Api<K>,
    {
        self.informer_in(&self.options.scope_of::<K>())
    }

    /// Returns the informer of a type for the given scope, with the set's options. Makes it if
    /// there is none.
    ///
    /// # Errors
    ///
    /// As [`informer`](Self::informer).
    pub fn informer_in<K: Object>(&self, scope: &Scope) -> Result<Arc<SharedInformer<K>>, Error>
    where
        C: Api<K>,
    {
        Ok(self.make(scope, |options| options)?.0)
    }

    /// Makes an informer of a type and scope, with its own options. `adjust` gets the options that
    /// the set would use, and changes them.
    ///
    /// The first request fixes an informer's options. So if the informer exists already, this fails
    /// and does not call `adjust`, whose indices and transform would have no effect. A name that
    /// `adjust` sets appears in the results of waits. `adjust` runs on the caller's thread, without
    /// a lock.
    ///
    /// # Errors
    ///
    /// `Config` when there is an informer for this type and scope: `informer … exists already`;
    /// `Stopped` after the stop; `Panicked` as for [`informer`](Self::informer).
    #[doc(alias("WithCustomResyncConfig", "WithTransform"))]
    pub fn informer_with<K: Object>(
        &self,
        scope: &Scope,
        adjust: impl FnOnce(InformerOptions<K>) -> InformerOptions<K>,
    ) -> Result<Arc<SharedInformer<K>>, Error>
    where
        C: Api<K>,
    {
        let (informer, is_new) = self.make(scope, adjust)?;
        if is_new {
            return Ok(informer);
        }
        let name = informer.name();
        let text = format!("informer {name} exists already, with the options of its first request");
        Err(Error::new(ErrorKind::Config, text))
    }

    /// Returns a lister over the type's informer, shaped like a generated Go lister. Makes the
    /// informer if there is none.
    ///
    /// The lister is empty until the set has started and the informer has synced.
    ///
    /// # Errors
    ///
    /// As [`informer`](Self::informer).
    pub fn lister<K: Object>(&self) -> Result<Lister<K>, Error>
    where
        C: Api<K>,
    {
        Ok(self.informer::<K>()?.store().lister())
    }

    /// Returns the informer of a type and scope, if the set has one, even after the stop.
    pub fn get<K: Object>(&self, scope: &Scope) -> Option<Arc<SharedInformer<K>>> {
        self.members.lock().find(scope)
    }

    /// Returns the informers of all types, in the order of their making.
    pub fn members(&self) -> Vec<AnyInformer> {
        self.members.lock().informers()
    }

    /// Returns the client with which the informers list and watch.
    pub fn client(&self) -> &C {
        &self.client
    }

    /// Starts the informers that were not started, and returns at once. Call it again after making
    /// more.
    ///
    /// Informers that run already, or were stopped one by one, stay as they are. The informers' own
    /// threads send the requests.
    ///
    /// # Errors
    ///
    /// `Stopped` after the stop. `Resources`, `Config` or `Panicked` with the names of informers
    /// that could not be started; the others run.
    #[doc(alias = "StartWithContext")]
    pub fn start(&self) -> Result<(), Error> {
        let members = {
            let members = self.members.lock();
            if members.stopped {
                let text = "informers were not started because their set has stopped already";
                return Err(Error::new(ErrorKind::Stopped, text));
            }
            members.informers()
        };
        all_of(members.iter().map(|member| {
            let started = member.0.start();
            started.map_err(|error| error.context(member.0.name()))
        }))
    }

    /// Blocks until the first lists of all informers are in their stores, at most until `deadline`.
    ///
    /// It does not wait for an informer that cannot sync soon: the server has refused its resource,
    /// or not known it, for three seconds; it has stopped; or it was not started. During the wait,
    /// all first lists that fail are retried fast. The wait excludes informers requested meanwhile.
    /// A refused informer keeps trying after the wait.
    #[doc(alias("WaitForCacheSync", "WaitForCacheSyncWithContext"))]
    pub fn wait_until_synced(&self, deadline: impl IntoDeadline) -> SyncResult {
        let deadline = deadline.into_deadline(&self.options.reflector.clock);
        let members = self.members();
        let _waiting: Vec<_> = members.iter().map(|member| member.0.waiters()).collect();
        let wait = |member: &AnyInformer| member.0.wait_until_synced(deadline);
        let waited: Vec<_> = members.iter().map(wait).collect();
        let ended = members.iter().zip(waited).map(|(member, waited)| {
            // An informer that was refused at first may have synced during the wait for another.
            SyncOutcome::new(member.name(), member.has_synced(), waited)
        });
        let outcomes = ended.collect();
        SyncResult { outcomes }
    }

    /// Blocks until the present handlers have seen the initial lists of their informers, at most
    /// until `deadline`.
    ///
    /// It does not wait for a handler whose informer does not sync, and reports the informer's
    /// error for it. Nor does it wait for a handler whose own method calls this. The result has the
    /// [`sync_name`](crate::informer::Registration::sync_name) of each handler.
    pub fn wait_until_handlers_synced(&self, deadline: impl IntoDeadline) -> SyncResult {
        let deadline = deadline.into_deadline(&self.options.reflector.clock);
        let informers = self.wait_until_synced(deadline);
        let mut waited = Vec::new();
        for (member, informer) in self.members().iter().zip(informers.outcomes) {
            for registration in member.registrations() {
                // The handler would wait for a list that its informer does not get.
                let end = match &informer.error {
                    Some(error) => Err(error.clone()),
                    None => registration.wait_until_synced(deadline),
                };
                waited.push((registration, end));
            }
        }
        let ended = waited.into_iter().map(|(registration, end)| {
            SyncOutcome::new(registration.sync_name(), registration.has_synced(), end)
        });
        let outcomes = ended.collect();
        SyncResult { outcomes }
    }

    /// Whether the first lists of all informers are in their stores; true for an empty set. Never
    /// blocks.
    pub fn has_synced(&self) -> bool {
        self.members().iter().all(AnyInformer::has_synced)
    }

    /// Whether the server keeps confirming the content of all informers, for a health check. Never
    /// blocks.
    ///
    /// Each informer is judged by [`SharedInformer::health`]. For readiness use
    /// [`has_synced`](Self::has_synced).
    ///
    /// # Errors
    ///
    /// The error of the unhealthy informer. If there are several, an error of the first one's kind,
    /// with a line for each: its name and its last failure, with the server's words.
    pub fn health(&self) -> Result<(), Error> {
        all_of(self.members().iter().map(AnyInformer::health))
    }

    /// Whether the set was stopped. A stopped set stays stopped.
    pub fn is_stopped(&self) -> bool {
        self.members.lock().stopped
    }

    /// Asks all informers to end, and returns at once. Any thread may call it, a handler's own
    /// included.
    ///
    /// No informer is made or started after this. Waits for them end with an error; their stores
    /// stay readable.
    pub fn stop(&self) {
        drop(self.stop_all());
    }

    /// Stops all informers, then blocks until all their threads have ended, at most until
    /// `deadline`.
    ///
    /// It tells all informers to stop before it waits for the first. It waits for calls of
    /// handlers, transforms and index functions. It does not wait for the handler whose thread
    /// calls it. Nor does it wait for one that waits, directly or through others, for the calling
    /// thread to end.
    ///
    /// # Errors
    ///
    /// `Timeout` with a line for each informer that has not ended, and its late handlers. They end
    /// when their calls return.
    pub fn shutdown(&self, deadline: impl IntoDeadline) -> Result<(), Error> {
        let deadline = deadline.into_deadline(&self.options.reflector.clock);
        let members = self.stop_all();
        let late = members.iter().filter_map(|member| {
            let error = member.0.shutdown(deadline).err()?;
            Some(format!("{}: {error}", member.name()))
        });
        let late: Vec<String> = late.collect();
        if late.is_empty() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Timeout, late.join("\n")))
    }

    /// Marks the list, so that no further informer enters it, then asks all to end.
    fn stop_all(&self) -> Vec<AnyInformer> {
        let members = {
            let mut members = self.members.lock();
            members.stopped = true;
            members.informers()
        };
        for member in &members {
            member.0.stop();
        }
        members
    }

    /// Makes an informer, or returns the existing one, which another thread may have made
    /// meanwhile. Returns whether it is new.
    fn make<K: Object>(
        &self,
        scope: &Scope,
        adjust: impl FnOnce(InformerOptions<K>) -> InformerOptions<K>,
    ) -> Result<(Arc<SharedInformer<K>>, bool), Error>
    where
        C: Api<K>,
    {
        if let Some(known) = self.get(scope) {
            return Ok((known, false));
        }
        let name = self.name::<K>(scope);
        let number = {
            let members = self.members.lock();
            members.admits(&name)?;
            u64::try_from(members.informers.len()).unwrap_or_default()
        };
        let options = adjust(self.options.of_informer(name.clone(), number));
        let port = format!("the lister-watcher of informer {name}");
        let source = guard(port, || self.client.lister_watcher(scope.clone()))?;
        let informer = Arc::new(SharedInformer::new(source, options));
        let known = self.enter(scope, &informer)?;
        let is_new = known.is_none();
        Ok((known.unwrap_or(informer), is_new))
    }

    /// Takes an informer in. Returns the existing one of its type and scope instead, if there is
    /// one.
    fn enter<M: SetMember>(
        &self,
        scope: &Scope,
        informer: &Arc<M>,
    ) -> Result<Option<Arc<M>>, Error> {
        let mut members = self.members.lock();
        if let Some(known) = members.find(scope) {
            return Ok(Some(known));
        }
        members.admits(informer.name())?;
        let informer = AnyInformer(Arc::<M>::clone(informer));
        members.informers.push((scope.clone(), informer));
        Ok(None)
    }

    /// The plural of the kind, plus the scope if it is not the set's own, or if another informer
    /// has that name.
    fn name<K: Object>(&self, scope: &Scope) -> String {
        let mut name = K::resource().to_string();
        let is_taken = |name: &str| self.members().iter().any(|known| known.name() == name);
        if scope != &self.options.scope_of::<K>() {
            let mut words = vec![
                scope.namespace_name().unwrap_or_default(),
                scope.field_selector().as_str(),
                scope.label_selector().as_str(),
            ];
            words.retain(|word| !word.is_empty());
            if words.is_empty() {
                words.push("all");
            }
            name = format!("{name} ({})", words.join(" "));
        }
        if !is_taken(&name) {
            return name;
        }
        name = format!("{name} {}", K::resource().version());
        let numbered = (2_u32..).map(|number| format!("{name} {number}"));
        let mut names = std::iter::once(name.clone()).chain(numbered);
        names.find(|name| !is_taken(name)).unwrap_or(name)
    }
}

impl SetMembers {
    fn informers(&self) -> Vec<AnyInformer> {
        let informers = self.informers.iter();
        informers.map(|(_, informer)| informer.clone()).collect()
    }

    fn find<M: SetMember>(&self, scope: &Scope) -> Option<Arc<M>> {
        let mut of_scope = self.informers.iter().filter(|(of, _)| of == scope);
        of_scope.find_map(|(_, informer)| informer.of_type())
    }

    /// # Errors
    ///
    /// `Stopped` after the stop.
    fn admits(&self, name: &str) -> Result<(), Error> {
        if !self.stopped {
            return Ok(());
        }
        let text = format!("informer {name} was not made because its set has stopped already");
        Err(Error::new(ErrorKind::Stopped, text))
    }
}

/// Merges all errors into one, with a line for each.
fn all_of(results: impl Iterator<Item = Result<(), Error>>) -> Result<(), Error> {
    let failures: Vec<Error> = results.filter_map(Result::err).collect();
    match failures.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        [first, ..] => {
            let texts: Vec<String> = failures.iter().map(ToString::to_string).collect();
            let all = Error::new(first.kind(), texts.join("\n"));
            Err(all.clone().with_last(all))
        }
    }
}

impl<C> Drop for InformerSet<C> {
    fn drop(&mut self) {
        for member in self.stop_all() {
            member.0.close();
        }
    }
}

debug_of!([C] InformerSet<C>, |it| informers: it.members(), stopped: it.is_stopped(), ..);
