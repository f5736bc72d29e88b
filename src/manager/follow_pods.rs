//! Follows the pods of an informer: a manager references what they name, for as long as a guard
//! lives.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;

use super::object_manager::ObjectManager;
use super::pod_references::ReferencedByPods;
use super::references::Owner;
use crate::clock::{Deadline, IntoDeadline};
use crate::error::{Error, debug_of};
use crate::informer::{Deleted, EventHandler, Registration, SharedInformer};
use crate::object::StoredObject;
use crate::sync::{Arc, Mutex, Rank};

/// Follows the pods of an informer with a manager until it drops. See
/// [`ObjectManager::follow_pods`].
///
/// The drop blocks until the handler's running call has returned, which sends no request. Then it
/// unregisters the pods. Code of the program may drop it in such a call, as in a method of the
/// manager's `Api`. Then the drop returns at once, and the end of the call unregisters the pods.
#[must_use = "its drop unregisters the pods"]
pub struct FollowedPods {
    registration: Registration,
    /// The handler has the same. The last one to drop it unregisters the pods.
    _pods: Arc<dyn Send + Sync>,
}

impl FollowedPods {
    /// Blocks until each pod of the informer's first list is registered, at most until `deadline`.
    ///
    /// # Errors
    ///
    /// As [`Registration::wait_until_synced`].
    pub fn wait_until_synced(&self, deadline: impl IntoDeadline) -> Result<(), Error> {
        self.registration.wait_until_synced(deadline)
    }

    /// Returns the handler that registers the pods, for its queue and its state.
    pub fn registration(&self) -> &Registration {
        &self.registration
    }
}

debug_of!([] FollowedPods, |it| registration: it.registration, ..);

impl Drop for FollowedPods {
    fn drop(&mut self) {
        if let Err(error) = self.registration.remove(Deadline::NEVER) {
            log::warn!("pods are followed until that call returns: {error}");
        }
    }
}

impl<K: ReferencedByPods> ObjectManager<K> {
    /// Registers the pods of `pods` from now on, until the returned guard drops. Returns at once.
    ///
    /// It adds a handler, whose thread calls [`register_pod`](Self::register_pod) for each pod and
    /// each change of one. It calls [`unregister_pod`](Self::unregister_pod) for a pod that is
    /// deleted or has ended for good: its phase is `Succeeded` or `Failed`. A pod that was made
    /// again under its name is another one. Several managers may follow one informer.
    ///
    /// Follow an informer once with a manager, and register none of its pods otherwise: the guard
    /// removes all references of its pods. The guard holds a clone of the manager, and keeps the
    /// pods registered after the informer has stopped. The informer should have the pods of one
    /// node, or as few as you need.
    ///
    /// # Errors
    ///
    /// As [`SharedInformer::add_handler`]: `Stopped` after the informer's stop, `Resources` when
    /// the system refuses a thread.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(feature = "testing")] {
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// use k8s_openapi::api::core::v1::Pod;
    /// use kubecache::informer::{InformerOptions, SharedInformer};
    /// use kubecache::manager::{ManagerOptions, SecretManager};
    /// use kubecache::testing::{FakeSource, objects};
    ///
    /// let (pods, secrets) = (FakeSource::<Pod>::new(), FakeSource::new());
    /// pods.set(objects::pod("shop", "web-0", "node-1", &["db"], &[]));
    /// secrets.set(objects::secret("shop", "db", "", &[("password", "...")]));
    ///
    /// // In a program, an `http::Client` stands in the place of both sources.
    /// let secrets = SecretManager::new(secrets, ManagerOptions::default())?;
    /// let informer = SharedInformer::new(Arc::new(pods), InformerOptions::default());
    /// let followed = secrets.follow_pods(&informer)?;
    /// informer.start()?;
    ///
    /// let soon = Duration::from_secs(60);
    /// followed.wait_until_synced(soon)?;
    /// assert_eq!(secrets.get_by("shop", "db", soon)?.value("password")?, b"...");
    ///
    /// drop(followed);
    /// assert!(secrets.get("shop", "db").is_err(), "no pod references it now");
    /// # }
    /// # Ok::<(), kubecache::Error>(())
    /// ```
    pub fn follow_pods(&self, pods: &SharedInformer<Pod>) -> Result<FollowedPods, Error> {
        let followed = Arc::new(RegisteredPods {
            manager: self.clone(),
            owners: Mutex::ranked(Rank::FOLLOWED_PODS, BTreeSet::new()),
        });
        let handler = PodHandler(Arc::clone(&followed));
        Ok(FollowedPods {
            registration: pods.add_handler(handler)?,
            _pods: followed,
        })
    }
}

/// The pods that one guard has registered.
struct RegisteredPods<K: ReferencedByPods> {
    manager: ObjectManager<K>,
    owners: Mutex<BTreeSet<Owner>>,
}

impl<K: ReferencedByPods> RegisteredPods<K> {
    fn take(&self, pod: &Pod) {
        if has_ended(pod) {
            return self.forget(pod);
        }
        self.manager.register_pod(pod);
        self.owners.lock().insert(Owner::of(pod));
    }

    fn forget(&self, pod: &Pod) {
        self.owners.lock().remove(&Owner::of(pod));
        // Also one that only a snapshot knew.
        self.manager.unregister_pod(pod);
    }
}

impl<K: ReferencedByPods> Drop for RegisteredPods<K> {
    fn drop(&mut self) {
        let owners = std::mem::take(&mut *self.owners.lock());
        for owner in owners {
            self.manager.set_references(&owner, []);
        }
    }
}

/// Whether all containers have ended for good, so that the kubelet unregisters the pod, too.
fn has_ended(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// The handler that registers the pods, on a thread of its own.
struct PodHandler<K: ReferencedByPods>(Arc<RegisteredPods<K>>);

impl<K: ReferencedByPods> EventHandler<Pod> for PodHandler<K> {
    fn on_add(&mut self, pod: &Arc<StoredObject<Pod>>, _is_in_initial_list: bool) {
        self.0.take(pod);
    }

    fn on_update(&mut self, _old: &Arc<StoredObject<Pod>>, new: &Arc<StoredObject<Pod>>) {
        self.0.take(new);
    }

    fn on_delete(&mut self, deleted: Deleted<Pod>) {
        self.0.forget(&deleted.last_known);
    }
}
