//! What the server knows: each state that it ever had, and which of them count after a restore.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;

use crate::object::{ObjectKey, StoredObject};

/// The objects of the world, by namespace and name.
pub(super) const KEYS: [(&str, &str); 8] = [
    ("a", "o0"),
    ("a", "o1"),
    ("a", "o2"),
    ("a", "o3"),
    ("b", "o0"),
    ("b", "o1"),
    ("b", "o2"),
    ("b", "o3"),
];

/// The field of an object's data that holds its serial number.
pub(super) const SERIAL: &str = "n";

/// The place of a key in [`KEYS`].
pub(super) type Key = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StateKind {
    Decodes,
    Undecodable,
    Gone,
}

/// One state of one object.
#[derive(Clone, Copy, Debug)]
pub(super) struct TrueState {
    pub(super) serial: usize,
    pub(super) version: u64,
    pub(super) key: Key,
    pub(super) uid: u64,
    pub(super) kind: StateKind,
    /// Nothing but its end may follow.
    pub(super) is_immutable: bool,
    /// When it came, in the time in which the machine was awake.
    pub(super) at: Duration,
    pub(super) instant: Instant,
}

/// A state as a cache shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) key: Key,
    pub(super) uid: u64,
    pub(super) serial: usize,
    pub(super) version: u64,
    pub(super) is_immutable: bool,
}

impl Shown {
    /// Reads what an object says of itself; `None` if it is none of the world's.
    pub(super) fn of(object: &StoredObject<ConfigMap>) -> Option<Self> {
        let metadata = &object.metadata;
        let (namespace, name) = (metadata.namespace.as_deref()?, metadata.name.as_deref()?);
        let key = KEYS.iter().position(|key| *key == (namespace, name))?;
        let uid = metadata
            .uid
            .as_deref()?
            .strip_prefix("uid-")?
            .parse()
            .ok()?;
        let serial = object.data.as_ref()?.get(SERIAL)?.parse().ok()?;
        let version = metadata.resource_version.as_deref()?.parse().ok()?;
        Some(Self {
            key,
            uid,
            serial,
            version,
            is_immutable: object.immutable == Some(true),
        })
    }
}

/// The serial number of a state that does not decode.
pub(super) const UNDECODABLE: usize = usize::MAX;

/// The content of a cache: the uid and the state of each object that exists.
pub(super) type Content = [Option<(u64, usize)>; KEYS.len()];

/// Every state of the server.
#[derive(Debug, Default)]
pub(super) struct Truth {
    /// Those of the present history, in order. A restore cuts it.
    line: Vec<TrueState>,
    /// The uid and the version of each state that a restore has lost.
    lost: Vec<(u64, u64)>,
    serials: usize,
    uids: u64,
    /// The version that the last restore went back to, or that another kind has reached since.
    reached: u64,
    /// When a cache of the server began to lag, and at which version; `None` where that ended.
    lags: Vec<(Instant, Option<u64>)>,
}

impl Truth {
    /// The number of the next state.
    pub(super) fn next_serial(&self) -> usize {
        self.serials
    }

    /// Notes a state, with the uid that the server gives to it.
    pub(super) fn put(
        &mut self,
        key: Key,
        version: u64,
        (kind, is_immutable): (StateKind, bool),
        (at, instant): (Duration, Instant),
    ) {
        let uid = self.uid(key).unwrap_or_else(|| {
            self.uids = self.uids.wrapping_add(1);
            self.uids
        });
        self.line.push(TrueState {
            serial: self.serials,
            version,
            key,
            uid,
            kind,
            is_immutable,
            at,
            instant,
        });
        self.serials = self.serials.saturating_add(1);
    }

    fn uid(&self, key: Key) -> Option<u64> {
        let last = self.last(key, u64::MAX)?;
        (last.kind != StateKind::Gone).then_some(last.uid)
    }

    /// The last state of a key up to a version.
    pub(super) fn last(&self, key: Key, version: u64) -> Option<&TrueState> {
        let mut line = self.line.iter().rev();
        line.find(|state| state.key == key && state.version <= version)
    }

    /// The first end of an object after a state of it.
    pub(super) fn end_after(&self, key: Key, serial: usize) -> Option<usize> {
        let mut line = self.line.iter();
        let end = line.find(|state| {
            state.key == key && state.serial > serial && state.kind == StateKind::Gone
        });
        end.map(|state| state.serial)
    }

    /// The versions at which there was no such object any more.
    pub(super) fn ends(&self, key: Key) -> impl Iterator<Item = u64> {
        let ends = self.line.iter();
        let ends = ends.filter(move |state| state.key == key && state.kind == StateKind::Gone);
        ends.map(|state| state.version)
    }

    /// Since when the object exists.
    pub(super) fn exists_since(&self, key: Key) -> Option<Instant> {
        let uid = self.uid(key)?;
        let first = self.line.iter().find(|state| state.uid == uid)?;
        Some(first.instant)
    }

    /// Whether the object exists and may only end.
    pub(super) fn is_immutable(&self, key: Key) -> bool {
        let last = self.last(key, u64::MAX);
        last.is_some_and(|state| state.is_immutable && state.kind != StateKind::Gone)
    }

    pub(super) fn exists(&self, key: Key) -> bool {
        self.uid(key).is_some()
    }

    pub(super) fn restore(&mut self, version: u64) {
        let lost = self.line.iter().filter(|state| state.version > version);
        self.lost
            .extend(lost.map(|state| (state.uid, state.version)));
        self.line.retain(|state| state.version <= version);
        self.reached = version;
    }

    /// Another kind has taken the versions up to this one.
    pub(super) fn skipped_to(&mut self, version: u64) {
        self.reached = self.reached.max(version);
    }

    /// A version that the present history has reached.
    pub(super) fn version(&self) -> u64 {
        let last = self.line.last().map(|state| state.version);
        self.reached.max(last.unwrap_or_default()).max(1)
    }

    /// Whether a lost state of this very object had that version. Nothing could tell the two apart.
    pub(super) fn was_lost(&self, key: Key, version: u64) -> bool {
        let uid = self.uid(key);
        uid.is_some_and(|uid| self.lost.contains(&(uid, version)))
    }

    /// The objects at a version, in one namespace or in all.
    pub(super) fn at(&self, version: u64, namespace: Option<&str>) -> Content {
        let mut content = Content::default();
        let states = self
            .line
            .iter()
            .take_while(|state| state.version <= version);
        for state in states {
            let selected = KEYS.get(state.key);
            let selected = selected.is_some_and(|(own, _)| namespace.is_none_or(|it| it == *own));
            if let Some(place) = content.get_mut(state.key).filter(|_| selected) {
                *place = match state.kind {
                    StateKind::Decodes => Some((state.uid, state.serial)),
                    StateKind::Undecodable => Some((state.uid, UNDECODABLE)),
                    StateKind::Gone => None,
                };
            }
        }
        content
    }

    /// The first change that a cache at a version does not know.
    pub(super) fn missed_since(&self, version: u64, namespace: Option<&str>) -> Option<&TrueState> {
        let mut newer = self.line.iter().filter(|state| state.version > version);
        let is_selected = |key: Key| {
            let own = KEYS.get(key).map(|(own, _)| *own);
            namespace.is_none_or(|it| own == Some(it))
        };
        newer.find(|state| is_selected(state.key))
    }

    /// A cache of the server lags from now on, or no longer.
    pub(super) fn lags(&mut self, now: Instant, version: Option<u64>) {
        self.lags.push((now, version));
    }

    /// The oldest version that a cache of the server had between these times, if it lagged.
    pub(super) fn lagged(&self, from: Instant, to: Instant) -> Option<u64> {
        let ends = self.lags.iter().skip(1).map(|(end, _)| Some(*end));
        let spans = self.lags.iter().zip(ends.chain([None]));
        let met =
            spans.filter(|((began, _), end)| *began <= to && end.is_none_or(|end| end >= from));
        met.filter_map(|((_, version), _)| *version).min()
    }

    /// When the server wrote a version.
    pub(super) fn written(&self, version: u64) -> Option<Instant> {
        let mut line = self.line.iter().rev();
        let state = line.find(|state| state.version == version)?;
        Some(state.instant)
    }

    /// Whether there was no such object at a version, or at a later one.
    pub(super) fn was_absent_since(&self, key: Key, version: u64) -> bool {
        let is_absence = |state: &TrueState| state.kind == StateKind::Gone;
        let mut later = self.line.iter().filter(|state| state.version > version);
        self.last(key, version).is_none_or(is_absence)
            || later.any(|state| state.key == key && is_absence(state))
    }

    /// The state since which readers must not have this one any more as if it had just been
    /// confirmed; `None` if they may. A later state that does not decode leaves readers with the
    /// earlier one.
    pub(super) fn replaced(&self, shown: &Shown) -> Option<&TrueState> {
        let at = self
            .line
            .iter()
            .position(|state| state.serial == shown.serial)?;
        let later = self.line.get(at..)?.iter().skip(1);
        let later = later.filter(|state| state.key == shown.key);
        later.fold(None, |since, state| match state.kind {
            StateKind::Undecodable => None,
            StateKind::Decodes | StateKind::Gone => since.or(Some(state)),
        })
    }

    /// The last state before the deletion at a version.
    pub(super) fn deleted_at(&self, key: Key, version: u64) -> Option<&TrueState> {
        let deletion = |state: &TrueState| {
            state.key == key && state.version == version && state.kind == StateKind::Gone
        };
        let at = self.line.iter().position(deletion)?;
        let before = self.line.get(..at)?;
        before.iter().rev().find(|state| state.key == key)
    }
}

/// The name of a key for a person.
pub(super) fn name(key: Key) -> String {
    let found = KEYS.get(key);
    found.map_or_else(String::new, |(namespace, name)| {
        format!("{namespace}/{name}")
    })
}

/// The place of an object's key in [`KEYS`].
pub(super) fn key_of(key: &ObjectKey) -> Option<Key> {
    let own = (key.namespace(), key.name());
    KEYS.iter().position(|known| *known == own)
}
