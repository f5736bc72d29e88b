//! What a manager knows of each pod and object, for tables and health pages: never a value.

use std::fmt;
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::kinds::ManagedKind;
use super::watch::item::{Check, State, Why};
use super::watch::slot::{About, Slot};
use crate::error::{Error, ErrorKind};
use crate::object::{ObjectKey, ResourceVersion};

/// A registered pod and the objects of one kind it references.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PodReport {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// The pod's uid.
    pub uid: String,
    /// Its objects, sorted by name.
    pub objects: Vec<ObjectReport>,
}

/// Where an object stands, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ObjectState {
    /// The object is in memory.
    Synced,
    /// The server has no such object: an answer.
    NotFound,
    /// The server refuses the object, and has for longer than its authorizer lags: an answer.
    Forbidden,
    /// There is no answer yet.
    Waiting,
    /// The object is there but does not decode: an answer.
    Undecodable,
    /// There is no room for the object's watch.
    TooManyReflectors,
}

impl ObjectState {
    /// Whether the server has given a definite answer.
    pub fn is_answer(self) -> bool {
        match self {
            Self::Synced | Self::NotFound | Self::Forbidden | Self::Undecodable => true,
            Self::Waiting | Self::TooManyReflectors => false,
        }
    }
}

impl fmt::Display for ObjectState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Synced => "Synced",
            Self::NotFound => "NotFound",
            Self::Forbidden => "Forbidden",
            Self::Waiting => "Waiting",
            Self::Undecodable => "Undecodable",
            Self::TooManyReflectors => "TooManyReflectors",
        })
    }
}

/// What is known of one referenced object.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ObjectReport {
    /// `Secret` or `ConfigMap`.
    pub kind: &'static str,
    /// The object.
    pub key: ObjectKey,
    /// Where it stands.
    pub state: ObjectState,
    /// Why, in words; empty when there is nothing to add.
    pub reason: String,
    /// The version in memory; empty without an object.
    pub resource_version: ResourceVersion,
    /// Whether the object says that it never changes.
    pub immutable: bool,
    /// How many keys of data it has.
    pub keys: usize,
    /// The bytes of their values.
    pub bytes: usize,
    /// When the object was created.
    pub created: Option<Time>,
    /// How long ago the server was last heard about this object; `None` before its first answer.
    pub since_contact: Option<Duration>,
    /// Whether a watch is open or being opened.
    pub watched: bool,
    /// How many registered pods reference the object.
    pub pods: usize,
    /// What went wrong last, if nothing has gone well since.
    pub last_failure: Option<Error>,
    /// How many requests failed one after the other.
    pub attempts: u32,
    /// How many events and lists were refused because something newer was known already (B18).
    pub refused: u64,
}

impl ObjectReport {
    pub(crate) fn of<K: ManagedKind>(
        slot: &Slot<K>,
        about: &About,
        pods: usize,
        now: Instant,
    ) -> Self {
        let (state, reason) = standing(slot, now);
        let object = slot.object();
        let (keys, bytes) = object.map_or((0, 0), |object| object.data_size());
        let contact = slot.last_contact();
        Self {
            kind: K::KIND,
            key: about.key.clone(),
            state,
            reason,
            resource_version: object
                .map_or_else(ResourceVersion::default, |object| object.resource_version()),
            immutable: object.is_some_and(|object| object.is_immutable()),
            keys,
            bytes,
            created: object.and_then(|object| object.metadata().creation_timestamp.clone()),
            since_contact: contact.map(|contact| now.saturating_duration_since(contact)),
            watched: matches!(slot.state(), State::Starting | State::Running),
            pods,
            last_failure: slot.failure().cloned(),
            attempts: slot.attempts(),
            refused: slot.refused(),
        }
    }
}

fn standing<K: ManagedKind>(slot: &Slot<K>, now: Instant) -> (ObjectState, String) {
    let held = slot.object().is_some();
    let watch = watch_in_words(slot);
    if slot.state() == State::Stopped(Why::NoRoom) {
        return (no_room(slot), failure_text(slot));
    }
    // What was known when an idle watch was stopped is still the last word.
    let idle = slot.state() == State::Stopped(Why::Idle) && slot.was_filled();
    if slot.is_filled() || idle {
        return match slot.undecodable() {
            Some(error) => (ObjectState::Undecodable, error.to_string()),
            None if held => (ObjectState::Synced, watch),
            None => (ObjectState::NotFound, watch),
        };
    }
    if let Some(denied) = slot.denied() {
        return (ObjectState::Forbidden, denied.to_string());
    }
    let reason = match slot.failure() {
        None => "no answer from the server yet".to_owned(),
        Some(failure) => {
            let since = now.saturating_duration_since(slot.attempts_since());
            format!("{} failed in {since:.1?}: {failure}", slot.attempts())
        }
    };
    (ObjectState::Waiting, reason)
}

fn no_room<K: ManagedKind>(slot: &Slot<K>) -> ObjectState {
    let kind = slot.failure().map(Error::kind);
    if kind == Some(ErrorKind::TooManyReflectors) {
        ObjectState::TooManyReflectors
    } else {
        ObjectState::Waiting
    }
}

fn watch_in_words<K: ManagedKind>(slot: &Slot<K>) -> String {
    match slot.state() {
        State::Stopped(Why::Immutable) => "immutable, so its watch is stopped".to_owned(),
        State::Rechecking(Check::First) => {
            "immutable; checking that it is still the same".to_owned()
        }
        State::Rechecking(Check::Failed | Check::Again) => {
            format!("immutable; the check failed: {}", failure_text(slot))
        }
        State::Stopped(Why::Idle) => "not read for a while, so its watch is stopped".to_owned(),
        State::Stopped(Why::ShutDown { .. }) => "the manager was shut down".to_owned(),
        State::Starting
        | State::Running
        | State::Stopped(Why::NoRoom | Why::Crashed)
        | State::Dropped => failure_text(slot),
    }
}

fn failure_text<K: ManagedKind>(slot: &Slot<K>) -> String {
    slot.failure().map(Error::to_string).unwrap_or_default()
}
