//! The faults of a running server: added, met, listed and removed.

use std::collections::BTreeMap;

use super::act::{Act, Layer};
use super::fault::{Fault, FaultId};
use crate::sync::Mutex;
use crate::testing::http::message::RequestMessage;

/// The faults of a server, in the order in which they were added.
#[derive(Debug, Default)]
pub(in crate::testing) struct FaultBoard(Mutex<Faults>);

#[derive(Debug, Default)]
struct Faults {
    last: u64,
    armed: Vec<Armed>,
}

#[derive(Debug)]
struct Armed {
    id: FaultId,
    fault: Fault,
    /// By connection, or all under 0.
    counts: BTreeMap<u64, Counts>,
    /// The credentials of the first request that met it, for [`Act::Unauthorized`].
    refused: Option<String>,
}

#[derive(Debug, Default)]
struct Counts {
    seen: usize,
    met: usize,
}

/// The faults that a request meets.
#[derive(Debug, Default)]
pub(in crate::testing) struct Met {
    pub(in crate::testing) answer: Option<Act>,
    /// Those that change the answer, as whole faults: they know their objects.
    pub(in crate::testing) content: Vec<Fault>,
    pub(in crate::testing) wire: Option<Act>,
}

impl FaultBoard {
    pub(in crate::testing) fn new(faults: Vec<Fault>) -> Self {
        let board = Self::default();
        for fault in faults {
            board.add(fault);
        }
        board
    }

    pub(in crate::testing) fn add(&self, fault: Fault) -> FaultId {
        if fault.is_of_connections() && fault.names_requests() {
            log::error!(
                "test server: the fault {} meets nobody: it is one of connections, and names \
                 requests",
                fault.act.name()
            );
        }
        let mut faults = self.0.lock();
        faults.last = faults.last.saturating_add(1);
        let id = FaultId(faults.last);
        faults.armed.push(Armed {
            id,
            fault,
            counts: BTreeMap::new(),
            refused: None,
        });
        id
    }

    /// Removes a fault. Returns whether it existed.
    pub(in crate::testing) fn remove(&self, id: FaultId) -> bool {
        let mut faults = self.0.lock();
        let before = faults.armed.len();
        faults.armed.retain(|armed| armed.id != id);
        faults.armed.len() < before
    }

    pub(in crate::testing) fn clear(&self) {
        self.0.lock().armed.clear();
    }

    pub(in crate::testing) fn list(&self) -> Vec<(FaultId, Fault)> {
        let faults = self.0.lock();
        let armed = faults.armed.iter();
        armed.map(|armed| (armed.id, armed.fault.clone())).collect()
    }

    /// The first fault that the connection meets. Each fault counts it, even after another met it.
    pub(in crate::testing) fn connection(&self, number: u64) -> Option<Act> {
        let mut faults = self.0.lock();
        let mut met = None;
        for armed in &mut faults.armed {
            if armed.fault.is_about_connection(number) && armed.count(0) && met.is_none() {
                met = Some(armed.fault.act.clone());
            }
        }
        met
    }

    /// The faults that the request meets: the first that answers, the first that affects the
    /// sending, and all that change the answer. Each fault counts it, even after another met it.
    pub(in crate::testing) fn request(&self, request: &RequestMessage, connection: u64) -> Met {
        let mut faults = self.0.lock();
        let mut met = Met::default();
        for armed in &mut faults.armed {
            if !armed.fault.is_about(request, connection) || !armed.refuses(request) {
                continue;
            }
            let counted = if armed.fault.per_connection {
                connection
            } else {
                0
            };
            if !armed.count(counted) {
                continue;
            }
            let act = &armed.fault.act;
            match act.layer() {
                Layer::Connection => {}
                Layer::Answer => met.answer = met.answer.or_else(|| Some(act.clone())),
                Layer::Wire => met.wire = met.wire.or_else(|| Some(act.clone())),
                Layer::Content => met.content.push(armed.fault.clone()),
            }
        }
        met
    }
}

impl Armed {
    /// Counts a matching connection or request. Returns whether it meets the fault.
    fn count(&mut self, at: u64) -> bool {
        let counts = self.counts.entry(at).or_default();
        counts.seen = counts.seen.saturating_add(1);
        let meets = self.fault.meets(counts.seen, counts.met);
        if meets {
            counts.met = counts.met.saturating_add(1);
        }
        meets
    }

    /// Whether the request still has the refused token.
    fn refuses(&mut self, request: &RequestMessage) -> bool {
        if self.fault.act != Act::Unauthorized {
            return true;
        }
        let shown = request.header("authorization").unwrap_or_default();
        let refused = self.refused.get_or_insert_with(|| shown.to_owned());
        refused == shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::recording::Target;

    fn request(method: &str, target: &str) -> RequestMessage {
        RequestMessage {
            method: method.to_owned(),
            target: Target::parse(target),
            is_http_1_0: false,
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    /// Whether each of these requests meets a fault.
    fn met(fault: Fault, targets: &[&str]) -> Vec<bool> {
        let board = FaultBoard::new(vec![fault]);
        let asked = targets.iter().map(|target| {
            let (method, target) = target.split_once(' ').unwrap_or(("GET", target));
            let met = board.request(&request(method, target), 1);
            met.answer.is_some() || met.wire.is_some() || !met.content.is_empty()
        });
        asked.collect()
    }

    #[test]
    fn a_fault_meets_the_requests_it_names_and_no_others() {
        let fault = Fault::new(Act::Hang).on("/s").watches().from(2).times(2);
        let targets = [
            "/s?watch=1",
            "/s",
            "/t?watch=1",
            "/s?watch=1",
            "/s?watch=1",
            "/s?watch=1",
        ];
        assert_eq!(
            met(fault, &targets),
            [false, false, false, true, true, false]
        );
    }

    #[test]
    fn requests_are_named_by_verb_kind_namespace_name_and_path() {
        const DB: &str = "/api/v1/namespaces/shop/secrets/db";
        const ALL: &str = "/api/v1/secrets";
        const WATCH: &str = "/api/v1/namespaces/shop/secrets?watch=1&fieldSelector=\
            metadata.name%3Ddb";
        const OTHER: &str = "DELETE /apis/apps/v1/namespaces/ops/deployments/db";
        const CREATE: &str = "POST /api/v1/namespaces/shop/secrets";
        let all = [DB, ALL, WATCH, OTHER, CREATE];
        let fault = || Fault::new(Act::Hang);
        let rows = [
            (fault(), [true, true, true, true, true]),
            (fault().verb("get"), [true, false, false, false, false]),
            (fault().verb("list"), [false, true, false, false, false]),
            (fault().verb("watch"), [false, false, true, false, false]),
            (fault().verb("delete"), [false, false, false, true, false]),
            (fault().verb("create"), [false, false, false, false, true]),
            (fault().resource("secrets"), [true, true, true, false, true]),
            (fault().namespace("shop"), [true, false, true, false, true]),
            (fault().name("db"), [true, false, true, true, false]),
            (fault().under("/apis/"), [false, false, false, true, false]),
            (fault().connection(2), [false; 5]),
            (fault().every(2), [false, true, false, true, false]),
            (fault().from(2).every(2), [false, true, false, true, false]),
            (
                fault().every(2).times(1),
                [false, true, false, false, false],
            ),
            (fault().by_chance(1, 1.0), [true; 5]),
            (fault().by_chance(1, 0.0), [false; 5]),
        ];
        for (fault, expected) in rows {
            assert_eq!(met(fault.clone(), &all), expected, "{fault:?}");
        }
        let events = Fault::new(Act::NoEvents);
        assert_eq!(met(events, &all), [false, false, true, false, false]);
        let objects = Fault::new(Act::Unnamed).name("db");
        assert_eq!(met(objects, &all), [true; 5], "a list may have it");
    }

    #[test]
    fn a_request_for_a_subresource_is_one_for_its_object() {
        const WEB: &str = "PATCH /api/v1/namespaces/shop/pods/web/status";
        const DEPLOYED: &str = "PUT /apis/apps/v1/namespaces/shop/deployments/web/status";
        const SPACE: &str = "PUT /api/v1/namespaces/shop/finalize";
        const OTHER: &str = "PATCH /api/v1/namespaces/shop/pods/db/status";
        const POST: &str = "POST /api/v1/namespaces/shop/pods/web/eviction";
        let all = [WEB, DEPLOYED, SPACE, OTHER, POST];
        let fault = || {
            Fault::new(Act::Status {
                code: 409,
                reason: "Conflict".to_owned(),
                retry_after: None,
            })
        };
        let pod = || fault().resource("pods").namespace("shop").name("web");
        let deployment = fault().resource("deployments").namespace("shop");
        let rows = [
            (pod(), [true, false, false, false, true]),
            (pod().verb("patch"), [true, false, false, false, false]),
            (pod().verb("create"), [false, false, false, false, true]),
            (
                deployment.name("web").verb("update"),
                [false, true, false, false, false],
            ),
            (
                fault().resource("namespaces").name("shop"),
                [false, false, true, false, false],
            ),
        ];
        for (fault, expected) in rows {
            assert_eq!(met(fault.clone(), &all), expected, "{fault:?}");
        }
    }

    #[test]
    fn chance_is_of_its_seed_and_about_as_often_as_it_says() {
        let chosen = |seed| met(Fault::new(Act::Hang).by_chance(seed, 0.25), &["/a"; 1000]);
        assert_eq!(chosen(7), chosen(7));
        assert_ne!(chosen(7), chosen(8));
        let often = chosen(7).into_iter().filter(|met| *met).count();
        assert!((200..300).contains(&often), "{often}");
    }

    #[test]
    fn connections_and_their_requests_are_counted_apart() {
        let board = FaultBoard::new(vec![
            Fault::new(Act::Silent).every(3),
            Fault::new(Act::Hang).per_connection().from(2),
            Fault::new(Act::Refuse).verb("get"),
        ]);
        let met: Vec<_> = (1..=6)
            .map(|number| board.connection(number).is_some())
            .collect();
        assert_eq!(met, [false, false, true, false, false, true]);
        let asks = |connection| {
            board
                .request(&request("GET", "/a"), connection)
                .answer
                .is_some()
        };
        assert_eq!(
            [asks(1), asks(2), asks(1), asks(2)],
            [false, false, true, true]
        );
    }

    #[test]
    fn faults_come_and_go_by_their_number_and_one_of_each_layer_is_met() {
        let board = FaultBoard::new(vec![Fault::new(Act::Hang)]);
        let cut = board.add(Fault::new(Act::CutAfter(3)));
        board.add(Fault::new(Act::Html));
        board.add(Fault::new(Act::Unnamed));
        board.add(Fault::new(Act::Undecodable));
        let met = board.request(&request("GET", "/a"), 1);
        assert_eq!(met.answer, Some(Act::Hang));
        assert_eq!(met.wire, Some(Act::CutAfter(3)));
        assert_eq!(met.content.len(), 2);
        assert!(board.remove(cut));
        assert!(!board.remove(cut));
        assert_eq!(board.request(&request("GET", "/a"), 1).wire, None);
        assert_eq!(board.list().len(), 4);
        board.clear();
        assert!(board.list().is_empty());
    }

    #[test]
    fn a_token_is_refused_until_it_is_another() {
        let board = FaultBoard::new(vec![Fault::new(Act::Unauthorized)]);
        let shows = |token: &str| {
            let mut request = request("GET", "/a");
            request
                .headers
                .push(("authorization".to_owned(), token.to_owned()));
            board.request(&request, 1).answer.is_some()
        };
        let tokens = ["old", "old", "new", "old", "new"];
        assert_eq!(tokens.map(shows), [true, true, false, true, false]);
    }
}
