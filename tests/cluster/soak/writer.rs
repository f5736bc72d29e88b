//! A writer that changes objects of all sorts at random, and notes each write with a fence.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kubecache::Error;
use kubecache::clock::Clock;
use kubecache::fence::{FencedCache, WriteFence};
use kubecache::http::{Client, Patch, WriteOptions};
use kubecache::manager::Owner;
use kubecache::object::{Object, ObjectKey, ResourceVersion};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{NAMESPACE, NODE, Random};
use crate::cluster::churn::state;

/// How long a write may take. What it did after that is not known.
const WRITE_LIMIT: Duration = Duration::from_secs(5);

/// Names of `ConfigMaps` and of Secrets, some of which no object has.
pub(super) const NAMES: u64 = 24;

const PODS: u64 = 12;

/// The bytes of a big object.
const BIG: usize = 200_000;

/// What a fence waits for, of one kind.
pub(super) type Fenced = Box<dyn Fn(&ObjectKey) -> Vec<FencedCache> + Send + Sync>;

pub(super) struct Writer {
    pub(super) client: Client,
    pub(super) random: Random,
    pub(super) fence: Arc<WriteFence>,
    /// By the kind's name.
    pub(super) fenced: BTreeMap<&'static str, Fenced>,
    /// What the server answered last, by kind and name: UID and version, none after a deletion.
    /// Only where nothing may have followed whose answer did not come.
    pub(super) answers: BTreeMap<(String, String), (String, Option<u64>)>,
    pub(super) writes: u64,
    pub(super) failures: u64,
}

/// Owners by which the writer notes: one for each half of the names.
pub(super) fn owner(name: &str) -> Owner {
    let half = if name.ends_with(['0', '2', '4', '6', '8']) {
        "even"
    } else {
        "odd"
    };
    Owner::new("Soak", ObjectKey::new(NAMESPACE, half))
}

pub(super) fn name_of(prefix: &str, number: u64) -> String {
    format!("{prefix}-{number}")
}

fn is_immutable(number: u64) -> bool {
    number.is_multiple_of(4)
}

fn of<K: DeserializeOwned>(json: Value) -> K {
    serde_json::from_value(json).unwrap()
}

/// The server had the object in another state than the writer knew: no failure.
fn is_expected(error: &Error) -> bool {
    error
        .status()
        .is_some_and(|status| matches!(status.code(), 404 | 409 | 422))
}

impl Writer {
    /// One change, or several of one object.
    pub(super) fn write(&mut self) {
        let done = match self.random.below(10) {
            0..=3 => self.change_map(),
            4..=6 => self.change_secret(),
            _ => self.change_pod(),
        };
        self.writes += 1;
        if done.is_err_and(|error| !is_expected(&error)) {
            self.failures += 1;
        }
    }

    fn change_map(&mut self) -> Result<(), Error> {
        let name = name_of("map", self.random.below(NAMES));
        let length = if self.random.below(20) == 0 { BIG } else { 20 };
        let value = self.text(length);
        let data = json!({"data": {"value": value, "group": self.random.below(5).to_string()}});
        self.change::<ConfigMap>(&name, data)
    }

    fn change_secret(&mut self) -> Result<(), Error> {
        let number = self.random.below(NAMES);
        let name = name_of("secret", number);
        let value = self.text(20);
        let data = json!({"stringData": {"value": value}, "immutable": is_immutable(number)});
        self.change::<Secret>(&name, data)
    }

    fn text(&mut self, length: usize) -> String {
        let number = self.random.below(u64::MAX);
        format!("canary-{number:x} ").repeat(length.div_ceil(24))
    }

    /// Creates, changes, deletes, or makes again.
    fn change<K>(&mut self, name: &str, data: Value) -> Result<(), Error>
    where
        K: Object + Serialize,
    {
        match self.random.below(8) {
            0 => self.delete::<K>(name),
            1 => {
                self.delete::<K>(name)?;
                self.create::<K>(name, data)
            }
            _ => match self.patch::<K>(name, data.clone(), "") {
                Err(error) if error.is_not_found() => self.create::<K>(name, data),
                // An immutable one is replaced.
                Err(error) if error.status().is_some_and(|status| status.code() == 422) => {
                    self.delete::<K>(name)?;
                    self.create::<K>(name, data)
                }
                patched => patched,
            },
        }
    }

    fn change_pod(&mut self) -> Result<(), Error> {
        let name = name_of("pod", self.random.below(PODS));
        match self.random.below(8) {
            0 | 1 => self.delete::<Pod>(&name),
            2 => {
                self.delete::<Pod>(&name)?;
                let pod = self.pod();
                self.create::<Pod>(&name, pod)
            }
            3 => self.patch::<Pod>(&name, json!({"status": {"phase": "Succeeded"}}), "status"),
            4 => {
                let label = self.random.below(1000).to_string();
                self.patch::<Pod>(&name, json!({"metadata": {"labels": {"n": label}}}), "")
            }
            _ => {
                let pod = self.pod();
                self.create::<Pod>(&name, pod)
            }
        }
    }

    /// It references two of each kind.
    fn pod(&mut self) -> Value {
        let mut named = |prefix: &str| name_of(prefix, self.random.below(NAMES));
        let secrets = [named("secret"), named("secret")];
        let maps = [named("map"), named("map")];
        let volume = |field: &str, key: &str, name: &str| {
            let named = format!("{field}-{name}").to_lowercase();
            json!({"name": named, field: {key: name}})
        };
        let mut volumes = vec![volume("secret", "secretName", &secrets[0])];
        volumes.push(volume("configMap", "name", &maps[0]));
        let env = json!([{"secretRef": {"name": secrets[1]}}, {"configMapRef": {"name": maps[1]}}]);
        json!({"spec": {"nodeName": NODE, "volumes": volumes,
            "containers": [{"name": "c", "image": "none", "envFrom": env}]}})
    }

    /// References each immutable object by a new pod. One that was made again counts for a manager
    /// from then on (B7).
    pub(super) fn refer_anew(&mut self) -> Result<(), Error> {
        let immutable = (0..NAMES).filter(|number| is_immutable(*number));
        let each =
            immutable.map(|number| json!({"secretRef": {"name": name_of("secret", number)}}));
        let container = json!({"name": "c", "image": "none", "envFrom": each.collect::<Vec<_>>()});
        let pod = json!({"spec": {"nodeName": NODE, "containers": [container]}});
        self.delete::<Pod>("pod-anew")?;
        self.create::<Pod>("pod-anew", pod)
    }

    fn create<K: Object + Serialize>(
        &mut self,
        name: &str,
        mut object: Value,
    ) -> Result<(), Error> {
        object["metadata"] = json!({"name": name, "namespace": NAMESPACE});
        let whole = WriteOptions::default();
        let created = self.client.create::<K>(&of(object), &whole, WRITE_LIMIT);
        let created = self.known::<K, _>(name, created)?;
        self.note::<K>(name, Some((created.uid().to_owned(), state(&created).1)));
        Ok(())
    }

    fn patch<K: Object>(&mut self, name: &str, merge: Value, part: &str) -> Result<(), Error> {
        let mut options = WriteOptions::default();
        if !part.is_empty() {
            options = options.subresource(part);
        }
        let (key, merge) = (ObjectKey::new(NAMESPACE, name), Patch::Merge(merge));
        let patched = self.client.patch::<K>(&key, &merge, &options, WRITE_LIMIT);
        let patched = self.known::<K, _>(name, patched)?;
        self.note::<K>(name, Some((patched.uid().to_owned(), state(&patched).1)));
        Ok(())
    }

    fn delete<K: Object>(&mut self, name: &str) -> Result<(), Error> {
        let (key, at_once) = (
            ObjectKey::new(NAMESPACE, name),
            json!({"gracePeriodSeconds": 0}),
        );
        let whole = WriteOptions::default();
        let deleted = self.client.delete::<K>(&key, &at_once, &whole, WRITE_LIMIT);
        match self.known::<K, _>(name, deleted) {
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
            Ok(()) => {
                self.note::<K>(name, None);
                Ok(())
            }
        }
    }

    /// Forgets what an object was after a failure that does not say what it is now.
    fn known<K: Object, T>(&mut self, name: &str, answer: Result<T, Error>) -> Result<T, Error> {
        answer.inspect_err(|error| {
            let code = error.status().map(kubecache::object::Status::code);
            if !matches!(code, Some(409 | 422)) {
                let kind = K::resource().kind().to_owned();
                self.answers.remove(&(kind, name.to_owned()));
            }
        })
    }

    /// Notes what the server answered: a UID and a version, or none for a deletion.
    fn note<K: Object>(&mut self, name: &str, answer: Option<(String, u64)>) {
        let resource = K::resource();
        let kind = resource.kind();
        let key = ObjectKey::new(NAMESPACE, name);
        let caches = self.fenced.get(kind).map_or(vec![], |fenced| fenced(&key));
        let of = (kind.to_owned(), name.to_owned());
        if let Some((uid, version)) = answer {
            let numbered: ResourceVersion = version.to_string().as_str().into();
            for cache in caches {
                self.fence.wrote(&owner(name), cache, &numbered).unwrap();
            }
            self.answers.insert(of, (uid, Some(version)));
        } else if let Some((uid, version)) = self.answers.get_mut(&of) {
            *version = None;
            for cache in caches {
                self.fence.deleted(&owner(name), cache, &key, uid);
            }
        }
    }

    /// Blocks until the caches have seen what was written, or the limit has passed.
    pub(super) fn wait_until_seen(fence: &WriteFence, limit: Duration) -> Result<(), Error> {
        let clock = Clock::system();
        let deadline = clock.after(limit);
        for half in ["0", "1"] {
            while let Err(error) = fence.wait_until_seen(&owner(half), deadline) {
                // A cache that was refused a moment ago says so at once.
                if clock.has_passed(deadline) {
                    return Err(error);
                }
                super::pause(Duration::from_millis(100));
            }
        }
        Ok(())
    }
}
