//! The server's side of a run: what the cluster writes, and what the server does to its watches.

use super::informer::WorldInformer;
use super::oracle::BrokenPromise;
use super::play::Play;
use super::sent::Sent;
use super::truth::{KEYS, Key, SERIAL, StateKind, key_of, name};
use crate::error::Error;
use crate::list_watch::{ObjectEvent, WatchEvent};
use crate::object::{Object as _, ResourceVersion, Status};
use crate::policy::Chance;
use crate::sync::Arc;
use crate::testing::objects;

impl Play {
    /// Whether the server may write. After a restore it must not reach the versions that a cache
    /// has seen of the lost future: nothing could tell the two apart.
    fn may_write(&mut self) -> bool {
        let mut lost = self.informers.iter_mut();
        !lost.any(|informer| informer.is_lost && !informer.is_found(&self.truth))
    }

    /// A program of the cluster writes or deletes an object.
    pub(super) fn write(&mut self, chance: &mut Chance) {
        if !self.may_write() {
            return;
        }
        let count = u64::try_from(KEYS.len()).unwrap_or_default();
        let key = usize::try_from(chance.below(count)).unwrap_or_default();
        while self.truth.was_lost(key, self.server.version() + 1) {
            self.skip();
        }
        match chance.below(8) {
            0..=1 if self.weather.deletes => self.delete(key),
            2 if self.weather.deletes => {
                self.delete(key);
                self.set(key, chance);
            }
            7 if self.weather.joins && self.truth.exists(key) => self.join_two_ends(key, chance),
            3 if self.weather.undecodable && !self.truth.is_immutable(key) => {
                let Some((namespace, name)) = KEYS.get(key) else {
                    return;
                };
                let version = self.server.set_undecodable(namespace, name);
                self.wrote(key, version, StateKind::Undecodable);
            }
            _ if self.truth.is_immutable(key) => self.delete(key),
            _ => self.set(key, chance),
        }
    }

    fn skip(&mut self) {
        let version = self.server.version() + 1;
        self.server.skip_to(version);
        self.truth.skipped_to(version);
    }

    /// An object ends, another of its name comes and ends, and watches bring only the last of that.
    fn join_two_ends(&mut self, key: Key, chance: &mut Chance) {
        self.delete(key);
        let first = self.server.version();
        self.set(key, chance);
        let last = self.server.version();
        self.delete(key);
        for informer in &self.informers {
            informer.link.lose(first..=last);
        }
    }

    fn set(&mut self, key: Key, chance: &mut Chance) {
        let Some((namespace, name)) = KEYS.get(key) else {
            return;
        };
        let serial = self.truth.next_serial().to_string();
        let mut object = objects::config_map(namespace, name, "", &[(SERIAL, &serial)]);
        let is_new = !self.truth.exists(key);
        if is_new && self.weather.immutables && chance.below(3) == 0 {
            object.immutable = Some(true);
        }
        self.is_immutable = object.immutable == Some(true);
        let version = self.server.set(object);
        self.wrote(key, version, StateKind::Decodes);
    }

    fn delete(&mut self, key: Key) {
        let Some((namespace, name)) = KEYS.get(key).filter(|_| self.truth.exists(key)) else {
            return;
        };
        if let Some(version) = self.server.delete(namespace, name) {
            self.wrote(key, version, StateKind::Gone);
        }
    }

    fn wrote(&mut self, key: Key, version: u64, kind: StateKind) {
        let at = (self.awake, self.now());
        let is_immutable = std::mem::take(&mut self.is_immutable);
        self.truth.put(key, version, (kind, is_immutable), at);
        self.counts.met(
            "write",
            match kind {
                StateKind::Decodes => "set",
                StateKind::Undecodable => "undecodable",
                StateKind::Gone => "delete",
            },
        );
        self.note(|| format!("the server has {} at {version}: {kind:?}", name(key)));
        if self.weather.repeats && kind == StateKind::Decodes {
            let found = self
                .server
                .objects()
                .into_iter()
                .find(|object| key_of(&object.key()) == Some(key));
            self.sent.extend(found.map(|object| Sent {
                version,
                object,
                is_deletion: false,
            }));
        }
    }

    pub(super) fn server_acts(&mut self, chance: &mut Chance) -> Result<(), BrokenPromise> {
        let weather = self.weather.clone();
        let what = match chance.below(11) {
            0 if weather.skips => {
                if !self.may_write() {
                    return Ok(());
                }
                self.skip();
                "another kind changes"
            }
            1 if weather.compacts => {
                self.server.compact();
                "history is compacted"
            }
            2 if weather.expires => {
                self.server.expire_watches();
                "watches expire"
            }
            3 if weather.ends => {
                self.server.end_watches(None);
                "watches end"
            }
            4 if weather.ends => {
                let error = Error::from_status(Status::new(500, "made up 500"));
                self.server.end_watches(Some(&error));
                "watches break off"
            }
            5 if weather.lags => {
                let known = self.server.version();
                let lags = chance.below(2) == 0;
                let version = known.saturating_sub(1 + chance.below(4)).max(1);
                self.server.lag(lags.then_some(version));
                self.truth.lags(self.clock.now(), lags.then_some(version));
                if let Some(manager) = &self.manager {
                    manager.link.stick(lags.then_some(version));
                }
                if lags {
                    "a server's cache lags"
                } else {
                    "no server's cache lags"
                }
            }
            6 if weather.odd_events => {
                let error = || Error::from_status(Status::new(429, "made up 429"));
                self.server.send(|| WatchEvent::Error(error()));
                "an error event"
            }
            7 if weather.odd_events => {
                self.server.send(|| WatchEvent::Skipped {
                    reason: "foreign".to_owned(),
                    resource_version: ResourceVersion::default(),
                });
                "a foreign event"
            }
            8 if weather.bookmarks => {
                self.server.bookmark();
                "a bookmark"
            }
            9 if weather.restores && self.informers.iter().all(|it| !it.is_lost) => {
                self.restore_amid_restarts(chance)?;
                "the server is restored from a backup"
            }
            10 if weather.repeats => self.repeat(chance),
            _ => return Ok(()),
        };
        self.counts.met("server", what);
        self.faults += 1;
        self.note(|| what.to_owned());
        Ok(())
    }

    /// The server goes back in its history. Its connections are cut.
    pub(super) fn restore(&mut self, by: u64) {
        let known = self.server.version();
        let version = known.saturating_sub(1 + by).max(1);
        self.server.restore(version);
        self.truth.restore(self.server.version());
        self.sent.retain(|sent| sent.version <= version);
        for informer in &mut self.informers {
            informer.link.restored();
            informer.restored();
        }
    }

    /// The server sends again what every watch has sent before.
    fn repeat(&mut self, chance: &mut Chance) -> &'static str {
        let count = u64::try_from(self.sent.len()).unwrap_or_default();
        let at = usize::try_from(chance.below(count.max(1))).unwrap_or_default();
        // A watch that still collects its initial events would get it after their end.
        let are_watching = self.informers.iter().all(WorldInformer::is_watching);
        let positions = self.informers.iter().map(WorldInformer::version).min();
        if let Some(sent) = self.sent.get(at).filter(|_| are_watching)
            && positions.is_some_and(|position| sent.version <= position)
        {
            let sent = sent.clone();
            self.server.send(|| {
                let object = Arc::clone(&sent.object);
                if sent.is_deletion {
                    ObjectEvent::deleted(object).into()
                } else {
                    ObjectEvent::updated(object).into()
                }
            });
            return "an old event once more";
        }
        "no old event fits"
    }
}
