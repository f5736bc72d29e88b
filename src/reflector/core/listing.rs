//! A plain list: which version, how many items per page, and what follows each page (RF-9..RF-18,
//! PG-1..PG-6).

use std::time::Duration;

use crate::error::Error;
use crate::list_watch::{ListPage, ListRequest, Pages, VersionMatch};
use crate::object::ResourceVersion;
use crate::policy::{NextRequest, PolicyRequest, WaitRule};
use crate::reflector::Phase;

use super::messages::Action;
use super::state::History;
use super::steps::{AfterPause, Core, CoreStep, Cycle, Listing, use_up};

/// Items per page: large enough for few requests, small enough for the server's memory (PG-1).
const PAGE_SIZE: u32 = 500;
impl Core {
    /// Asks for the first page: at the most recent version if the last one is unavailable, at `0`
    /// before the first success, otherwise at the last version (RF-9).
    pub(super) fn list(&mut self, cycle: Cycle) -> Action {
        let asked = if self.state.history == History::Unavailable {
            ResourceVersion::most_recent()
        } else if self.state.version().is_empty() {
            ResourceVersion::any()
        } else {
            self.state.version().clone()
        };
        self.list_at(asked, cycle, false)
    }

    pub(super) fn list_at(
        &mut self,
        asked: ResourceVersion,
        cycle: Cycle,
        is_probe: bool,
    ) -> Action {
        let page_size = self.page_size(&asked);
        let listing = Listing {
            asked,
            asked_at: self.facts.now,
            age: Duration::ZERO,
            page_size,
            version: None,
            token: None,
            pages: Pages::default(),
            cycle,
            is_probe,
        };
        self.ask(listing, page_size)
    }

    /// RF-10: for a version that is neither `0` nor empty the server answers from its cache, which
    /// does not page.
    fn page_size(&self, asked: &ResourceVersion) -> u32 {
        match self.state.page_size {
            Some(size) => size,
            None if self.state.paged || asked.is_unset() => PAGE_SIZE,
            None => 0,
        }
    }

    /// Asks for the first page of a list, at most `limit` items.
    fn ask(&mut self, mut listing: Listing, limit: u32) -> Action {
        self.state.status.phase = Phase::Listing;
        // With a limit alone, the server takes the version for the exact one: such a list tells
        // nothing of what came later, and would confirm an old state.
        let at_least = limit > 0 && !listing.asked.is_unset();
        let request = ListRequest {
            resource_version: listing.asked.clone(),
            version_match: at_least.then_some(VersionMatch::NotOlderThan),
            limit,
            urgent: self.facts.urgent,
            ..ListRequest::default()
        };
        (listing.asked_at, listing.age) = (self.facts.now, Duration::ZERO);
        (listing.version, listing.token) = (None, None);
        listing.pages = Pages::default();
        self.step = CoreStep::Listing(listing);
        Action::List {
            request,
            fresh: true,
        }
    }

    /// Asks for the same list at the most recent version, at once, as the last answer requires
    /// (RF-12, B4).
    fn ask_most_recent(&mut self, mut listing: Listing) -> Action {
        listing.asked = ResourceVersion::most_recent();
        let limit = listing.page_size;
        self.ask(listing, limit)
    }

    pub(super) fn page(&mut self, mut listing: Listing, page: ListPage, is_empty: bool) -> Action {
        let token = match listing.pages.next(page.continue_token, is_empty) {
            Ok(token) => token,
            Err(error) => return self.page_failed(listing, error),
        };
        self.state.progress(self.facts.now);
        self.state.lives_again();
        listing.age = listing.age.max(page.age);
        match token {
            Some(token) => {
                listing.version.get_or_insert(page.resource_version);
                listing.token = Some(token);
                self.next_page(listing)
            }
            None => self.listed(listing, page.resource_version),
        }
    }

    /// Asks again for the list from its first page, or for the page that was refused.
    pub(super) fn ask_again(&mut self, listing: Listing) -> Action {
        if listing.token.is_some() {
            return self.next_page(listing);
        }
        let limit = listing.page_size;
        self.ask(listing, limit)
    }

    fn next_page(&mut self, listing: Listing) -> Action {
        self.state.status.phase = Phase::Listing;
        if listing.asked == ResourceVersion::any() {
            self.state.paged = true;
        }
        let request = ListRequest {
            limit: listing.page_size,
            continue_token: listing.token.clone(),
            urgent: self.facts.urgent,
            ..ListRequest::default()
        };
        self.step = CoreStep::Listing(listing);
        Action::List {
            request,
            fresh: false,
        }
    }

    /// Publishes the list after its last page, unless it is older than the known version (B4).
    fn listed(&mut self, mut listing: Listing, version: ResourceVersion) -> Action {
        let version = listing.version.take().unwrap_or(version);
        if !listing.asked.is_empty() && self.state.is_older_than_known(&version) {
            if use_up(&mut listing.cycle.most_recent) {
                return self.ask_most_recent(listing);
            }
            return self.stale(&version);
        }
        // Not every clock counts back beyond the machine's start.
        let confirmed_at = listing.asked_at.checked_sub(listing.age);
        let of = (version, confirmed_at.unwrap_or(listing.asked_at));
        self.commit(&listing.asked, of, listing.cycle, None)
    }

    pub(super) fn page_failed(&mut self, mut listing: Listing, error: Error) -> Action {
        let at_a_version = !listing.asked.is_unset();
        let request = match (&listing.token, at_a_version) {
            (Some(_), _) if !listing.cycle.full_list => PolicyRequest::LaterPage,
            (_, true) => PolicyRequest::ListAt,
            (_, false) => PolicyRequest::List,
        };
        let was_most_recent = listing.asked.is_empty() || listing.cycle.most_recent;
        let step = self.state.after(request, &error, was_most_recent);
        match (step.next, step.wait) {
            (NextRequest::ListWhole, _) => {
                listing.cycle.full_list = true;
                return self.ask(listing, 0);
            }
            (NextRequest::MostRecent, wait) => {
                self.state.history = History::Unavailable;
                if wait == WaitRule::AtOnce && !was_most_recent {
                    return self.ask_most_recent(listing);
                }
            }
            _ => {}
        }
        let has_status = error.status().is_some();
        let error = error.asked_as(&format!("failed to list {}", self.state.what));
        if listing.is_probe && step.next != NextRequest::MostRecent {
            return self.fail(error, step.wait, AfterPause::Probe);
        }
        self.state.fell_behind(self.facts.now);
        // Without an answer, part of the page may be staged already.
        let next = if step.next == NextRequest::Same && has_status {
            AfterPause::Again(listing)
        } else {
            AfterPause::Cycle
        };
        self.fail(error, step.wait, next)
    }
}
