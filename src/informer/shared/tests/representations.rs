//! An informer of decoded objects beside one of text, through the same random histories: in the end
//! both stores, and both handlers' views, have the same objects.

use super::*;
use crate::Compact;
use crate::clock::Deadline;
use crate::list_watch::{
    ListPage, ListRequest, Listed, ListerWatcher, Next, WatchEvent, WatchRequest, WatchStream,
};
use crate::object::Object;
use crate::reflector::ReflectorStatus;
use crate::tests::dice::Dice;
use crate::worker::StopToken;

/// Histories per run of the test.
const HISTORIES: u64 = 40;
/// Steps of one history.
const STEPS: usize = 60;

/// Serves a fake server's objects as text.
struct Texts(FakeSource<ConfigMap>);

struct TextStream(Box<dyn WatchStream<ConfigMap>>);

fn text_of(item: Listed<ConfigMap>) -> Listed<Compact<ConfigMap>> {
    match item {
        Listed::Object(object) => {
            let json = serde_json::to_vec(&**object).unwrap();
            let text = serde_json::from_slice(&json).unwrap();
            Listed::Object(Arc::new(StoredObject::new(text)))
        }
        Listed::Undecodable(aside) => Listed::Undecodable(aside),
    }
}

impl WatchStream<Compact<ConfigMap>> for TextStream {
    fn next(&mut self, deadline: Deadline) -> Result<Next<Compact<ConfigMap>>, Error> {
        Ok(match self.0.next(deadline)? {
            Next::Event(WatchEvent::Object(ObjectEvent { kind, object })) => {
                let object = text_of(object);
                Next::Event(WatchEvent::Object(ObjectEvent { kind, object }))
            }
            Next::Event(WatchEvent::Bookmark {
                resource_version,
                initial_events_end,
            }) => Next::Event(WatchEvent::Bookmark {
                resource_version,
                initial_events_end,
            }),
            Next::Event(WatchEvent::Unselected {
                kind,
                resource_version,
            }) => Next::Event(WatchEvent::Unselected {
                kind,
                resource_version,
            }),
            Next::Event(WatchEvent::Error(error)) => Next::Event(WatchEvent::Error(error)),
            Next::Event(WatchEvent::Skipped {
                reason,
                resource_version,
            }) => Next::Event(WatchEvent::Skipped {
                reason,
                resource_version,
            }),
            Next::Ended(end) => Next::Ended(end),
            Next::DeadlinePassed => Next::DeadlinePassed,
        })
    }

    fn last_contact(&self) -> std::time::Instant {
        self.0.last_contact()
    }
}

impl ListerWatcher<Compact<ConfigMap>> for Texts {
    fn list(
        &self,
        request: &ListRequest,
        stop: &StopToken,
        each: &mut dyn FnMut(Listed<Compact<ConfigMap>>),
    ) -> Result<ListPage, Error> {
        self.0.list(request, stop, &mut |item| each(text_of(item)))
    }

    fn watch(
        &self,
        request: &WatchRequest,
        stop: &StopToken,
    ) -> Result<Box<dyn WatchStream<Compact<ConfigMap>>>, Error> {
        Ok(Box::new(TextStream(self.0.watch(request, stop)?)))
    }

    fn supports_watch_list(&self) -> bool {
        self.0.supports_watch_list()
    }

    fn describe(&self) -> String {
        self.0.describe()
    }
}

/// Steps the server at random; both informers meet the same faults at other moments.
fn step(stage: &Stage, dice: &mut Dice) {
    let names = ["a", "b", "c", "d"];
    let name = names[usize::try_from(dice.roll(4)).unwrap()];
    let source = &stage.source;
    match dice.roll(12) {
        0..=4 => drop(stage.set(name)),
        5 | 6 => drop(source.delete("", name)),
        7 => drop(source.set_undecodable("", name)),
        8 => source.end_watches(None),
        9 => source.compact(),
        10 => source.bookmark(),
        _ => {
            let error = Error::new(ErrorKind::Unreachable, "cut");
            source.fail_next(RequestKind::List, SourceFault::Fail(error));
        }
    }
}

fn what_is_there<K: Object>(store: &Store<K>) -> (BTreeMap<String, String>, Vec<String>) {
    let objects = store.list();
    let each = objects.iter();
    let there = each.map(|object| {
        (
            object.key().to_string(),
            object.resource_version_text().to_owned(),
        )
    });
    let mut aside: Vec<_> = store
        .undecodable()
        .iter()
        .map(|item| item.key.to_string())
        .collect();
    aside.sort();
    (there.collect(), aside)
}

#[test]
fn si_1_text_and_decoded_objects_come_to_the_same_content() {
    for (mut dice, _) in Dice::histories(HISTORIES) {
        let stage = Stage::with(&["a", "b"]);
        let decoded = stage.informer();
        let texts: Arc<dyn ListerWatcher<Compact<ConfigMap>>> =
            Arc::new(Texts(stage.source.clone()));
        let options = InformerOptions::default().reflector(stage.reflector());
        let texts = SharedInformer::new(texts, options);
        let (told_texts, of_texts) = Forward::unbounded();
        let (told_decoded, of_decoded) = Forward::unbounded();
        texts.add_handler(told_texts).unwrap();
        decoded.add_handler(told_decoded).unwrap();
        decoded.start().unwrap();
        texts.start().unwrap();
        for _ in 0..STEPS {
            step(&stage, &mut dice);
        }
        stage.source.heal();
        let last = ResourceVersion::from(stage.set("last").to_string());
        stage.pass_until(|| {
            let reached = |status: ReflectorStatus| status.resource_version == last;
            reached(decoded.status()) && reached(texts.status())
        });
        let there = what_is_there(decoded.store());
        assert_eq!(what_is_there(texts.store()), there);
        for object in texts.store().list() {
            let got = object.get().unwrap();
            let same = decoded
                .store()
                .get(object.namespace(), object.name())
                .unwrap();
            assert!(**got == **same.unwrap(), "{object:?}");
        }
        // Handlers keep the last good state of an object that is set aside.
        for mut view in [view(&of_texts), view(&of_decoded)] {
            view.retain(|key, _| !there.1.contains(key));
            assert_eq!(view, there.0);
        }
        decoded.shutdown(Deadline::NEVER).unwrap();
        texts.shutdown(Deadline::NEVER).unwrap();
    }
}

/// The view of a handler, up to the object that is written last.
fn view<K: Object>(told: &Receiver<Notification<K>>) -> BTreeMap<String, String> {
    let mut there = BTreeMap::new();
    while !there.contains_key("last") {
        match told.recv().unwrap() {
            Notification::Added { object, .. } | Notification::Updated { new: object, .. } => {
                there.insert(
                    object.key().to_string(),
                    object.resource_version_text().to_owned(),
                );
            }
            Notification::Deleted(deleted) => drop(there.remove(&deleted.key().to_string())),
        }
    }
    there
}
