//! The TTL store: what a reader was given is not taken back by what was on its way meanwhile (R11,
//! B18), answer by answer.

use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use k8s_openapi::api::core::v1::Secret;

use super::fake::{secret, too_large};
use super::stage::{MINUTE, Stage, millis, seconds, unavailable, version};
use crate::clock::Deadline;
use crate::error::{Error, ErrorKind};
use crate::list_watch::Getter;
use crate::manager::ChangeDetection;
use crate::object::{ObjectKey, ResourceVersion, StoredObject};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::worker::StopToken;

type Answer = Result<Secret, Error>;

/// A request that waits for the test to answer it.
struct Request {
    version: String,
    answer: Sender<Answer>,
}

impl Request {
    fn answer(self, answer: Answer) {
        self.answer.send(answer).unwrap();
    }
}

/// A getter whose every answer the test gives, in the order it likes.
struct ByHand(Sender<Request>);

impl Getter<Secret> for ByHand {
    fn get(
        &self,
        _: &ObjectKey,
        version: &ResourceVersion,
        _: Deadline,
        _: &StopToken,
    ) -> Result<Arc<StoredObject<Secret>>, Error> {
        let (answer, answered) = bounded(1);
        let request = Request {
            version: version.to_string(),
            answer,
        };
        self.0.send(request).unwrap();
        let answer = answered.recv().unwrap();
        answer.map(|secret| Arc::new(StoredObject::new(secret)))
    }
}

/// The Secret `s` is referenced; each request comes out of the receiver.
fn by_hand(ttl: Duration) -> (Stage, Receiver<Request>) {
    by_hand_with(ChangeDetection::Cache, ttl)
}

fn by_hand_with(mode: ChangeDetection, ttl: Duration) -> (Stage, Receiver<Request>) {
    let (send, requests) = unbounded();
    let stage = Stage::of(mode).over(|_| Arc::new(ByHand(send)));
    stage.ttl.set(Some(ttl));
    stage.add("s", "pod");
    (stage, requests)
}

/// The next request; a test whose request does not come fails.
fn next(requests: &Receiver<Request>) -> Request {
    requests.recv_timeout(MINUTE).unwrap()
}

/// Reads, and answers the one request that takes.
fn read(stage: &Stage, requests: &Receiver<Request>, asked: &str, answer: Answer) -> u64 {
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| stage.version("s"));
        let request = next(requests);
        assert_eq!(request.version, asked);
        request.answer(answer);
        reader.join().unwrap()
    })
}

fn absent() -> Answer {
    Err(Error::not_found("secrets", "s"))
}

/// R11: memory answers a read of a version, and is held to that answer as the server would be.
#[test]
fn r11_cached_reads_do_not_go_back_behind_a_version_that_memory_gave() {
    let stage = Stage::with_secret();
    let before = stage.source.version() - 1;
    let first = stage.version("s");
    stage.get_at_least("s", &first.to_string()).unwrap();
    assert_eq!(stage.requests(), 1, "memory gave it");
    stage.source.lag(Some(before));
    stage.expire();
    assert_eq!(stage.version("s"), first, "the absence was confirmed first");
    assert_eq!(stage.asked(), ["", "0", ""]);
}

/// R11: what was promised outlives the data that a further reference drops.
#[test]
fn r11_a_further_reference_takes_no_promise_back() {
    let stage = Stage::with_secret();
    let before = stage.source.version() - 1;
    let first = version(&stage.get_fresh("s").unwrap());
    stage.add("s", "other");
    assert_eq!(stage.version("s"), first);
    stage.source.lag(Some(before));
    stage.expire();
    assert_eq!(stage.version("s"), first);
    assert_eq!(stage.asked(), ["", "", "0", ""]);
}

/// R11: nor how far the server had come: a read of an older version is not answered from before
/// that.
#[test]
fn r11_a_further_reference_keeps_how_far_the_server_had_come() {
    let stage = Stage::with_secret();
    let first = stage.source.version();
    let second = stage.set("s");
    stage.get_fresh("s").unwrap();
    stage.source.lag(Some(first));
    stage.add("s", "other");
    let found = stage.get_at_least("s", &first.to_string()).unwrap();
    assert_eq!(version(&found), second);
    assert_eq!(stage.asked(), ["", &second.to_string()]);
}

/// R11: what a fresh read found gone does not come back out of a cache of the server's that lags.
#[test]
fn r11_a_read_of_a_version_does_not_bring_back_what_is_gone() {
    let (stage, requests) = by_hand(MINUTE);
    assert_eq!(read(&stage, &requests, "", Ok(secret("s", "6"))), 6);
    std::thread::scope(|scope| {
        let fresh = scope.spawn(|| stage.get_fresh("s").map(drop));
        next(&requests).answer(absent());
        assert!(fresh.join().unwrap().unwrap_err().is_not_found());
        let reader = scope.spawn(|| stage.get_at_least("s", "5").map(drop));
        let behind = next(&requests);
        assert_eq!(behind.version, "6");
        behind.answer(Ok(secret("s", "6")));
        assert!(reader.join().unwrap().unwrap_err().is_not_found());
    });
    assert!(stage.get_cached("s").is_none());
}

/// R11: an absence that was overtaken by a fresh read is nothing to tell those who came after that.
#[test]
fn r11_an_absence_from_before_a_fresh_read_is_not_shared_after_it() {
    let (stage, requests) = by_hand(Duration::ZERO);
    std::thread::scope(|scope| {
        let leader = scope.spawn(|| stage.get("s").map(drop));
        let slow = next(&requests);
        let fresh = scope.spawn(|| version(&stage.get_fresh("s").unwrap()));
        next(&requests).answer(Ok(secret("s", "7")));
        assert_eq!(fresh.join().unwrap(), 7);
        let late = scope.spawn(|| stage.version("s"));
        stage.clock.wait_for_parked(1);
        slow.answer(absent());
        assert!(leader.join().unwrap().unwrap_err().is_not_found());
        next(&requests).answer(Ok(secret("s", "7")));
        assert_eq!(late.join().unwrap(), 7);
    });
}

/// R11, B18 with OS-17: who begins to wait for a fetch after a fresh read does not go back behind
/// that, though a further reference has dropped what was read.
#[test]
fn r11_who_joins_a_fetch_after_a_fresh_read_does_not_go_back_behind_that() {
    let (stage, requests) = by_hand(Duration::ZERO);
    std::thread::scope(|scope| {
        let leader = scope.spawn(|| stage.version("s"));
        let slow = next(&requests);
        let fresh = scope.spawn(|| version(&stage.get_fresh("s").unwrap()));
        next(&requests).answer(Ok(secret("s", "7")));
        assert_eq!(fresh.join().unwrap(), 7);
        let late = scope.spawn(|| stage.version("s"));
        stage.clock.wait_for_parked(1);
        stage.add("s", "other");
        slow.answer(Ok(secret("s", "6")));
        assert_eq!(leader.join().unwrap(), 6, "it had asked before");
        next(&requests).answer(Ok(secret("s", "8")));
        assert_eq!(late.join().unwrap(), 8);
    });
}

/// B18 with OS-17: an answer of an entry that was dropped meanwhile is the known version of
/// its replacement.
#[test]
fn os_17_nobody_goes_back_behind_the_answer_of_a_record_that_was_dropped() {
    for by in ["a shared fetch", "a fresh read"] {
        let (stage, requests) = by_hand(MINUTE);
        std::thread::scope(|scope| {
            let early = scope.spawn(|| match by {
                "a fresh read" => version(&stage.get_fresh("s").unwrap()),
                _ => stage.version("s"),
            });
            let slow = next(&requests);
            stage.add("s", "other");
            assert_eq!(read(&stage, &requests, "", Ok(secret("s", "6"))), 6);
            slow.answer(Ok(secret("s", "7")));
            assert_eq!(early.join().unwrap(), 7);
        });
        assert_eq!(stage.version("s"), 7, "{by}");
        assert!(!stage.get("s").unwrap().is_stale(), "{by}");
    }
}

/// The same while the fetch of the one in its place is under way. OS-17: the earlier answer is not
/// served without a fetch.
#[test]
fn os_17_a_fetch_that_is_overtaken_by_the_answer_of_a_dropped_record_does_not_go_back_behind_it() {
    let (stage, requests) = by_hand(MINUTE);
    std::thread::scope(|scope| {
        let early = scope.spawn(|| version(&stage.get_fresh("s").unwrap()));
        let slow = next(&requests);
        stage.add("s", "other");
        let reader = scope.spawn(|| stage.version("s"));
        let second = next(&requests);
        assert_eq!(second.version, "");
        slow.answer(Ok(secret("s", "7")));
        assert_eq!(early.join().unwrap(), 7);
        assert!(stage.get_cached("s").is_none(), "fetched for nobody here");
        second.answer(Ok(secret("s", "6")));
        assert_eq!(reader.join().unwrap(), 7);
    });
    assert_eq!(stage.version("s"), 7);
    stage.expire();
    assert_eq!(read(&stage, &requests, "0", Ok(secret("s", "7"))), 7);
}

/// Each reader asks again about a known absence. An answer from before it does not hide it.
#[test]
fn os_17_the_answer_of_a_dropped_record_hides_no_absence() {
    let (stage, requests) = by_hand(MINUTE);
    std::thread::scope(|scope| {
        let early = scope.spawn(|| stage.version("s"));
        let slow = next(&requests);
        stage.add("s", "other");
        let reader = scope.spawn(|| stage.get("s").map(drop));
        next(&requests).answer(absent());
        assert!(reader.join().unwrap().unwrap_err().is_not_found());
        slow.answer(Ok(secret("s", "7")));
        assert_eq!(early.join().unwrap(), 7);
    });
    assert!(stage.get_cached("s").is_none());
    assert_eq!(read(&stage, &requests, "", Ok(secret("s", "8"))), 8);
}

/// B18 with OS-17: an answer that was given and not stored overtakes the fetch under way. Its
/// reader is told what its own request has found.
#[test]
fn b18_a_fetch_does_not_store_what_is_older_than_an_answer_that_was_given_meanwhile() {
    for by in ["a shared fetch", "a fresh read"] {
        let (stage, requests) = by_hand(MINUTE);
        std::thread::scope(|scope| {
            let early = scope.spawn(|| match by {
                "a fresh read" => version(&stage.get_fresh("s").unwrap()),
                _ => stage.version("s"),
            });
            let slow = next(&requests);
            stage.add("s", "other");
            let reader = scope.spawn(|| stage.get("s").map(drop));
            next(&requests).answer(absent());
            assert!(reader.join().unwrap().unwrap_err().is_not_found());
            let reader = scope.spawn(|| stage.version("s"));
            let further = next(&requests);
            slow.answer(Ok(secret("s", "7")));
            assert_eq!(early.join().unwrap(), 7);
            further.answer(Ok(secret("s", "6")));
            assert_eq!(reader.join().unwrap(), 6, "it had asked before");
        });
        assert!(stage.get_cached("s").is_none(), "{by}");
        assert_eq!(read(&stage, &requests, "", Ok(secret("s", "8"))), 8);
    }
}

/// B18 with OS-2: a leader whose answer lags asks again, past the server's cache, whenever the
/// further reference was added.
#[test]
fn b18_a_leader_whose_answer_lags_behind_a_reference_asks_again() {
    let (stage, requests) = by_hand(MINUTE);
    assert_eq!(read(&stage, &requests, "", Ok(secret("s", "7"))), 7);
    for (lagging, latest) in [(Ok(secret("s", "5")), "8"), (absent(), "9")] {
        stage.expire();
        std::thread::scope(|scope| {
            let leader = scope.spawn(|| stage.version("s"));
            let cached = next(&requests);
            assert_eq!(cached.version, "0");
            stage.add("s", "other");
            cached.answer(lagging);
            let again = next(&requests);
            assert_eq!(again.version, "");
            again.answer(Ok(secret("s", latest)));
            assert_eq!(leader.join().unwrap().to_string(), latest);
        });
    }
}

/// The age counts from the start of the request; the time to live, from its answer.
#[test]
fn the_age_of_an_answer_counts_from_the_start_of_its_request() {
    let slow = Duration::from_secs(10);
    for mode in [ChangeDetection::Cache, ChangeDetection::Get] {
        let (stage, requests) = by_hand_with(mode, MINUTE);
        for by in ["a get", "a fresh read", "a get that is superseded"] {
            stage.expire();
            let age = std::thread::scope(|scope| {
                let reader = scope.spawn(|| match by {
                    "a fresh read" => stage.get_fresh("s").unwrap().age(),
                    _ => stage.get("s").unwrap().age(),
                });
                let request = next(&requests);
                if by == "a get that is superseded" {
                    stage.add("s", "other");
                }
                stage.clock.advance(slow);
                request.answer(Ok(secret("s", "7")));
                reader.join().unwrap()
            });
            assert_eq!(age, slow, "{mode:?}, {by}");
        }
    }
    let (stage, requests) = by_hand(MINUTE);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| stage.version("s"));
        let request = next(&requests);
        stage.clock.advance(slow);
        request.answer(Ok(secret("s", "7")));
        assert_eq!(reader.join().unwrap(), 7);
    });
    stage.clock.advance(seconds(59));
    let cached = stage.get("s").unwrap();
    assert_eq!(cached.age(), seconds(69));
    assert_eq!(stage.inspect("s").since_contact, Some(cached.age()));
}

/// A shutdown ends the wait for a version also where a further reference dropped the data; the last
/// release ends it itself.
#[test]
fn r11_a_shutdown_and_the_last_release_end_the_wait_for_a_version() {
    for (added, removed) in [(&["s"][..], &[][..]), (&[][..], &["s"][..])] {
        let (stage, requests) = by_hand(MINUTE);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| stage.get_at_least("s", "9").map(drop));
            next(&requests).answer(Err(too_large()));
            stage.clock.wait_for_timer(millis(50));
            let owner = if removed.is_empty() { "other" } else { "pod" };
            stage.change(owner, added, removed);
            if removed.is_empty() {
                stage.manager.stop();
            }
            let error = reader.join().unwrap().unwrap_err();
            let expected = if removed.is_empty() {
                ErrorKind::Stopped
            } else {
                ErrorKind::NotRegistered
            };
            assert_eq!(error.kind(), expected);
        });
    }
}

/// B17: a fetch that fails says nothing about the age of what a fresh read brought meanwhile.
#[test]
fn b17_a_failure_does_not_make_stale_what_a_fresh_read_brought_meanwhile() {
    let (stage, requests) = by_hand(MINUTE);
    assert_eq!(read(&stage, &requests, "", Ok(secret("s", "6"))), 6);
    for answer in [Err(unavailable()), Ok(secret("s", "5"))] {
        stage.expire();
        std::thread::scope(|scope| {
            let leader = scope.spawn(|| stage.get("s").unwrap());
            let slow = next(&requests);
            let fresh = scope.spawn(|| version(&stage.get_fresh("s").unwrap()));
            next(&requests).answer(Ok(secret("s", "7")));
            assert_eq!(fresh.join().unwrap(), 7);
            slow.answer(answer);
            let led = leader.join().unwrap();
            assert_eq!(version(&led), 7);
            assert!(!led.is_stale(), "it is fresh by OS-6");
        });
    }
}

/// A server that changes the object with each request; its cache lags, and may know nothing of the
/// object yet.
#[derive(Default)]
struct Busy {
    version: AtomicU64,
    forgets: bool,
}

impl Getter<Secret> for Busy {
    fn get(
        &self,
        key: &ObjectKey,
        version: &ResourceVersion,
        _: Deadline,
        _: &StopToken,
    ) -> Result<Arc<StoredObject<Secret>>, Error> {
        let now = self
            .version
            .fetch_add(1, Ordering::SeqCst)
            .saturating_add(1);
        let lag = now % 7;
        let read = match version.to_string().as_str() {
            "" => now,
            "0" if self.forgets && lag == 3 => {
                std::thread::yield_now();
                return Err(Error::not_found("secrets", key.name()));
            }
            "0" => now.saturating_sub(lag).max(1),
            asked => now.saturating_sub(lag).max(asked.parse().unwrap()),
        };
        for _ in 0..lag {
            std::thread::yield_now();
        }
        Ok(Arc::new(StoredObject::new(secret(
            key.name(),
            &read.to_string(),
        ))))
    }
}

/// R11, B18: many threads that read in each way, while references come and go. No read that begins
/// after one that promised something goes back behind that; and where nothing is forgotten, no
/// reader's next answer goes back behind its last.
#[test]
fn r11_no_read_goes_back_whoever_reads_beside_it() {
    for forgets in [false, true] {
        let stage = Stage::caching().over(|_| {
            Arc::new(Busy {
                forgets,
                ..Busy::default()
            })
        });
        stage.add("s", "pod");
        let promised = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for reader in 0..4_u64 {
                let (stage, promised) = (&stage, &promised);
                scope.spawn(move || {
                    let mut last = 0;
                    for step in 0..400_u64 {
                        let before = promised.load(Ordering::SeqCst);
                        let way = (step + reader) % 5;
                        let wanted = ResourceVersion::from(last.max(1).to_string());
                        let never = Deadline::NEVER;
                        let found = match way {
                            0 => stage.manager.get_at_least("ns", "s", &"".into(), never),
                            1 => stage.manager.get_at_least("ns", "s", &wanted, never),
                            _ => stage.get_by("s", never),
                        };
                        let found = found.map_or(0, |secret| version(&secret));
                        assert!(
                            found >= before,
                            "way {way}: {found} after the promise of {before}"
                        );
                        assert!(forgets || found >= last, "{found} after {last}");
                        if way < 2 {
                            promised.fetch_max(found, Ordering::SeqCst);
                        }
                        last = found;
                    }
                });
            }
            for step in 0..200_u64 {
                stage.add("s", "other");
                stage.ttl.set((step % 3 == 0).then_some(Duration::ZERO));
                std::thread::yield_now();
                stage.delete("s", "other");
                stage.clock.advance(MINUTE);
            }
        });
    }
}
