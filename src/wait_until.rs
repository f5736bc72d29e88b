//! A client's wait until one object has the state that the caller wants.

use crate::clock::IntoDeadline;
use crate::error::Error;
use crate::http::Client;
use crate::object::{Object, ObjectKey, Scope, StoredObject};
use crate::reflector::ReflectorOptions;
use crate::store::{Indexers, Store};
use crate::sync::Arc;

impl Client {
    /// Blocks until `predicate` holds for the object with `key`, at most until `deadline`. Returns
    /// the object for which it held; `None` for its absence.
    ///
    /// A reflector lists the object by its name with quorum, and watches it from there. Its thread
    /// ends with the call. It retries failures after pauses. The method calls `predicate` on the
    /// caller's thread, as [`Store::wait_until`] does: first with the present state, where `None`
    /// stands for absence. The objects have the same fields as from a
    /// [`lister_watcher`](Self::lister_watcher).
    ///
    /// # Errors
    ///
    /// [`Timeout`](crate::ErrorKind::Timeout) at the deadline names the last state: absent, or its
    /// version and how long ago the wait saw it. [`NotSynced`](crate::ErrorKind::NotSynced) if the
    /// server has not answered, with the last failure. `Forbidden` or `NotFound` if the server
    /// refuses the resource or does not know it. `Panicked` if `predicate` panics.
    /// [`Config`](crate::ErrorKind::Config) if no object can have `key`, as for [`get`](Self::get);
    /// then nothing is sent.
    ///
    /// # Examples
    ///
    /// `kubectl rollout status deployment/web`:
    ///
    /// ```
    /// # #[cfg(feature = "testing")] {
    /// # use kubecache::http::{Client, ClientOptions, Config};
    /// # use kubecache::object::ObjectKey;
    /// # use kubecache::testing::{ApiServer, objects};
    /// # let server = ApiServer::new()?;
    /// # let client = Client::new(&Config::for_server(&server.url())?, ClientOptions::default())?;
    /// # let soon = std::time::Duration::from_secs(60);
    /// use k8s_openapi::api::apps::v1::Deployment;
    ///
    /// # let web = |available: &str| serde_json::json!({
    /// #     "apiVersion": "apps/v1", "kind": "Deployment",
    /// #     "metadata": { "namespace": "shop", "name": "web" },
    /// #     "spec": { "replicas": 2, "selector": {}, "template": {} },
    /// #     "status": { "observedGeneration": 9, "updatedReplicas": 2, "replicas": 2,
    /// #         "availableReplicas": available.parse::<i32>().unwrap() },
    /// # });
    /// # server.apply_value(&web("1"))?;
    /// # std::thread::scope(|scope| {
    /// # let writer = scope.spawn(|| {
    /// #     server.wait_for_watches(soon, |open| open == 1);
    /// #     server.apply_value(&web("2"))?;
    /// #     Ok::<_, kubecache::Error>(())
    /// # });
    /// let is_rolled_out = |web: &Deployment| {
    ///     let (spec, status) = (&web.spec, web.status.as_ref()?);
    ///     let wanted = Some(spec.replicas.unwrap_or(1));
    ///     let is_seen = status.observed_generation >= web.metadata.generation;
    ///     let is_new = status.updated_replicas == wanted && status.replicas == wanted;
    ///     Some(is_seen && is_new && status.available_replicas == wanted)
    /// };
    /// let is_done = |web: Option<&_>| web.and_then(is_rolled_out) == Some(true);
    /// client.wait_until(&ObjectKey::new("shop", "web"), is_done, soon)?;
    /// # writer.join().unwrap()
    /// # })?;
    /// # }
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// `kubectl wait --for=condition=Ready pod/web-0`:
    ///
    /// ```
    /// # #[cfg(feature = "testing")] {
    /// # use kubecache::http::{Client, ClientOptions, Config};
    /// # use kubecache::object::ObjectKey;
    /// # use kubecache::testing::{ApiServer, objects};
    /// # let server = ApiServer::new()?;
    /// # let client = Client::new(&Config::for_server(&server.url())?, ClientOptions::default())?;
    /// # let soon = std::time::Duration::from_secs(60);
    /// use k8s_openapi::api::core::v1::Pod;
    ///
    /// # let pod = |ready: &str| serde_json::json!({
    /// #     "apiVersion": "v1", "kind": "Pod",
    /// #     "metadata": { "namespace": "shop", "name": "web-0" },
    /// #     "status": { "conditions": [{ "type": "Ready", "status": ready }] },
    /// # });
    /// # server.apply_value(&pod("False"))?;
    /// # std::thread::scope(|scope| {
    /// # let writer = scope.spawn(|| {
    /// #     server.wait_for_watches(soon, |open| open == 1);
    /// #     server.apply_value(&pod("True"))?;
    /// #     Ok::<_, kubecache::Error>(())
    /// # });
    /// let is_ready = |pod: &Pod| {
    ///     let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
    ///     Some(conditions.find(|condition| condition.type_ == "Ready")?.status == "True")
    /// };
    /// let is_done = |pod: Option<&_>| pod.and_then(is_ready) == Some(true);
    /// let pod = client.wait_until(&ObjectKey::new("shop", "web-0"), is_done, soon)?;
    /// assert!(pod.is_some());
    /// # writer.join().unwrap()
    /// # })?;
    /// # }
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// `kubectl wait --for=delete secret/db`:
    ///
    /// ```
    /// # #[cfg(feature = "testing")] {
    /// # use kubecache::http::{Client, ClientOptions, Config};
    /// # use kubecache::object::ObjectKey;
    /// # use kubecache::testing::{ApiServer, objects};
    /// # let server = ApiServer::new()?;
    /// # let client = Client::new(&Config::for_server(&server.url())?, ClientOptions::default())?;
    /// # let soon = std::time::Duration::from_secs(60);
    /// use k8s_openapi::api::core::v1::Secret;
    ///
    /// # server.apply(&objects::secret("shop", "db", "", &[]))?;
    /// # std::thread::scope(|scope| {
    /// # let writer = scope.spawn(|| {
    /// #     server.wait_for_watches(soon, |open| open == 1);
    /// #     server.delete::<Secret>("shop", "db")?;
    /// #     Ok::<_, kubecache::Error>(())
    /// # });
    /// let key = ObjectKey::new("shop", "db");
    /// client.wait_until::<Secret>(&key, |secret| secret.is_none(), soon)?;
    /// # writer.join().unwrap()
    /// # })?;
    /// # }
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_until<K: Object>(
        &self,
        key: &ObjectKey,
        predicate: impl FnMut(Option<&K>) -> bool,
        deadline: impl IntoDeadline,
    ) -> Result<Option<Arc<StoredObject<K>>>, Error> {
        let name = format!("wait for {} {key}", self.resource::<K>().singular());
        let options = ReflectorOptions::default();
        let source = self.quorum_lister_watcher::<K>(Scope::object(key));
        let (store, _reflector) = Store::spawn(name, source, Indexers::new(), options)?;
        store.wait_until(key, predicate, deadline)
    }
}

#[cfg(feature = "testing")]
#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::api::core::v1::{ConfigMap, Namespace};

    use super::*;
    use crate::clock::{Clock, Deadline};
    use crate::error::ErrorKind;
    use crate::http::{ClientOptions, Config};
    use crate::testing::{ApiServer, objects};
    use crate::{Compact, Metadata};

    fn client_of(server: &ApiServer) -> Client {
        let config = Config::for_server(&server.url()).unwrap();
        Client::new(&config, ClientOptions::default()).unwrap()
    }

    fn soon() -> Deadline {
        Clock::system().after(Duration::from_secs(60))
    }

    fn settings(server: &ApiServer, step: &str) {
        let object = objects::config_map("shop", "settings", "", &[("step", step)]);
        server.apply(&object).unwrap();
    }

    /// The watch is cut, its version expires, and the object is deleted and created again
    /// meanwhile.
    #[test]
    fn a_wait_survives_what_happens_to_its_watch() {
        let server = ApiServer::new().unwrap();
        settings(&server, "0");
        let client = client_of(&server);
        let key = ObjectKey::new("shop", "settings");
        let mut step = 0;
        let found = client.wait_until::<ConfigMap>(
            &key,
            |object| {
                step += 1;
                server.wait_for_watches(soon(), |open| open == 1);
                match step {
                    1 => {
                        server.cut_watches();
                        settings(&server, "1");
                    }
                    2 => {
                        server.expire_watches();
                        server.delete::<ConfigMap>("shop", "settings").unwrap();
                    }
                    3 => settings(&server, "done"),
                    _ => {}
                }
                object.is_some_and(|object| object.data.as_ref().unwrap()["step"] == "done")
            },
            soon(),
        );
        assert_eq!(found.unwrap().unwrap().key(), key);
    }

    #[test]
    fn representations_and_kinds_without_a_namespace_are_waited_for_too() {
        let server = ApiServer::new().unwrap();
        settings(&server, "0");
        let client = client_of(&server);
        let key = ObjectKey::new("shop", "settings");
        let is_there = client.wait_until::<Compact<ConfigMap>>(&key, |it| it.is_some(), soon());
        assert!(is_there.unwrap().is_some());
        let is_there = client.wait_until::<Metadata<ConfigMap>>(&key, |it| it.is_some(), soon());
        assert!(is_there.unwrap().is_some());
        let mut space = Namespace::default();
        space.metadata.name = Some("attic".to_owned());
        server.apply(&space).unwrap();
        let key = ObjectKey::new("", "attic");
        let is_there = client.wait_until::<Namespace>(&key, |it| it.is_some(), soon());
        assert!(is_there.unwrap().is_some());
    }

    #[test]
    fn a_server_that_is_not_there_is_named_at_the_deadline() {
        let config = Config::for_server("http://127.0.0.1:1").unwrap();
        let client = Client::new(&config, ClientOptions::default()).unwrap();
        let key = ObjectKey::new("shop", "settings");
        let deadline = Clock::system().after(Duration::from_millis(300));
        let error = client
            .wait_until::<ConfigMap>(&key, |_| true, deadline)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotSynced);
        let text = error.to_string();
        assert!(
            text.starts_with("waiting for configmap shop/settings: "),
            "{text}"
        );
        assert!(text.contains("127.0.0.1:1"), "{text}");
    }
}
