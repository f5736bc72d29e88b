//! The members of a set: who they are, and what is done with all of them at once.
//!
//! Every member stands in the list before anybody can start it, and nobody enters the list after the stop: so a stop that
//! marks the list first reaches all of them, also those that somebody is about to start.

use crate::clock::Deadline;
use crate::error::{Error, ErrorKind};
use crate::informer::AnyInformer;
use crate::informer::set::{SyncOutcome, SyncResult};
use crate::sync::{Mutex, Rank};

/// The members and whether the set has stopped. Dropping it ends all of them.
#[derive(Debug)]
pub(super) struct Roster(Mutex<Entries>);

impl Default for Roster {
    fn default() -> Self {
        Self(Mutex::ranked(Rank::INFORMER_SET, Entries::default()))
    }
}

#[derive(Debug, Default)]
struct Entries {
    members: Vec<AnyInformer>,
    stopped: bool,
    /// Members that were announced, for what each has of its own.
    announced: u64,
}

/// What [`Roster::enter`] came back with.
pub(super) enum Entered<T> {
    /// The new member is in the list.
    New,
    /// Somebody else was faster: his is in the list.
    Known(T),
}

impl Roster {
    /// The members, in the order in which they entered.
    pub(super) fn members(&self) -> Vec<AnyInformer> {
        self.0.lock().members.clone()
    }

    /// What `pick` finds in the first member where it finds something.
    pub(super) fn find<T>(&self, pick: impl Fn(&AnyInformer) -> Option<T>) -> Option<T> {
        self.members().iter().find_map(pick)
    }

    /// A number for a member that is about to be made.
    ///
    /// # Errors
    ///
    /// `Stopped` after the stop.
    pub(super) fn announce(&self, name: &str) -> Result<u64, Error> {
        let mut entries = self.0.lock();
        if entries.stopped {
            return Err(too_late(name));
        }
        let number = entries.announced;
        entries.announced = number.wrapping_add(1);
        Ok(number)
    }

    /// Takes a member in, unless `pick` finds that it is there already.
    ///
    /// # Errors
    ///
    /// `Stopped` after the stop.
    pub(super) fn enter<T>(
        &self,
        member: &AnyInformer,
        pick: impl Fn(&AnyInformer) -> Option<T>,
    ) -> Result<Entered<T>, Error> {
        let mut entries = self.0.lock();
        if let Some(known) = entries.members.iter().find_map(pick) {
            return Ok(Entered::Known(known));
        }
        if entries.stopped {
            return Err(too_late(member.name()));
        }
        entries.members.push(member.clone());
        Ok(Entered::New)
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.0.lock().stopped
    }

    /// Whether each is well.
    pub(super) fn check_health(&self) -> Result<(), Error> {
        let members = self.members();
        all_of(members.iter().map(AnyInformer::check_health))
    }

    /// Starts those that were not started; each by itself, so that one which cannot be started holds up no other.
    pub(super) fn start(&self) -> Result<(), Error> {
        let members = {
            let entries = self.0.lock();
            if entries.stopped {
                let text = "informers were not started because their set has stopped already";
                return Err(Error::new(ErrorKind::Stopped, text));
            }
            entries.members.clone()
        };
        all_of(members.iter().map(|member| member.member().start()))
    }

    /// Asks all of them to end, and lets nobody in any more.
    pub(super) fn stop(&self) -> Vec<AnyInformer> {
        let members = {
            let mut entries = self.0.lock();
            entries.stopped = true;
            entries.members.clone()
        };
        for member in &members {
            member.member().stop();
        }
        members
    }

    /// Stops all of them first, then waits for each until the one deadline.
    pub(super) fn shutdown(&self, deadline: Deadline) -> Result<(), Error> {
        let members = self.stop();
        let late: Vec<String> = members
            .iter()
            .filter_map(|member| {
                let error = member.member().shutdown(deadline).err()?;
                Some(format!("{}: {error}", member.name()))
            })
            .collect();
        if late.is_empty() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Timeout, late.join("\n")))
    }

    /// Waits for all of them at once: one after the other is looked at, but all of them hurry from the beginning (B3), and the
    /// deadline is the same.
    pub(super) fn wait_for_sync(&self, deadline: Deadline) -> SyncResult {
        let members = self.members();
        let _demands: Vec<_> = members
            .iter()
            .map(|member| member.member().demand())
            .collect();
        let waited: Vec<_> = members
            .iter()
            .map(|member| member.member().wait_until_synced(deadline))
            .collect();
        let ended = members.iter().zip(waited);
        ended
            .map(|(member, waited)| {
                // Who was refused at first may have synced while another one was waited for.
                let waited = waited.or_else(|error| settle(member.has_synced(), error));
                SyncOutcome::new(member.name(), waited)
            })
            .collect()
    }

    /// Waits until the handlers that there are have seen the initial lists of their informers.
    pub(super) fn wait_for_handlers(&self, deadline: Deadline) -> SyncResult {
        let informers = self.wait_for_sync(deadline);
        let mut waited = Vec::new();
        for (member, informer) in self.members().iter().zip(&informers) {
            for registration in member.registrations() {
                let end = match informer.error() {
                    // It would wait for what its informer does not get.
                    Some(error) => Err(error.clone()),
                    None => registration.wait_until_synced(deadline),
                };
                waited.push((registration, end));
            }
        }
        let ended = waited.into_iter();
        ended
            .map(|(registration, end)| {
                // As in the wait for informers: what one could not do at first it may have done since.
                let end = end.or_else(|error| settle(registration.has_synced(), error));
                SyncOutcome::new(registration.sync_name(), end)
            })
            .collect()
    }
}

impl Drop for Roster {
    fn drop(&mut self) {
        for member in self.stop() {
            member.member().end();
        }
    }
}

/// One error for all that failed, a line for each.
fn all_of(results: impl Iterator<Item = Result<(), Error>>) -> Result<(), Error> {
    let failures: Vec<Error> = results.filter_map(Result::err).collect();
    match failures.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        [first, ..] => {
            let texts: Vec<String> = failures.iter().map(ToString::to_string).collect();
            Err(Error::new(first.kind(), texts.join("\n")))
        }
    }
}

fn settle(has_synced: bool, error: Error) -> Result<(), Error> {
    if has_synced { Ok(()) } else { Err(error) }
}

fn too_late(name: &str) -> Error {
    let text = format!("informer {name} was not made because its set has stopped already");
    Error::new(ErrorKind::Stopped, text)
}
