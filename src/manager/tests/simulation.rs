//! Anything in any order, from a seed: what must hold after each step of pods, lists, events,
//! rounds, crashes and shortages.

use std::collections::{BTreeMap, BTreeSet};

use super::fake::{ROUND, commit, immutable, pod, secret, with_uid};
use super::stage::{ReadApart, Stage};
use crate::error::{Error, ErrorKind};
use crate::list_watch::ObjectEvent;
use crate::manager::{Cached, ObjectState};
use crate::object::{ObjectKey, StoredObject};
use crate::reflector::Sink as _;
use crate::sync::Arc;
use crate::tests::dice::Dice;
use crate::tests::until::until;
use k8s_openapi::api::core::v1::Secret;

/// Far more than a thread needs to go on that another one has overtaken.
const LOOKS_MAX: u32 = 1_000_000;

const STEPS: usize = 600;

/// The events around the manager, and the knowledge of the model, which the manager must not
/// contradict.
struct SimulationModel {
    stage: Stage,
    dice: Dice,
    /// The server's version; its answers are as old as that.
    version: u64,
    /// How often each object was made again.
    made: BTreeMap<String, u64>,
    pods: BTreeMap<String, BTreeSet<String>>,
    /// The newest version read of each object since it is referenced.
    read: BTreeMap<String, u64>,
    /// The object that the server has under each name, where the model knows it.
    truth: BTreeMap<String, Option<Secret>>,
    /// Reads past the watch that are under way.
    asked: Vec<Asked>,
}

/// A read past the watch, and what the server has said to it already.
struct Asked {
    name: String,
    read: ReadApart,
    answer: Option<Secret>,
}

impl SimulationModel {
    fn new(dice: Dice) -> Self {
        Self {
            stage: Stage::watching()
                .options(|options| options.idle_max(ROUND).watches_max(4))
                .by_hand(),
            dice,
            version: 10,
            made: BTreeMap::new(),
            pods: BTreeMap::new(),
            read: BTreeMap::new(),
            truth: BTreeMap::new(),
            asked: Vec::new(),
        }
    }

    fn name(&mut self) -> String {
        format!("s{}", self.dice.roll(6))
    }

    fn next_version(&mut self) -> String {
        self.version = self.version.saturating_add(1);
        self.version.to_string()
    }

    fn is_referenced(&self, name: &str) -> bool {
        self.pods.values().any(|names| names.contains(name))
    }

    fn step(&mut self) {
        match self.dice.roll(20) {
            0..3 => self.register(),
            3..5 => self.unregister(),
            5..8 => self.list(),
            8..10 => self.event(),
            10 => self.old_news(),
            11 => self.stage.round(),
            12 => self.crash(),
            13 => {
                let short = self.dice.roll(2) == 0;
                let error = Error::new(ErrorKind::Resources, "no threads");
                self.stage.runs.refuse(short.then_some(error));
            }
            14..16 => self.ask(),
            16..18 => self.answer(),
            _ => self.get(),
        }
    }

    fn register(&mut self) {
        let name = format!("p{}", self.dice.roll(4));
        let names: BTreeSet<String> = (0..self.dice.roll(4)).map(|_| self.name()).collect();
        let borrowed: Vec<&str> = names.iter().map(String::as_str).collect();
        self.stage.manager.register_pod(&pod(&name, &borrowed));
        self.pods.insert(name, names);
        self.forget_unreferenced();
    }

    fn unregister(&mut self) {
        let name = format!("p{}", self.dice.roll(4));
        self.stage.manager.unregister_pod(&pod(&name, &[]));
        self.pods.remove(&name);
        self.forget_unreferenced();
    }

    fn forget_unreferenced(&mut self) {
        let read = std::mem::take(&mut self.read);
        let kept = read
            .into_iter()
            .filter(|(name, _)| self.is_referenced(name));
        self.read = kept.collect();
        let asked = std::mem::take(&mut self.asked);
        // No reader waits for answers about released items.
        let kept = asked
            .into_iter()
            .filter(|asked| self.is_referenced(&asked.name));
        self.asked = kept.collect();
    }

    /// A fresh read leaves, or one of a state not older than the server's version. The server
    /// answers at once; the answer is on its way.
    fn ask(&mut self) {
        let name = self.name();
        let fresh = self.dice.roll(2) == 0;
        let version = if fresh {
            String::new()
        } else {
            self.version.to_string()
        };
        let Some(read) = self.stage.begin(&name, &version) else {
            return;
        };
        if let Some(truth) = self.truth.get(&name) {
            let answer = truth.clone();
            self.asked.push(Asked { name, read, answer });
        }
    }

    /// An answer arrives. Without a watch, the object may have changed before the server answered.
    fn answer(&mut self) {
        if self.asked.is_empty() {
            return;
        }
        let among = u64::try_from(self.asked.len()).unwrap();
        let index = usize::try_from(self.dice.roll(among)).unwrap();
        let Asked {
            name,
            read,
            mut answer,
        } = self.asked.swap_remove(index);
        let unwatched = self.stage.runs.at_work_index(&name).is_none();
        if unwatched && self.dice.roll(2) == 0 {
            answer = (self.dice.roll(3) > 0).then(|| self.object(&name));
            if answer.is_none() {
                self.make_again(&name);
            }
            self.truth.insert(name.clone(), answer.clone());
        }
        let answer = answer.ok_or_else(|| Error::not_found("secret", &name));
        match self.stage.complete(&read, answer) {
            Ok(cached) => self.note_read(&name, &cached),
            Err(error) => assert!(error.is_not_found(), "{name}: {error}"),
        }
    }

    fn note_read(&mut self, name: &str, cached: &Cached<Secret>) {
        let version = cached.metadata.resource_version.as_deref().unwrap();
        let version: u64 = version.parse().unwrap();
        let before = self.read.insert(name.to_owned(), version);
        let before = before.unwrap_or_default();
        assert!(version >= before, "{name}: {version} after {before}");
    }

    /// A deleted object comes back under another uid.
    fn make_again(&mut self, name: &str) {
        let made = self.made.entry(name.to_owned()).or_default();
        *made = made.saturating_add(1);
    }

    /// The object as the server has it, sometimes made again, sometimes fixed.
    fn object(&mut self, name: &str) -> Secret {
        let version = self.next_version();
        if self.dice.roll(3) == 0 {
            self.make_again(name);
        }
        let made = self.made.get(name).copied().unwrap_or_default();
        let uid = format!("uid-{name}-{made}");
        let fixed = self.dice.roll(5) == 0;
        let object = if fixed {
            immutable(name, &version)
        } else {
            secret(name, &version)
        };
        with_uid(object, &uid)
    }

    fn list(&mut self) {
        let name = self.name();
        let Some(index) = self.stage.runs.at_work_index(&name) else {
            return;
        };
        let object = (self.dice.roll(4) > 0).then(|| self.object(&name));
        let version = self.next_version();
        self.truth.insert(name.clone(), object.clone());
        let listed = self
            .stage
            .runs
            .try_write(index, |writer| commit(writer, &version, object, false));
        assert!(listed.unwrap().is_ok(), "news of a run at work is taken");
    }

    fn event(&mut self) {
        let name = self.name();
        let Some(index) = self.stage.runs.at_work_index(&name) else {
            return;
        };
        let object = self.object(&name);
        let held = Arc::new(StoredObject::new(object.clone()));
        let event = if self.dice.roll(3) == 0 {
            self.make_again(&name);
            self.truth.insert(name, None);
            ObjectEvent::deleted(held)
        } else {
            self.truth.insert(name, Some(object));
            ObjectEvent::updated(held)
        };
        let applied = self
            .stage
            .runs
            .try_write(index, |writer| writer.apply(event));
        assert!(applied.unwrap().is_ok());
    }

    /// Any run, ended ones too, brings something old; it must change no answer.
    fn old_news(&mut self) {
        let count = u64::try_from(self.stage.runs.count()).unwrap();
        let index = usize::try_from(self.dice.roll(count.max(1))).unwrap();
        let mut touched = String::new();
        let old = self.stage.runs.try_write(index, |writer| {
            let name = writer.object.key.name().to_owned();
            touched.clone_from(&name);
            let old = Arc::new(StoredObject::new(with_uid(secret(&name, "1"), "uid-old")));
            drop(writer.apply(ObjectEvent::updated(old)));
            commit(writer, "2", None, false).is_err() || !self.read.contains_key(&name)
        });
        assert!(old.unwrap_or(true), "an answer from the past was taken");
        // Where nothing newer was known it was news, so the model cannot tell any more.
        self.truth.remove(&touched);
    }

    fn crash(&mut self) {
        let name = self.name();
        if let Some(index) = self.stage.runs.at_work_index(&name) {
            self.stage.runs.crash(index);
        }
    }

    fn get(&mut self) {
        let name = self.name();
        match self.stage.get_now(&name) {
            Ok(cached) => {
                self.note_read(&name, &cached);
                assert!(self.is_referenced(&name));
            }
            Err(error) => {
                let unregistered = error.kind() == ErrorKind::NotRegistered;
                assert_eq!(unregistered, !self.is_referenced(&name), "{name}: {error}");
            }
        }
    }

    /// A watched and filled entry has the object of the server: nothing hides it, and nothing
    /// brings it back.
    fn check_truth(&self, name: &str) {
        let key = ObjectKey::new("ns", name);
        let (Some(report), Some(truth)) = (
            self.stage.manager.inspect_object(&key),
            self.truth.get(name),
        ) else {
            return;
        };
        let version = truth
            .as_ref()
            .and_then(|object| object.metadata.resource_version.clone());
        let served = match report.state {
            ObjectState::Synced => Some(report.resource_version.as_str().to_owned()),
            ObjectState::NotFound => None,
            ObjectState::Waiting | ObjectState::TooManyReflectors | ObjectState::Restored => return,
            ObjectState::Forbidden | ObjectState::Refused | ObjectState::Undecodable => {
                unreachable!("nothing said so")
            }
        };
        if report.watched {
            assert_eq!(served, version, "{name}");
        }
    }

    fn check(&self) {
        for name in (0..6).map(|number| format!("s{number}")) {
            let most = usize::from(self.is_referenced(&name));
            // A run that the housekeeper starts as its object is released is ended by the same
            // thread, a moment later.
            let mut looks = 0..LOOKS_MAX;
            until(|| self.stage.runs.at_work(&name) <= most || looks.next().is_none());
            let at_work = self.stage.runs.at_work(&name);
            assert!(at_work <= most, "{name}: {at_work} runs at work");
            self.check_truth(&name);
        }
    }
}

/// OC-3, OC-23, OC-27..OC-29, B6, B18: one run per referenced object at most and none without an
/// owner, answers exactly for what is referenced, and never one older than the last.
#[test]
fn whatever_happens_each_object_has_one_owner_and_moves_forward() {
    for (dice, seed) in Dice::histories(10) {
        let mut model = SimulationModel::new(dice);
        for step in 0..STEPS {
            model.step();
            let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| model.check()));
            assert!(checked.is_ok(), "seed {seed} step {step}");
        }
        let Stage { manager, runs, .. } = model.stage;
        runs.refuse(None);
        drop(manager);
        for number in 0..6 {
            assert_eq!(runs.at_work(&format!("s{number}")), 0, "seed {seed}");
        }
    }
}
