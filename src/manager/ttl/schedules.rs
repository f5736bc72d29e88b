//! Model checks: readers, a leader's end of every kind, references and the shutdown in every order,
//! without real threads.

#[cfg(feature = "snapshot")]
use std::any::Any;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use shuttle::scheduler::RandomScheduler;
use shuttle::{Config, Runner, thread};

use super::entry::{Completion, NextStep, TtlEntry};
use super::store::TtlStore;
use crate::clock::{Clock, Deadline, FakeClock};
use crate::error::{Error, ErrorKind};
use crate::list_watch::Getter;
use crate::manager::Cached;
use crate::manager::entry::object_entry::AnswerContext;
use crate::manager::kinds::KindTraits;
use crate::manager::options::ManagerOptions;
use crate::manager::references::{Owner, ReferenceChange};
use crate::manager::registry::Registry;
#[cfg(feature = "snapshot")]
use crate::manager::seeds::{KeptObjects, Seed, SeedEnd, SeedSource};
use crate::manager::strategy::Strategy as _;
use crate::manager::tests::fake::secret;
use crate::object::{ObjectKey, ResourceVersion, Status, StoredObject};
use crate::sync::{Arc, Monitor};
#[cfg(feature = "snapshot")]
use crate::sync::{Mutex, Rank};
use crate::worker::{StopToken, Wake};

/// Schedules per model: enough to find each bug that was put in on purpose while the models were
/// written.
const SCHEDULES: usize = 2_000;

/// Bytes of stack per modelled thread.
const STACK_BYTES: usize = 256 * 1024;

fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    Runner::new(RandomScheduler::new(SCHEDULES), config).run(model);
}

/// How the model's server answers the first request; the others get the object, in the request's
/// number as version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    Answers,
    Fails,
    Panics,
    /// It answers no reader before the reader's deadline.
    LetsDeadlinesPass,
    /// It answers no reader.
    Hangs,
    /// It has not come as far as the reader wants.
    IsBehind,
    /// A reader of a version gets that one and none newer, and a reader of any version the first.
    Lags,
    /// The first answer is the newest of three: the second is that there is no object, and the
    /// third an older one.
    IsSlow,
}

#[derive(Clone)]
struct Server {
    clock: Clock,
    first: First,
    asked: Arc<Monitor<usize>>,
}

struct WakeServer(Arc<Monitor<usize>>);

impl Wake for WakeServer {
    fn wake(&self) {
        drop(self.0.lock());
        self.0.notify_all();
    }
}

impl Server {
    /// Waits for a reader that is about to ask. Random schedules of few steps seldom run it first.
    fn wait_for_asked(&self) {
        let mut asked = self.asked.lock();
        while *asked == 0 {
            asked = self.asked.wait(asked);
        }
    }

    /// The first answer waits for the third request.
    fn slow(&self, number: usize, key: &ObjectKey) -> Result<Arc<StoredObject<Secret>>, Error> {
        let version = match number {
            1 => {
                let mut asked = self.asked.lock();
                while *asked < 3 {
                    asked = self.asked.wait(asked);
                }
                "7"
            }
            2 => return Err(Error::not_found("secrets", key.name())),
            3 => "6",
            _ => "8",
        };
        Ok(Arc::new(StoredObject::new(secret("s", version))))
    }

    fn asked(&self) -> usize {
        *self.asked.lock()
    }

    fn wait(&self, deadline: Deadline, stop: &StopToken) -> Error {
        let wake: Arc<dyn Wake> = Arc::new(WakeServer(Arc::clone(&self.asked)));
        let _registration = stop.register(&wake);
        let mut asked = self.asked.lock();
        while !stop.is_stopped() {
            if self.clock.has_passed(deadline) {
                return Error::new(ErrorKind::Timeout, "no answer by the deadline");
            }
            asked = self.clock.wait_until(&self.asked, asked, deadline);
        }
        Error::stopped("the model's server")
    }
}

impl Getter<Secret> for Server {
    fn get(
        &self,
        key: &ObjectKey,
        version: &ResourceVersion,
        deadline: Deadline,
        stop: &StopToken,
    ) -> Result<Arc<StoredObject<Secret>>, Error> {
        let number = {
            let mut asked = self.asked.lock();
            *asked += 1;
            *asked
        };
        self.asked.notify_all();
        let found = || {
            Ok(Arc::new(StoredObject::new(secret(
                "s",
                &number.to_string(),
            ))))
        };
        match self.first {
            First::Fails if number == 1 => Err(Error::from_status(Status::new(503, "down"))),
            First::Panics if number == 1 => panic!("made so for a model"),
            First::LetsDeadlinesPass if deadline != Deadline::NEVER => {
                Err(self.wait(deadline, stop))
            }
            First::Hangs => Err(self.wait(Deadline::NEVER, stop)),
            First::IsBehind if !version.is_unset() => Err(behind()),
            First::Lags if version.as_str() == "0" => {
                Ok(Arc::new(StoredObject::new(secret("s", "1"))))
            }
            First::Lags if !version.is_unset() => {
                Ok(Arc::new(StoredObject::new(secret("s", version.as_str()))))
            }
            First::IsSlow => self.slow(number, key),
            First::Answers
            | First::Fails
            | First::Panics
            | First::LetsDeadlinesPass
            | First::IsBehind
            | First::Lags => found(),
        }
    }
}

/// "The version lies in the future", as the API says it (RF-13).
fn behind() -> Error {
    Error::from_status(Status::from(meta::Status {
        code: Some(504),
        reason: Some("Timeout".to_owned()),
        message: Some("Timeout: Too large resource version".to_owned()),
        details: Some(meta::StatusDetails::default()),
        ..meta::Status::default()
    }))
}

#[derive(Clone)]
struct Model {
    store: Arc<TtlStore<Secret>>,
    server: Server,
    clock: FakeClock,
}

type Read = thread::JoinHandle<Result<Cached<Secret>, Error>>;

impl Model {
    fn new(first: First, ttl: Duration) -> Self {
        let fake = FakeClock::new();
        let clock = Clock::from(fake.clone());
        let server = Server {
            clock: clock.clone(),
            first,
            asked: Arc::new(Monitor::new(0)),
        };
        let options = ManagerOptions::default().clock(clock).ttl(ttl);
        let store = TtlStore::new(Registry::new(
            KindTraits::default(),
            Arc::new(server.clone()),
            options,
        ));
        let model = Self {
            store: Arc::new(store),
            server,
            clock: fake,
        };
        model.change(&["s"], &[]);
        model
    }

    fn change(&self, added: &[&str], removed: &[&str]) {
        let owner = Owner::new("Pod", ObjectKey::new("ns", "pod"));
        for name in added {
            let add = ReferenceChange::Add(ObjectKey::new("ns", *name));
            self.store.change_references(&owner, add);
        }
        for name in removed {
            let remove = ReferenceChange::Remove(ObjectKey::new("ns", *name));
            self.store.change_references(&owner, remove);
        }
    }

    fn get(&self, deadline: Deadline) -> Result<Cached<Secret>, Error> {
        self.store.get("ns", "s", &|| deadline)
    }

    /// A reader that waits for as long as it takes; whatever the answer, it must come.
    fn reader(&self) -> Read {
        let model = self.clone();
        thread::spawn(move || model.get(Deadline::NEVER))
    }

    fn readers(&self, count: usize) -> Vec<Read> {
        (0..count).map(|_| self.reader()).collect()
    }
}

const MINUTE: Duration = Duration::from_secs(60);

fn version(secret: &Secret) -> usize {
    let version = secret.metadata.resource_version.as_deref();
    version.unwrap().parse().unwrap()
}

/// OS-5: the first reader fetches, and all readers get that answer.
#[test]
fn os_5_readers_share_one_fetch_in_every_order() {
    check(|| {
        let model = Model::new(First::Answers, MINUTE);
        for reader in model.readers(3) {
            assert_eq!(version(&reader.join().unwrap().unwrap()), 1);
        }
        assert_eq!(model.server.asked(), 1);
    });
}

/// OS-5, OS-6: without a time to live each reader makes a request of its own, and none is
/// forgotten.
#[test]
fn os_5_readers_without_a_time_to_live_fetch_one_after_the_other() {
    check(|| {
        let model = Model::new(First::Answers, Duration::ZERO);
        let mut versions: Vec<usize> = model
            .readers(3)
            .into_iter()
            .map(|reader| version(&reader.join().unwrap().unwrap()))
            .collect();
        versions.sort_unstable();
        assert_eq!(versions, [1, 2, 3]);
    });
}

/// B17: all readers get a failure, by the fetch or by its backoff.
#[test]
fn b17_a_failure_is_shared_in_every_order() {
    check(|| {
        let model = Model::new(First::Fails, MINUTE);
        for reader in model.readers(3) {
            let error = reader.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Api);
        }
        assert_eq!(model.server.asked(), 1);
    });
}

/// A leader whose deadline passes is followed by a reader that has more time.
#[test]
fn b17_a_leader_out_of_time_hands_over_in_every_order() {
    check(|| {
        let model = Model::new(First::LetsDeadlinesPass, MINUTE);
        let hasty = {
            let deadline = Deadline::at(model.clock.now() + Duration::from_millis(1));
            let model = model.clone();
            thread::spawn(move || model.get(deadline))
        };
        let patient = model.readers(2);
        let clock = model.clock.clone();
        let advance = thread::spawn(move || clock.advance(Duration::from_millis(1)));
        for reader in patient {
            reader.join().unwrap().unwrap();
        }
        advance.join().unwrap();
        if let Err(error) = hasty.join().unwrap() {
            assert_eq!(error.kind(), ErrorKind::NotSynced);
        }
    });
}

/// A getter that panics is a failure: its readers share it, and none of them waits for ever.
#[test]
fn os_5_a_getter_that_panics_is_a_failure_in_every_order() {
    check(|| {
        let model = Model::new(First::Panics, MINUTE);
        let readers: Vec<_> = (0..3)
            .map(|_| {
                let model = model.clone();
                thread::spawn(move || model.get(Deadline::NEVER).map(drop))
            })
            .collect();
        let results: Vec<_> = readers
            .into_iter()
            .map(|reader| reader.join().unwrap())
            .collect();
        let failures: Vec<_> = results.into_iter().filter_map(Result::err).collect();
        assert!(!failures.is_empty());
        assert!(
            failures
                .iter()
                .all(|error| error.kind() == ErrorKind::Panicked)
        );
    });
}

/// OS-2, OS-17: a read after an added reference returns what was fetched after it. Readers that
/// waited get an answer, and none goes back (B18).
#[test]
fn os_17_a_new_reference_parts_the_readers_in_every_order() {
    check(|| {
        let model = Model::new(First::Answers, MINUTE);
        let early: Vec<_> = (0..2)
            .map(|_| {
                let model = model.clone();
                thread::spawn(move || {
                    let [first, second] =
                        [(); 2].map(|()| version(&model.get(Deadline::NEVER).unwrap()));
                    assert!(second >= first);
                })
            })
            .collect();
        let adder = {
            let model = model.clone();
            thread::spawn(move || {
                let before = model.server.asked();
                model.change(&["s"], &[]);
                let found = version(&model.get(Deadline::NEVER).unwrap());
                assert!(found > before, "fetched after the reference was added");
                let late = model.reader();
                assert!(version(&late.join().unwrap().unwrap()) >= found);
                found
            })
        };
        for reader in early {
            reader.join().unwrap();
        }
        let found = adder.join().unwrap();
        assert!(model.server.asked() <= 2);
        assert!(version(&model.get(Deadline::NEVER).unwrap()) >= found);
    });
}

/// R11 with OS-2: a reference that is added while a fresh read is under way does not take
/// readers back behind it.
#[test]
fn r11_a_new_reference_does_not_lead_behind_a_fresh_read() {
    check(|| {
        let model = Model::new(First::Answers, MINUTE);
        let adder = {
            let model = model.clone();
            thread::spawn(move || {
                model.change(&["s"], &[]);
                model.get(Deadline::NEVER).unwrap();
            })
        };
        let fresh = model
            .store
            .get_at_least("ns", "s", &"".into(), Deadline::NEVER)
            .unwrap();
        let cached = model.get(Deadline::NEVER).unwrap();
        assert!(version(&cached) >= version(&fresh));
        adder.join().unwrap();
    });
}

/// R11, B18 with OS-2: a reference that is added just as a fresh read comes back does not take the
/// next reader of a version behind it.
#[test]
fn r11_a_new_reference_does_not_lead_a_read_of_a_version_behind_a_fresh_one() {
    check(|| {
        let model = Model::new(First::Lags, MINUTE);
        assert_eq!(version(&model.get(Deadline::NEVER).unwrap()), 1);
        let adder = {
            let model = model.clone();
            thread::spawn(move || model.change(&["s"], &[]))
        };
        let fresh = model
            .store
            .get_at_least("ns", "s", &"".into(), Deadline::NEVER)
            .unwrap();
        let wanted = ResourceVersion::from("1");
        let late = model
            .store
            .get_at_least("ns", "s", &wanted, Deadline::NEVER);
        assert!(version(&late.unwrap()) >= version(&fresh));
        adder.join().unwrap();
    });
}

/// B18 with OS-2: a reference that is added at any time during a fetch out of the server's cache
/// does not take the reader behind what it has read before.
#[test]
fn b18_a_new_reference_does_not_let_an_answer_that_lags_through() {
    check(|| {
        let model = Model::new(First::Lags, MINUTE);
        assert_eq!(version(&model.get(Deadline::NEVER).unwrap()), 1);
        let latest = "".into();
        let fresh = model
            .store
            .get_at_least("ns", "s", &latest, Deadline::NEVER);
        assert_eq!(version(&fresh.unwrap()), 2);
        model.clock.advance(MINUTE);
        let adder = {
            let model = model.clone();
            thread::spawn(move || model.change(&["s"], &[]))
        };
        let follower = model.reader();
        assert!(version(&model.get(Deadline::NEVER).unwrap()) >= 2);
        assert!(version(&follower.join().unwrap().unwrap()) >= 2);
        adder.join().unwrap();
    });
}

/// B18 with OS-17: the answer of a fetch that began before a further reference overtakes each fetch
/// that is under way when it is given, although it is not stored.
#[test]
fn b18_an_answer_that_is_not_stored_overtakes_the_fetches_under_way() {
    check(|| {
        let model = Model::new(First::IsSlow, MINUTE);
        let slow = model.reader();
        model.server.wait_for_asked();
        model.change(&["s"], &[]);
        assert!(model.get(Deadline::NEVER).unwrap_err().is_not_found());
        let further = model.reader();
        let first = version(&slow.join().unwrap().unwrap());
        let second = version(&model.get(Deadline::NEVER).unwrap());
        assert!(second >= first, "{second} after {first}");
        assert!(version(&further.join().unwrap().unwrap()) >= 6);
        assert!(version(&model.get(Deadline::NEVER).unwrap()) >= second);
    });
}

/// OS-3, OS-4: the last release ends no fetch. Readers that waited get an answer; later ones do
/// not.
#[test]
fn os_3_the_last_release_leaves_nobody_waiting() {
    check(|| {
        let model = Model::new(First::Answers, MINUTE);
        let readers = model.readers(2);
        model.change(&[], &["s"]);
        assert!(model.get(Deadline::NEVER).is_err());
        for reader in readers {
            if let Err(error) = reader.join().unwrap() {
                assert_eq!(error.kind(), ErrorKind::NotRegistered);
            }
        }
    });
}

/// A shutdown ends every fetch and every wait.
#[test]
fn os_5_a_shutdown_ends_every_wait() {
    check(|| {
        let model = Model::new(First::Hangs, MINUTE);
        let readers = model.readers(3);
        model.server.wait_for_asked();
        model.store.stop();
        for reader in readers {
            assert!(reader.join().unwrap().unwrap_err().is_stopped());
        }
        assert_eq!(model.server.asked(), 1);
    });
}

/// R11: whatever is under way, a cached read after a fresh one is not older.
#[test]
fn r11_cached_reads_stay_behind_a_fresh_one_in_every_order() {
    check(|| {
        let model = Model::new(First::Answers, MINUTE);
        let readers = model.readers(2);
        let fresh = model
            .store
            .get_at_least("ns", "s", &"".into(), Deadline::NEVER)
            .unwrap();
        let cached = model.get(Deadline::NEVER).unwrap();
        assert!(version(&cached) >= version(&fresh));
        for reader in readers {
            reader.join().unwrap().unwrap();
        }
        let last = model.get(Deadline::NEVER).unwrap();
        assert!(version(&last) >= version(&cached));
    });
}

/// R11: the read that brings a version wakes the readers that wait for it. No time passes in this
/// model.
#[test]
fn r11_a_wait_for_a_version_is_ended_by_another_read() {
    check(|| {
        let model = Model::new(First::IsBehind, MINUTE);
        let waits = {
            let store = Arc::clone(&model.store);
            let wanted = ResourceVersion::from("1");
            thread::spawn(move || store.get_at_least("ns", "s", &wanted, Deadline::NEVER))
        };
        model.server.wait_for_asked();
        model
            .store
            .get_at_least("ns", "s", &"".into(), Deadline::NEVER)
            .unwrap();
        waits.join().unwrap().unwrap();
    });
}

/// R11: and by a shutdown.
#[test]
fn r11_a_wait_for_a_version_is_ended_by_a_shutdown() {
    check(|| {
        let model = Model::new(First::IsBehind, MINUTE);
        let waits = {
            let store = Arc::clone(&model.store);
            let wanted = ResourceVersion::from("9");
            thread::spawn(move || store.get_at_least("ns", "s", &wanted, Deadline::NEVER))
        };
        model.server.wait_for_asked();
        model.store.stop();
        assert!(waits.join().unwrap().unwrap_err().is_stopped());
    });
}

/// The shape of a shared fetch with the real entry: one leads, the other follows; `tells` says
/// whether the end of the fetch is told.
fn share_a_fetch(tells: bool) {
    let clock = Clock::from(FakeClock::new());
    let entry = Arc::new(Monitor::new(TtlEntry::<Secret>::new(
        KindTraits::default(),
        true,
    )));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (entry, clock) = (Arc::clone(&entry), clock.clone());
            thread::spawn(move || read_bare(&entry, &clock, tells))
        })
        .collect();
    for reader in readers {
        reader.join().unwrap();
    }
}

fn read_bare(entry: &Arc<Monitor<TtlEntry<Secret>>>, clock: &Clock, tells: bool) {
    let key = ObjectKey::new("ns", "s");
    let at = AnswerContext {
        key: &key,
        clock,
        now: clock.now(),
        coarse: clock.coarse(),
        ttl: MINUTE,
    };
    let mut waited_for = None;
    let mut guard = entry.lock();
    loop {
        match guard.next_step(&at, waited_for) {
            NextStep::Wait(number) => {
                waited_for = Some(number);
                guard = clock.wait_until(entry, guard, Deadline::NEVER);
            }
            NextStep::Fetch => {
                let fetch = guard.start_fetch(&at);
                drop(guard);
                let found = Ok(Arc::new(StoredObject::new(secret("s", "1"))));
                let completed = entry.lock().complete(&fetch, found, false, &at);
                assert!(matches!(completed, Completion::Done(Ok(_), _)));
                if tells {
                    entry.notify_all();
                }
                return;
            }
            NextStep::Return(result) => {
                result.unwrap();
                return;
            }
            NextStep::FindAgain => panic!("the object is referenced"),
        }
    }
}

#[test]
fn a_fetch_whose_end_is_told_leaves_nobody_waiting() {
    check(|| share_a_fetch(true));
}

/// The negative control: the checker sees that a follower sleeps on when the end of a fetch is not
/// told.
#[test]
#[should_panic(expected = "deadlock")]
fn the_checker_sees_a_fetch_whose_end_is_not_told() {
    check(|| share_a_fetch(false));
}

/// The snapshot of the process before: a seed of `t`.
#[cfg(feature = "snapshot")]
struct Left {
    is_unclaimed: bool,
    /// The first reference has gone.
    is_released: bool,
    /// It was claimed after that.
    is_of_the_next: bool,
}

#[cfg(feature = "snapshot")]
#[derive(Clone)]
struct OneSeed(Arc<Mutex<Left>>);

#[cfg(feature = "snapshot")]
impl SeedSource<Secret> for OneSeed {
    fn look(&self, key: &ObjectKey, clock: &Clock) -> Option<Seed<Secret>> {
        let left = self.0.lock();
        (left.is_unclaimed && key.name() == "t").then(|| Seed {
            object: Arc::new(StoredObject::new(secret("t", "3"))),
            contact: clock.now(),
        })
    }

    fn claim(&self, _: &ObjectKey) -> Option<Arc<dyn Any + Send + Sync>> {
        let mut left = self.0.lock();
        if std::mem::take(&mut left.is_unclaimed) {
            left.is_of_the_next = left.is_released;
        }
        None
    }

    fn claim_owner(&self, _: &Owner) {}

    fn is_over(&self) -> bool {
        false
    }

    fn ended(&self, _: &ObjectKey, _: SeedEnd) {}
}

#[cfg(feature = "snapshot")]
fn with_one_seed() -> (Model, OneSeed, Arc<dyn KeptObjects<Secret>>) {
    let model = Model::new(First::Answers, MINUTE);
    let left = Left {
        is_unclaimed: true,
        is_released: false,
        is_of_the_next: false,
    };
    let seeds = OneSeed(Arc::new(Mutex::ranked(Rank::SNAPSHOT_PARTS, left)));
    let registry = model.store.kept_objects().unwrap();
    drop(registry.seed_from(Arc::new(seeds.clone())).unwrap());
    (model, seeds, registry)
}

/// A file has what is unclaimed, and then what the manager keeps.
#[cfg(feature = "snapshot")]
#[test]
fn a_seed_is_with_its_source_or_with_its_entry_in_every_order() {
    check(|| {
        let (model, seeds, registry) = with_one_seed();
        let adder = thread::spawn(move || model.change(&["t"], &[]));
        let is_unclaimed = seeds.0.lock().is_unclaimed;
        let is_kept = registry.kept().iter().any(|kept| kept.key.name() == "t");
        assert!(is_unclaimed || is_kept);
        adder.join().unwrap();
    });
}

/// The entry of a reference that is gone claims nothing.
#[cfg(feature = "snapshot")]
#[test]
fn a_seed_is_claimed_for_an_entry_that_is_referenced_in_every_order() {
    check(|| {
        let (model, seeds, registry) = with_one_seed();
        let first = model.clone();
        let adder = thread::spawn(move || first.change(&["t"], &[]));
        while model.store.get_cached("ns", "t").is_err() {
            thread::yield_now();
        }
        model.change(&[], &["t"]);
        seeds.0.lock().is_released = true;
        model.change(&["t"], &[]);
        adder.join().unwrap();
        if seeds.0.lock().is_of_the_next {
            assert!(registry.kept().iter().any(|kept| kept.key.name() == "t"));
        }
    });
}
