//! Random histories of a server, with broken watches, expiries and lists, into whole informers: in
//! the end the store, its index and each handler's view equal the server, each object's
//! notifications came in order, and no deletion was lost. Handlers come and go at any time. Most
//! have small queues and pause for long, so that the queues coalesce; resyncs come in between.

#![expect(clippy::arithmetic_side_effects, reason = "a test fails by panicking")]

use super::*;
use crate::object::ObjectKey;
use crate::tests::dice::Dice;
use crate::tests::until::until;

/// Histories per run of the test.
const HISTORIES: u64 = 50;
/// Steps of one history.
const STEPS: usize = 150;
/// Handlers at one time.
const HANDLERS_MAX: usize = 6;
/// How often the informer resyncs.
const RESYNC: Duration = Duration::from_secs(5);
/// How long nothing may come before the test gives up.
const PATIENCE: Duration = Duration::from_secs(5 * 60);

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

fn pick<T: Copy>(dice: &mut Dice, of: &[T]) -> T {
    let sides = u64::try_from(of.len()).unwrap();
    of[usize::try_from(dice.roll(sides)).unwrap()]
}

/// The values of an object in the index `digit`: so few that objects share them, and each change
/// moves an object.
fn digits(object: &ConfigMap) -> Vec<String> {
    let version = object.metadata.resource_version.clone().unwrap();
    version.chars().map(String::from).collect()
}

/// Counts the events in the histories of one test, so that a test in which nothing happens fails.
#[derive(Debug, Default)]
struct Tally {
    lists: usize,
    resyncs: usize,
    missed: usize,
    removed: usize,
    coalesced: u64,
    undecodable: usize,
    refused: u64,
}

impl Tally {
    fn assert_full(&self) {
        let counts = [
            self.lists,
            self.resyncs,
            self.missed,
            self.removed,
            self.undecodable,
        ];
        let counts = counts.iter().all(|count| *count > 0);
        assert!(counts && self.coalesced > 0 && self.refused > 0, "{self:?}");
    }
}

/// Fails the test, by name, if something does not come.
struct Patience<'a> {
    what: &'a str,
    context: &'a str,
    ends: Deadline,
}

impl<'a> Patience<'a> {
    fn new(what: &'a str, context: &'a str) -> Self {
        Self {
            what,
            context,
            ends: Clock::system().after(PATIENCE),
        }
    }

    fn check(&self) {
        let over = Clock::system().has_passed(self.ends);
        assert!(!over, "{}: waited for {}", self.context, self.what);
    }
}

/// A handler of the test, with its view so far.
struct Follower {
    registration: Registration,
    told: Receiver<Told>,
    view: View,
    /// Takes nothing before the end.
    lazy: bool,
    context: String,
}

impl Follower {
    fn new(informer: &Informer, lazy: bool, bound: Option<usize>, context: &str) -> Self {
        let (handler, told) = if lazy {
            Forward::bounded(0)
        } else {
            Forward::unbounded()
        };
        let options = HandlerOptions::default().queue_max(bound);
        let registration = informer.add_handler_with(handler, options).unwrap();
        Self {
            context: format!(
                "{context}, handler {} of bound {bound:?}",
                registration.name()
            ),
            registration,
            told,
            view: View::new(),
            lazy,
        }
    }

    /// Takes a notification in, which must fit the handler's view of the object.
    fn follow_on(&mut self, notification: &Told, tally: &mut Tally) {
        let key = notification.key().to_string();
        let view = &mut self.view;
        let text = format!(
            "{}: {} after {:?}",
            self.context,
            written(notification),
            view.get(&key)
        );
        match notification {
            Notification::Added { object, .. } => {
                assert_eq!(view.insert(key, number(object)), None, "{text}");
            }
            Notification::Updated { old, new } => {
                assert_eq!(old.uid(), new.uid(), "{text}");
                assert_eq!(view.insert(key, number(new)), Some(number(old)), "{text}");
                assert!(number(new) >= number(old), "{text}");
                tally.resyncs += usize::from(number(new) == number(old));
            }
            Notification::Deleted(deleted) => {
                let before = view.remove(&key);
                let before = before.unwrap_or_else(|| panic!("{text}"));
                let last = number(&deleted.last_known);
                if deleted.final_state_known {
                    assert!(last > before, "{text}");
                } else {
                    // Beyond the bound of the handler's queue, the delete may include changes.
                    assert!(last >= before, "{text}");
                    tally.missed += 1;
                }
            }
        }
    }

    /// Takes a few of the waiting notifications.
    fn take_some(&mut self, tally: &mut Tally) {
        for _ in 0..3 {
            if let Ok(notification) = self.told.try_recv() {
                self.follow_on(&notification, tally);
            }
        }
    }

    /// Takes notifications until the view equals `there`.
    fn catch_up(&mut self, there: &View, tally: &mut Tally) {
        while self.view != *there {
            let notification = self.told.recv_timeout(PATIENCE);
            let notification = notification.unwrap_or_else(|_| {
                panic!("{}: told {:?}, there is {there:?}", self.context, self.view)
            });
            self.follow_on(&notification, tally);
        }
        self.registration
            .wait_until_synced(Deadline::NEVER)
            .unwrap();
    }

    /// Removes the handler: earlier notifications still fit, and none comes after.
    fn remove(mut self, tally: &mut Tally) {
        self.registration.remove(Deadline::NEVER).unwrap();
        let delivered = self.registration.readings().delivered;
        while let Ok(notification) = self.told.recv_timeout(PATIENCE) {
            self.follow_on(&notification, tally);
        }
        let error = self.told.try_recv().unwrap_err();
        assert!(error.is_disconnected(), "{}: it goes on", self.context);
        assert_eq!(
            self.registration.readings().delivered,
            delivered,
            "{}",
            self.context
        );
        tally.coalesced += self.registration.readings().coalesced;
        tally.removed += 1;
    }
}

struct History {
    stage: Stage,
    informer: Informer,
    followers: Vec<Follower>,
    dice: Dice,
    /// Older states, which a server may send again.
    older: Vec<Arc<StoredObject<ConfigMap>>>,
    context: String,
    tally: Tally,
}

impl History {
    fn new((dice, seed): (Dice, u64)) -> Self {
        let stage = Stage::with(&["a", "b", "c"]);
        let options = stage
            .options()
            .resync_period(RESYNC)
            .indexers(Indexers::new().with("digit", digits));
        let informer = stage.informer_with(options);
        let context = format!("seed {seed}");
        let early = Follower::new(&informer, false, None, &context);
        let lazy = Follower::new(&informer, true, Some(3), &context);
        Self {
            informer,
            followers: vec![early, lazy],
            dice,
            older: Vec::new(),
            context,
            stage,
            tally: Tally::default(),
        }
    }

    fn step(&mut self) {
        let source = &self.stage.source;
        let name = pick(&mut self.dice, &NAMES);
        match self.dice.roll(36) {
            0..9 => drop(self.stage.set(name)),
            9..13 => drop(source.delete("", name)),
            13 => drop(source.set_undecodable("", name)),
            14 => source.expire_watches(),
            15 => source.end_watches(None),
            16 => {
                let cut = Error::new(ErrorKind::Unreachable, "cut");
                source.end_watches(Some(&cut));
            }
            17 => source.compact(),
            18 => {
                let kind = pick(&mut self.dice, &[RequestKind::List, RequestKind::Watch]);
                let items = usize::try_from(self.dice.roll(3)).unwrap();
                source.fail_next(kind, SourceFault::CutAfter(items));
            }
            19 => source.stream_lists(self.dice.roll(2) == 0),
            20 => self.repeat(),
            21 => source.bookmark(),
            22 => self.come(),
            23 => self.go(),
            24..27 => self.take(),
            27..29 => self.lose(),
            29..32 => self.keep_up(),
            _ => self.pass(),
        }
        // The store cannot tell an object that it never had from a new one.
        self.older.extend(self.informer.store().list());
        self.older.drain(..self.older.len().saturating_sub(40));
        self.tally.undecodable += self.informer.store().undecodable().len();
    }

    /// A handler comes, some with a queue that coalesces early.
    fn come(&mut self) {
        if self.followers.len() < HANDLERS_MAX {
            let bound = pick(&mut self.dice, &[None, Some(0), Some(1), Some(2), Some(8)]);
            let lazy = self.dice.roll(2) == 0;
            let follower = Follower::new(&self.informer, lazy, bound, &self.context);
            self.followers.push(follower);
        }
    }

    /// Removes a handler, busy or not; the first two stay.
    fn go(&mut self) {
        if self.followers.len() > 2 {
            let last = self.followers.len().checked_sub(1).unwrap();
            let pair = [2, last];
            let leaver = self.followers.remove(pick(&mut self.dice, &pair));
            leaver.remove(&mut self.tally);
        }
    }

    fn take(&mut self) {
        for follower in self.followers.iter_mut().filter(|follower| !follower.lazy) {
            follower.take_some(&mut self.tally);
        }
    }

    /// The server repeats an old event of an object: after newer ones, or after the object has gone
    /// from server and store.
    fn repeat(&mut self) {
        let (there, stored) = (self.stage.source.objects(), self.informer.store().list());
        let is_old = |objects: &[Arc<StoredObject<ConfigMap>>], old: &StoredObject<ConfigMap>| {
            let mut objects = objects.iter();
            let now = objects.find(|now| now.uid() == old.uid());
            now.map(|now| number(now) > number(old))
        };
        let older = self.older.iter().filter(|old| {
            let old = (is_old(&there, old), is_old(&stored, old));
            old == (Some(true), Some(true)) || old == (None, None)
        });
        let older: Vec<_> = older.collect();
        let sides = u64::try_from(older.len()).unwrap().max(1);
        let older = older.get(usize::try_from(self.dice.roll(sides)).unwrap());
        if let Some(older) = older.map(|older| Arc::clone(older)) {
            let ended = self.dice.roll(3) == 0;
            let again = if ended {
                ObjectEvent::deleted(older)
            } else {
                ObjectEvent::updated(older)
            };
            self.stage.source.send(|| again.clone().into());
        }
    }

    /// The watch ends, and the following changes are in no history: only a list brings them.
    fn lose(&mut self) {
        let source = &self.stage.source;
        source.end_watches(None);
        for _ in 0..3 {
            let name = pick(&mut self.dice, &NAMES);
            match self.dice.roll(5) {
                0 => drop(source.set_undecodable("", name)),
                1..3 => drop(source.delete("", name)),
                _ => drop(self.stage.set(name)),
            }
        }
        source.compact();
    }

    /// Waits until the store has caught up, so that the next steps meet an idle informer.
    fn keep_up(&self) {
        let (store, source) = (self.informer.store(), &self.stage.source);
        let patience = Patience::new("the store to be as the server", &self.context);
        self.stage.pass_until(|| {
            patience.check();
            view_of(&store.list()) == view_of(&source.objects())
        });
    }

    /// Advances the clock to the next timer.
    fn pass(&self) {
        let ahead = self.stage.fake.wait_for_next_timer();
        self.stage.fake.advance(ahead);
    }

    /// The server heals, and every object decodes.
    fn heal(&mut self) {
        let source = &self.stage.source;
        source.heal();
        for undecodable in NAMES {
            if self.dice.roll(2) == 0 {
                self.stage.set(undecodable);
            } else {
                source.delete("", undecodable);
            }
        }
        // The last of all changes: a handler that has it has everything.
        self.stage.set("z");
        let store = self.informer.store();
        let patience = Patience::new("the end", &self.context);
        until(|| {
            let is_there = store.undecodable().is_empty()
                && view_of(&store.list()) == view_of(&source.objects());
            if !is_there {
                patience.check();
                self.pass();
            }
            is_there
        });
    }

    /// Checks that the index lists each object under its present values only.
    fn check_index(&self) {
        let mut expected: BTreeMap<String, Vec<ObjectKey>> = BTreeMap::new();
        for object in self.stage.source.objects() {
            let mut digits = digits(&object);
            digits.sort_unstable();
            digits.dedup();
            for digit in digits {
                expected.entry(digit).or_default().push(object.key());
            }
        }
        let store = self.informer.store();
        let mut values = store.index_values("digit");
        values.sort_unstable();
        assert!(values.iter().eq(expected.keys()), "{}", self.context);
        for (value, mut keys) in expected {
            keys.sort_unstable();
            let indexed = store.index_keys("digit", &value).unwrap();
            assert_eq!(indexed, keys, "{}", self.context);
            assert_eq!(store.by_index("digit", &value).unwrap().len(), keys.len());
        }
    }

    /// Checks that a resync repeats the content although nothing changes.
    fn check_resync(&mut self, there: &View) {
        let early = self.followers.first_mut().unwrap();
        for notification in early.told.try_iter().collect::<Vec<_>>() {
            early.follow_on(&notification, &mut self.tally);
        }
        let mut again = View::new();
        let patience = Patience::new("a resync", &self.context);
        until(|| {
            for notification in early.told.try_iter().collect::<Vec<_>>() {
                early.follow_on(&notification, &mut self.tally);
                let object = notification.object();
                again.insert(object.key().to_string(), number(object));
            }
            let is_repeated = again == *there;
            if !is_repeated {
                patience.check();
                let ahead = self.stage.fake.wait_for_next_timer();
                self.stage.fake.advance(ahead);
            }
            is_repeated
        });
        assert_eq!(early.view, *there, "{}", self.context);
    }

    fn check(mut self) -> Tally {
        let there = view_of(&self.stage.source.objects());
        assert!(self.informer.store().undecodable().is_empty());
        self.check_index();
        for follower in &mut self.followers {
            follower.catch_up(&there, &mut self.tally);
        }
        self.check_resync(&there);
        for mut follower in self.followers {
            follower.catch_up(&there, &mut self.tally);
            follower.remove(&mut self.tally);
        }
        self.tally.lists += self.stage.lists();
        self.tally.refused += self.informer.store().refused();
        self.informer.shutdown(Deadline::NEVER).unwrap();
        assert_eq!(view_of(&self.informer.store().list()), there);
        self.tally
    }
}

/// CT-4 to CT-6, SI-1, SI-11, SI-14, SI-20, B18; `TestHammerController`.
#[test]
fn si_1_random_histories_end_with_store_and_handlers_equal_to_the_server() {
    let mut all = Tally::default();
    for dice in Dice::histories(HISTORIES) {
        let mut history = History::new(dice);
        history.informer.start().unwrap();
        for _ in 0..STEPS {
            history.step();
        }
        history.heal();
        let tally = history.check();
        all.lists += tally.lists;
        all.resyncs += tally.resyncs;
        all.missed += tally.missed;
        all.removed += tally.removed;
        all.coalesced += tally.coalesced;
        all.undecodable += tally.undecodable;
        all.refused += tally.refused;
    }
    println!("{all:?}");
    all.assert_full();
}
