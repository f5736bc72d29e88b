//! Reads past the watch: the object as the server has it now, or not older than a version (R11).

use super::item::{State, Why};
use super::slot::{Action, Item};
use super::store::WatchStore;
use crate::clock::{Clock, Deadline};
use crate::error::Error;
use crate::manager::ask::Ask;
use crate::manager::at_least::{Meanwhile, Reached, get_at_least, later};
use crate::manager::cached::{Cached, Ready};
use crate::manager::content::{Asked, News};
use crate::object::{Held, Object, ResourceVersion, resource_name};
use crate::sync::Arc;

/// A fresh read that is under way.
#[derive(Debug)]
pub(crate) struct Question<K: Object> {
    pub(crate) item: Item<K>,
    asked: Asked,
}

/// The watch goes on while the server is asked for a state not older than a version, and may bring it first.
struct Watching<'a, K: Object> {
    question: &'a mut Question<K>,
    version: &'a ResourceVersion,
    clock: &'a Clock,
}

impl<K: Object> Meanwhile<K> for Watching<'_, K> {
    fn version(&mut self) -> ResourceVersion {
        let slot = self.question.item.slot.lock();
        self.question.asked = slot.content().ask();
        later(self.version, slot.content().floor())
    }

    fn rest(&mut self, pause: Deadline) -> Option<Result<Cached<K>, Error>> {
        let Item { about, slot } = &self.question.item;
        let mut guard = slot.lock();
        loop {
            let answer = guard.answer_at_least(about, self.clock, self.version);
            if answer.is_some() {
                return answer;
            }
            let shut_down = matches!(guard.state(), State::Stopped(Why::ShutDown { .. }));
            if shut_down || self.clock.has_passed(pause) {
                return None;
            }
            guard = self.clock.wait_until(slot, guard, pause);
        }
    }
}

impl<K: Object> WatchStore<K> {
    /// The object past the watch, from the server.
    ///
    /// # Errors
    ///
    /// See [`ObjectManager::get_fresh`](crate::manager::ObjectManager::get_fresh).
    pub(crate) fn get_fresh(
        &self,
        namespace: &str,
        name: &str,
        deadline: Deadline,
    ) -> Result<Cached<K>, Error> {
        let question = self.ask(namespace, name)?;
        let token = self.stop_token();
        let ask = Ask {
            key: &question.item.about.key,
            clock: self.works().clock(),
            deadline,
            stop: &token,
        };
        let latest = ResourceVersion::most_recent();
        let found = self.works().gets.ask(&ask, &latest);
        self.take_answer(&question, found, &latest)
    }

    /// The object in a state not older than `version`: out of memory if the watch has come that far, else from the
    /// server. Counts as a read.
    ///
    /// # Errors
    ///
    /// See [`ObjectManager::get_at_least`](crate::manager::ObjectManager::get_at_least).
    pub(crate) fn get_at_least(
        &self,
        namespace: &str,
        name: &str,
        version: &ResourceVersion,
        deadline: Deadline,
    ) -> Result<Cached<K>, Error> {
        let mut question = self.ask(namespace, name)?;
        let clock = self.works().clock();
        let about = Arc::clone(&question.item.about);
        let (known, action) = self.works().change(&question.item, |slot| {
            let known = slot.answer_at_least(&about, clock, version);
            let given = known.as_ref().is_some_and(Result::is_ok);
            (
                known,
                if given {
                    slot.given()
                } else {
                    Action::nothing()
                },
            )
        });
        self.works().perform(&question.item, action);
        if let Some(answer) = known {
            return answer;
        }
        let token = self.stop_token();
        let ask = Ask {
            key: &about.key,
            clock,
            deadline,
            stop: &token,
        };
        let mut watching = Watching {
            question: &mut question,
            version,
            clock,
        };
        match get_at_least(&self.works().gets, &ask, &mut watching)? {
            Reached::Answer(object, version) => self.take_answer(&question, Ok(object), &version),
            Reached::Gone(error, version) => self.take_answer(&question, Err(error), &version),
            Reached::InMemory(answer) => answer,
        }
    }

    /// The first half of a fresh read, before the request; counts as a read.
    ///
    /// # Errors
    ///
    /// `NotRegistered`.
    pub(crate) fn ask(&self, namespace: &str, name: &str) -> Result<Question<K>, Error> {
        let item = self.item(namespace, name)?;
        let now = self.works().clock().coarse();
        let asked = {
            let mut slot = item.slot.lock();
            slot.note_read(now);
            slot.content().ask()
        };
        Ok(Question { item, asked })
    }

    /// The second half, with the answer of a state not older than `version`: gives it, or what came in meanwhile if
    /// that is newer.
    ///
    /// # Errors
    ///
    /// The answer's.
    pub(crate) fn take_answer(
        &self,
        question: &Question<K>,
        answer: Result<Arc<Held<K>>, Error>,
        version: &ResourceVersion,
    ) -> Result<Cached<K>, Error> {
        let works = self.works();
        let Question { item, asked } = question;
        let (mut object, absent) = match answer {
            Ok(object) => (Some(object), None),
            Err(error) if error.is_not_found() => (None, Some(error)),
            Err(error) => return Err(error),
        };
        let now = works.clock().now();
        let not_found = || Error::not_found(&resource_name::<K>(), item.about.key.name());
        let (found, result) = works.change(item, |slot| {
            let mut found = slot.found_at_least(asked, &mut object, version, now);
            found.action = found.action.or(|| slot.given());
            let result = match (absent, slot.undecodable()) {
                // That was true while this read was under way.
                (Some(error), _) => Err(error),
                (None, Some(undecodable)) => Err(undecodable.clone()),
                (None, None) => slot.object().map(Arc::clone).ok_or_else(not_found),
            };
            (found, result)
        });
        item.slot.notify_all();
        if found.written.news == News::Changed {
            works.changes.tell(&item.about.key);
        }
        works.perform(item, found.action);
        let ready = |object| Ready {
            object,
            contact: now,
            failure: None,
            stale: false,
            clock: works.clock().clone(),
        };
        result.map(|object| Cached::new(Arc::new(ready(object))))
    }
}
