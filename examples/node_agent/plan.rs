//! What the configuration says by now, and which entry an object belongs to. The threads that
//! write and tell ask it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kubecache::Error;
use kubecache::object::ObjectKey;
use kubecache::outlet::{Laid, Layout, Presence};
use parking_lot::Mutex;

use crate::declaration::{Declaration, Entry, Selection, What};
use crate::layout::Rules;
use crate::managers::ObjectId;

/// The entries of the objects. Clones are the same plan.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan(Arc<Mutex<Entries>>);

#[derive(Debug, Default)]
struct Entries {
    named: BTreeMap<ObjectId, Arc<Entry>>,
    /// Those that a selection found and no entry names.
    selected: BTreeMap<ObjectId, Arc<Entry>>,
    /// The last entries of those that have none now. Their files are as it says until the plan is
    /// complete. Whoever it names is told when they go.
    left: BTreeMap<ObjectId, Arc<Entry>>,
    /// Whether nothing more is known to be selected soon, so that objects without an entry may go.
    is_complete: bool,
    /// What only credentials name: it has no files unless a selection finds it, also where pods
    /// have an entry.
    for_credentials: BTreeSet<ObjectId>,
    /// What labels select.
    selections: Vec<Selection>,
    /// The entry of all others.
    others: Option<Arc<Entry>>,
}

impl Entries {
    fn own(&self, object: &ObjectId) -> Option<&Arc<Entry>> {
        let named = self.named.get(object);
        named.or_else(|| self.selected.get(object))
    }

    fn leave(&mut self, before: BTreeMap<ObjectId, Arc<Entry>>) {
        self.left.extend(before);
        let Self {
            named,
            selected,
            left,
            ..
        } = self;
        left.retain(|object, _| !named.contains_key(object) && !selected.contains_key(object));
        self.is_complete = false;
    }

    fn of_others(&self, object: &ObjectId) -> Option<&Arc<Entry>> {
        let others = self.others.as_ref();
        others.filter(|_| !self.for_credentials.contains(object))
    }
}

impl Plan {
    /// Replaces what is declared.
    pub(crate) fn declare(&self, declaration: &Declaration, for_credentials: BTreeSet<ObjectId>) {
        let named = declaration
            .entries
            .iter()
            .filter_map(|entry| match &entry.what {
                What::One(object) => Some((object.clone(), Arc::clone(entry))),
                What::Selected(_) | What::Pods(_) => None,
            });
        let others = declaration.pods().map(|(entry, _)| Arc::clone(entry));
        let selections = declaration.selections().map(|(of, _)| of.clone());
        let mut entries = self.0.lock();
        entries.selections = selections.collect();
        let before = std::mem::replace(&mut entries.named, named.collect());
        entries.leave(before);
        entries.for_credentials = for_credentials;
        entries.others = others;
    }

    /// Replaces what the selections found. Returns whether objects have other entries now.
    pub(crate) fn select(&self, selected: BTreeMap<ObjectId, Arc<Entry>>) -> bool {
        let mut entries = self.0.lock();
        let is_new = entries.selected != selected;
        let before = std::mem::replace(&mut entries.selected, selected);
        entries.leave(before);
        is_new
    }

    /// All selections are known. Of objects that have lost their entry, nothing refers any more to
    /// those that are not `used`: the others have the one of all others from now on.
    pub(crate) fn complete(&self, used: &BTreeSet<ObjectId>) {
        let mut entries = self.0.lock();
        entries.is_complete = true;
        let mut left = std::mem::take(&mut entries.left);
        left.retain(|object, entry| {
            let has_other = used.contains(object) && entries.of_others(object).is_some();
            !entry.tells.is_empty() && !has_other
        });
        entries.left = left;
    }

    /// The entry by which an object is laid out now.
    fn entry_of_layout(&self, object: &ObjectId) -> Option<Arc<Entry>> {
        let entries = self.0.lock();
        let own = entries.own(object);
        let left = entries.left.get(object).filter(|_| !entries.is_complete);
        let own = own.or(left);
        own.or_else(|| entries.of_others(object)).cloned()
    }

    /// Whether a selection that is not known yet may find an object that has no entry.
    pub(crate) fn may_find(&self, object: &ObjectId) -> bool {
        let entries = self.0.lock();
        let has_entry = entries.own(object).is_some() || entries.left.contains_key(object);
        let mut all = entries.selections.iter();
        !entries.is_complete && !has_entry && all.any(|of| of.may_find(object))
    }

    /// Whether an object's own entry names others than that of all others.
    pub(crate) fn has_own_tells(&self, object: &ObjectId) -> bool {
        let entries = self.0.lock();
        let others = entries.of_others(object).map(|entry| &entry.tells);
        let own = entries.own(object);
        own.is_some_and(|own| others != Some(&own.tells))
    }

    /// Whether an object has lost its entry.
    pub(crate) fn has_left(&self, object: &ObjectId) -> bool {
        self.0.lock().left.contains_key(object)
    }

    /// The entry whose program is told that an object's files have changed, or have gone. After the
    /// object has lost its entry, that is the lost one, once. The exception are files that are
    /// there and are laid out by the entry of all others: then it is that.
    pub(crate) fn entry_of_change(&self, object: &ObjectId, has_files: bool) -> Option<Arc<Entry>> {
        let mut entries = self.0.lock();
        let left = if entries.is_complete {
            entries.left.remove(object)
        } else {
            entries.left.get(object).cloned()
        };
        let others = entries.of_others(object).cloned();
        let own = entries.own(object).cloned();
        own.or(if entries.is_complete && has_files {
            others.or(left)
        } else {
            left.or(others)
        })
    }

    /// Lays out the files of an object as its entry says.
    pub(crate) fn lay_out(
        &self,
        kind: &str,
        key: &ObjectKey,
        presence: Presence<'_>,
    ) -> Result<Laid, Error> {
        let object = ObjectId {
            kind: kind.to_owned().into(),
            key: key.clone(),
        };
        match self.entry_of_layout(&object) {
            Some(entry) => entry.rules.lay_out(&entry.name, presence),
            // The agent is ready when each object has its files: this one has all of none.
            None if self.0.lock().for_credentials.contains(&object) => {
                Ok(Laid::Files(Layout::new()))
            }
            None => Rules::default().lay_out("", presence),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::declaration::What;
    use crate::references;
    use crate::teller::Tells;

    /// Seen: the program of a selection was not told of an object that the server had deleted.
    #[test]
    fn the_last_entry_of_what_a_selection_had_found_is_asked_once_after_its_end() {
        let entry = |name: &str| {
            Arc::new(Entry {
                name: name.to_owned(),
                what: What::Pods(None),
                rules: Rules::default(),
                tells: Tells {
                    signal: Some("/run/app.pid".into()),
                    ..Tells::default()
                },
            })
        };
        let object: ObjectId = references::of_flag("secret", "shop/db").unwrap();
        let plan = Plan::default();
        assert!(plan.select([(object.clone(), entry("selected"))].into()));
        assert!(plan.select(BTreeMap::new()));
        // Seen: other selections were not known yet, and the object was laid out as nobody said.
        assert_eq!(plan.entry_of_layout(&object).unwrap().name, "selected");
        plan.complete(&BTreeSet::new());
        assert!(plan.entry_of_layout(&object).is_none());
        let told = plan.entry_of_change(&object, false).unwrap();
        assert_eq!(told.name, "selected");
        assert!(plan.entry_of_change(&object, false).is_none());
        plan.select([(object.clone(), entry("first"))].into());
        plan.select(BTreeMap::new());
        plan.select([(object.clone(), entry("second"))].into());
        let told = plan.entry_of_change(&object, true).unwrap();
        assert_eq!(told.name, "second");
    }

    /// Seen: the program of the entry before was told of the next change, and that of the present
    /// one was not.
    #[test]
    fn the_present_entry_is_told_whatever_entry_there_was_before() {
        let entry = |what: &str, program: &str| {
            let what = match what {
                "pods" => What::Pods(None),
                named => What::One(references::of_flag("secret", named).unwrap()),
            };
            Arc::new(Entry {
                name: program.to_owned(),
                what,
                rules: Rules::default(),
                tells: Tells {
                    signal: Some(program.into()),
                    ..Tells::default()
                },
            })
        };
        let declared = |entries: &[Arc<Entry>]| Declaration {
            entries: entries.to_vec(),
            ..Declaration::default()
        };
        let (named, pods) = (entry("shop/db", "named"), entry("pods", "pods"));
        let object: ObjectId = references::of_flag("secret", "shop/db").unwrap();
        let plan = Plan::default();
        for (has_files, then) in [(true, "pods"), (false, "named")] {
            let told = || {
                let entry = plan.entry_of_change(&object, has_files).unwrap();
                entry.name.clone()
            };
            let both = [Arc::clone(&named), Arc::clone(&pods)];
            plan.declare(&declared(&both), BTreeSet::new());
            assert_eq!(told(), "named");
            plan.declare(&declared(&both[1..]), BTreeSet::new());
            assert_eq!(told(), "named", "its files are as that says");
            plan.complete(&BTreeSet::new());
            assert_eq!(told(), then);
            assert_eq!(told(), "pods");
            plan.declare(&declared(&both), BTreeSet::new());
            plan.declare(&declared(&both[1..]), BTreeSet::new());
            plan.complete(&[object.clone()].into());
            assert_eq!(
                plan.entry_of_layout(&object).unwrap().name,
                "pods",
                "laid out anew"
            );
            assert_eq!(told(), "pods");
        }
    }

    /// Seen: a round that had begun before the end of a selection laid its object out, and the
    /// program of the entry of all others was told that the object had gone.
    #[test]
    fn a_layout_takes_no_entry_from_what_nothing_uses() {
        let entry = |name: &str| {
            let tells = Tells {
                signal: Some(name.into()),
                ..Tells::default()
            };
            Arc::new(Entry {
                name: name.to_owned(),
                what: What::Pods(None),
                rules: Rules::default(),
                tells,
            })
        };
        let declaration = Declaration {
            entries: vec![entry("pods")],
            ..Declaration::default()
        };
        let object: ObjectId = references::of_flag("configmap", "shop/web").unwrap();
        let data = [("a", b"1".as_slice())].into();
        for presence in [Presence::Deleted, Presence::There(&data)] {
            let plan = Plan::default();
            plan.declare(&declaration, BTreeSet::new());
            plan.select([(object.clone(), entry("selected"))].into());
            plan.complete(&[object.clone()].into());
            plan.select(BTreeMap::new());
            plan.complete(&BTreeSet::new());
            drop(plan.lay_out("ConfigMap", &object.key, presence));
            let told = plan.entry_of_change(&object, false).unwrap();
            assert_eq!(told.name, "selected");
        }
    }

    #[test]
    fn what_only_credentials_name_has_no_files_although_pods_have_an_entry() {
        let pods = Entry {
            name: "pods".to_owned(),
            what: What::Pods(None),
            rules: Rules::default(),
            tells: Tells::default(),
        };
        let declaration = Declaration {
            entries: vec![Arc::new(pods)],
            ..Declaration::default()
        };
        let object = |name| references::of_flag("secret", name).unwrap();
        let plan = Plan::default();
        plan.declare(&declaration, [object("shop/db")].into());
        let data = [("a", b"1".as_slice())].into();
        let files = |name| {
            let object: ObjectId = object(name);
            let laid = plan.lay_out("Secret", &object.key, Presence::There(&data));
            let Ok(Laid::Files(layout)) = laid else {
                panic!("{laid:?}");
            };
            layout.names().map(str::to_owned).collect::<Vec<_>>()
        };
        assert!(files("shop/db").is_empty());
        assert_eq!(files("shop/other"), ["a"]);
    }
}
