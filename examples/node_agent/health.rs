//! The checks of the health probes: whether the server keeps confirming what is known.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kubecache::Error;
use kubecache::endpoints::{Endpoints, Probe};
use kubecache::reflector::Reflector;

use crate::credentials::Credentials;
use crate::files::Files;
use crate::managers::Managers;
use crate::selections::Followed;
use crate::snapshot::Keeper;

/// What is looked at when a probe asks. Looking never waits.
#[derive(Clone)]
pub(crate) struct Health {
    /// Where pods are followed.
    pub(crate) pods: Option<Arc<Reflector>>,
    /// Where objects have a time to live.
    pub(crate) own_node: Option<Arc<Reflector>>,
    pub(crate) managers: Managers,
    /// Where objects are written.
    pub(crate) files: Option<Arc<Files>>,
    /// Where units of systemd get values.
    pub(crate) credentials: Option<Arc<Credentials>>,
    /// What selects objects by their labels.
    pub(crate) selections: Followed,
    /// Whether everything was answered once; that stays so.
    pub(crate) synced: Flag,
    /// Where there is a snapshot.
    #[cfg_attr(not(feature = "metrics"), expect(dead_code, reason = "metrics"))]
    pub(crate) keeper: Option<Arc<Keeper>>,
    /// Where there is a snapshot: whether something of it waits for the server's word.
    pub(crate) restored: Option<Flag>,
}

/// What the agent's loop tells the probes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flag(Arc<AtomicBool>);

impl Flag {
    pub(crate) fn set(&self, value: bool) {
        self.0.store(value, Ordering::Relaxed);
    }

    fn check(&self, wanted: bool, otherwise: &'static str) -> Result<(), &'static str> {
        let is_wanted = self.0.load(Ordering::Relaxed) == wanted;
        is_wanted.then_some(()).ok_or(otherwise)
    }
}

impl Health {
    /// Adds all checks to the probes. They name no object and repeat no word of the server: whoever
    /// reaches the port can read it.
    pub(crate) fn add_to(&self, probes: &Endpoints) -> Result<(), Error> {
        let fresh = Probe::Health;
        if let Some(pods) = self.pods.clone() {
            probes.add_check(fresh, "pods", move || followed(&pods))?;
        }
        if let Some(own) = self.own_node.clone() {
            probes.add_check(fresh, "node", move || followed(&own))?;
        }
        let managers = self.managers.clone();
        probes.add_check(fresh, "secrets", move || managers.health().0)?;
        let managers = self.managers.clone();
        probes.add_check(fresh, "configmaps", move || managers.health().1)?;
        self.add_declared(probes, "selections");
        if let Some(restored) = self.restored.clone() {
            let waits = "the server has not confirmed all that the snapshot brought";
            probes.add_check(fresh, "snapshot", move || restored.check(false, waits))?;
        }
        if let Some(files) = self.files.clone() {
            probes.add_check(fresh, "files", move || files.health())?;
        }
        self.add_declared(probes, "hook");
        if let Some(credentials) = self.credentials.clone() {
            probes.add_check(fresh, "credentials", move || credentials.health())?;
        }
        let (synced, waits) = (
            self.synced.clone(),
            "not every object has had its first answer",
        );
        probes.add_check(Probe::Ready, "synced", move || synced.check(true, waits))
    }

    /// Adds and removes the checks that come and go with the configuration.
    pub(crate) fn follow_configuration(&self, probes: &Endpoints) {
        for name in ["selections", "hook"] {
            self.add_declared(probes, name);
        }
    }

    fn add_declared(&self, probes: &Endpoints, name: &'static str) {
        let health = self.clone();
        if self.declared(name).is_none() {
            probes.remove_check(name);
        } else {
            let check = move || health.declared(name).unwrap_or(Ok(()));
            // The error of a check that is there already.
            drop(probes.add_check(Probe::Health, name, check));
        }
    }

    /// The verdict of a check of that name; `None` where nothing is declared for it.
    fn declared(&self, name: &str) -> Option<Result<(), Error>> {
        if name == "hook" {
            return self.files.as_ref()?.hook_health();
        }
        let selections = self.selections.lock().clone();
        let verdicts = selections.iter().map(|one| followed(one));
        verdicts.reduce(Result::and)
    }
}

/// A thread that ended before the agent, which only a panic leads to, owes nothing to the library;
/// to the agent it does.
fn followed(reflector: &Reflector) -> Result<(), Error> {
    if reflector.is_finished() {
        return Err(Error::stopped("the thread that follows the server"));
    }
    reflector.health()
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;

    /// B14 asks the owner of a reflector whether its end is well: here it is not.
    #[test]
    fn b14_a_thread_that_ended_while_the_agent_runs_fails_its_check() {
        use kubecache::store::{Indexers, Store};
        use kubecache::testing::FakeSource;

        let source = Arc::new(FakeSource::<k8s_openapi::api::core::v1::Node>::new());
        let options = kubecache::reflector::ReflectorOptions::default();
        let (_store, reflector) = Store::spawn("node", source, Indexers::new(), options).unwrap();
        assert!(followed(&reflector).is_ok());
        reflector.stop();
        while !reflector.is_finished() {
            std::thread::yield_now();
        }
        let why = "the thread that follows the server: stopped";
        assert_eq!(followed(&reflector).unwrap_err().to_string(), why);
    }
}
