//! The references of owners to objects: counts per owner, and the one place that keeps the entry of
//! each referenced object. Pure.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::num::{NonZeroU32, NonZeroUsize};

use hashbrown::HashMap;

use crate::error::default_of;
use crate::object::{KeyRef, Object, ObjectKey};

/// A user of objects: a pod, a route, a storage class. Managers count references per owner.
/// [`owners`](crate::manual::owners) has whole programs.
///
/// Two owners are the same if their kinds, keys and uids are.
///
/// # Examples
///
/// ```
/// use k8s_openapi::api::networking::v1::Ingress;
/// use kubecache::manager::Owner;
/// use kubecache::object::ObjectKey;
///
/// let mut ingress = Ingress::default();
/// ingress.metadata.name = Some("web".to_owned());
/// ingress.metadata.uid = Some("1".to_owned());
/// assert_eq!(Owner::of(&ingress).to_string(), "Ingress web");
///
/// // Not an object of the API.
/// let owner = Owner::new("mount", ObjectKey::new("", "/var/lib/data"));
/// assert_eq!(owner.to_string(), "mount /var/lib/data");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    kind: Cow<'static, str>,
    key: ObjectKey,
    uid: Box<str>,
}

impl Owner {
    /// Makes the owner that stands for `object`. An object that is created again under the same
    /// name has another uid, and so is another owner.
    pub fn of<K: Object>(object: &K) -> Self {
        Self::with_uid(K::resource().kind_name(), object.key(), object.uid())
    }

    /// Makes an owner without a uid, of a kind and a key that the program chooses.
    pub fn new(kind: impl Into<Cow<'static, str>>, key: ObjectKey) -> Self {
        Self::with_uid(kind, key, "")
    }

    pub(crate) fn with_uid(kind: impl Into<Cow<'static, str>>, key: ObjectKey, uid: &str) -> Self {
        Self {
            kind: kind.into(),
            key,
            uid: uid.into(),
        }
    }

    /// The kind, such as `Pod`.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The namespace and name.
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// The uid; empty for an owner that has none.
    pub fn uid(&self) -> &str {
        &self.uid
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.key)
    }
}

/// A change of one owner's references.
#[derive(Debug)]
pub(crate) enum ReferenceChange {
    /// Counts one more.
    Add(ObjectKey),
    /// Counts one less.
    Remove(ObjectKey),
    /// The owner references these objects, each once, and no other.
    Set(BTreeSet<ObjectKey>),
}

/// The effect of a change of references on an entry.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Affected<E> {
    /// The first reference of all made it.
    Made(E),
    /// It has one more reference.
    Shared(E),
    /// The last reference of all is gone, and the entry with it.
    Released(E),
}

impl<E> Affected<E> {
    pub(crate) fn entry(&self) -> &E {
        match self {
            Self::Made(entry) | Self::Shared(entry) | Self::Released(entry) => entry,
        }
    }
}

/// The references to the objects of one kind, each object with its entry `E` and the number of its
/// owners.
///
/// An entry is in here exactly while an owner references its object. A count is never zero.
#[derive(Debug)]
pub(crate) struct References<E> {
    objects: HashMap<ObjectKey, (E, NonZeroUsize)>,
    /// The references of each owner, with their counts. The map keeps keys, not objects, so an
    /// owner that is changed in place cannot mislead it.
    owners: HashMap<Owner, BTreeMap<ObjectKey, NonZeroU32>>,
}

default_of!([E] References<E>: objects, owners);

impl<E: Clone> References<E> {
    /// Changes the owner's references; `make` makes the entry of an object's first one.
    /// `renews`: an owner that sets its references again references all of them once more.
    /// Returns also whether the owner goes: it set none, or had some and has none now.
    pub(crate) fn change(
        &mut self,
        owner: &Owner,
        change: ReferenceChange,
        renews: bool,
        mut make: impl FnMut(&ObjectKey) -> E,
    ) -> (Vec<Affected<E>>, bool) {
        let known = self.owners.remove(owner);
        let may_go = known.is_some() || matches!(change, ReferenceChange::Set(_));
        let mut counts = known.unwrap_or_default();
        let affected = match change {
            ReferenceChange::Add(key) => {
                let count = counts.get(&key).copied();
                let more = count.map_or(NonZeroU32::MIN, |count| count.saturating_add(1));
                let affected = self.add(&key, count.is_none(), &mut make);
                counts.insert(key, more);
                vec![affected]
            }
            ReferenceChange::Remove(key) => {
                let count = counts.remove(&key).map(NonZeroU32::get);
                match count.and_then(|count| NonZeroU32::new(count.saturating_sub(1))) {
                    Some(less) => {
                        counts.insert(key, less);
                        Vec::new()
                    }
                    None if count.is_some() => self.remove(&key).into_iter().collect(),
                    // The owner has no such reference (OC-3, OC-4).
                    None => Vec::new(),
                }
            }
            ReferenceChange::Set(keys) => {
                let before = std::mem::take(&mut counts);
                let is_new = |key| !before.contains_key(key);
                let added = keys.iter().filter(|key| renews || is_new(key));
                let mut affected: Vec<_> = added
                    .map(|key| self.add(key, is_new(key), &mut make))
                    .collect();
                let removed = before.keys().filter(|key| !keys.contains(key));
                affected.extend(removed.filter_map(|key| self.remove(key)));
                counts.extend(keys.into_iter().map(|key| (key, NonZeroU32::MIN)));
                affected
            }
        };
        if counts.is_empty() {
            return (affected, may_go);
        }
        self.owners.insert(owner.clone(), counts);
        (affected, false)
    }

    fn add(
        &mut self,
        key: &ObjectKey,
        by_another: bool,
        make: &mut impl FnMut(&ObjectKey) -> E,
    ) -> Affected<E> {
        if let Some((entry, owners)) = self.objects.get_mut(key) {
            *owners = owners.saturating_add(usize::from(by_another));
            return Affected::Shared(entry.clone());
        }
        let entry = make(key);
        let object = (entry.clone(), NonZeroUsize::MIN);
        self.objects.insert(key.clone(), object);
        Affected::Made(entry)
    }

    fn remove(&mut self, key: &ObjectKey) -> Option<Affected<E>> {
        let (_, owners) = self.objects.get_mut(key)?;
        if let Some(less) = NonZeroUsize::new(owners.get().saturating_sub(1)) {
            *owners = less;
            return None;
        }
        let last = self.objects.remove(key);
        last.map(|(entry, _)| Affected::Released(entry))
    }

    /// The entry of a referenced object. Allocates nothing.
    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<&E> {
        let key = KeyRef { namespace, name };
        self.objects.get(&key).map(|(entry, _)| entry)
    }

    /// How many owners reference the object.
    pub(crate) fn owners_of(&self, key: &ObjectKey) -> usize {
        self.objects.get(key).map_or(0, |(_, owners)| owners.get())
    }

    /// How many references there are: an object that two owners reference counts twice.
    pub(crate) fn total(&self) -> usize {
        self.owners.values().map(BTreeMap::len).sum()
    }

    /// Every entry.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &E> {
        self.objects.values().map(|(entry, _)| entry)
    }

    /// The owners, sorted, each with the keys that it references, sorted.
    pub(crate) fn owners(&self) -> BTreeMap<Owner, Vec<ObjectKey>> {
        let owners = self.owners.iter();
        let keys = owners.map(|(owner, counts)| (owner.clone(), counts.keys().cloned().collect()));
        keys.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::dice::Dice;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("ns", name)
    }

    fn keys(names: &[&str]) -> BTreeSet<ObjectKey> {
        names.iter().map(|name| key(name)).collect()
    }

    fn owner(name: &str) -> Owner {
        Owner::new("Route", key(name))
    }

    /// Adds, removes or sets without renewal; a new entry is `made`.
    fn change(
        references: &mut References<u32>,
        name: &str,
        change: ReferenceChange,
        made: u32,
    ) -> Vec<Affected<u32>> {
        references.change(&owner(name), change, false, |_| made).0
    }

    fn count(references: &References<u32>, name: &str, of: &str) -> u32 {
        let counts = references.owners.get(&owner(of));
        counts
            .and_then(|counts| counts.get(&key(name)))
            .map_or(0, |count| count.get())
    }

    /// OC-4, first three rows; `TestRefMapHandlesReferencesCorrectly`.
    #[test]
    fn the_reference_table_of_one_owner() {
        let rows: [(&str, &[u32]); 3] = [("aadd", &[1, 2, 1, 0]), ("d", &[0]), ("add", &[1, 0, 0])];
        for (steps, expected) in rows {
            let mut references = References::default();
            let counts: Vec<u32> = steps
                .chars()
                .map(|step| {
                    let step = match step {
                        'a' => ReferenceChange::Add(key("s1")),
                        _ => ReferenceChange::Remove(key("s1")),
                    };
                    change(&mut references, "1", step, 7);
                    count(&references, "s1", "1")
                })
                .collect();
            assert_eq!(counts, expected, "{steps}");
            assert_eq!(references.objects.len(), 0, "{steps}: no entry is left");
            assert!(references.owners.is_empty(), "{steps}: no owner is left");
        }
    }

    /// OC-4, last row, without OC-5's count of -1: what was never added is not taken back.
    #[test]
    fn removing_what_others_added_changes_nothing() {
        let mut references = References::default();
        let add = || ReferenceChange::Add(key("s1"));
        let remove = || ReferenceChange::Remove(key("s1"));
        assert_eq!(change(&mut references, "1", add(), 7), [Affected::Made(7)]);
        assert_eq!(change(&mut references, "2", remove(), 8), []);
        let other = ReferenceChange::Remove(key("s2"));
        assert_eq!(change(&mut references, "1", other, 8), []);
        let elsewhere = ReferenceChange::Remove(ObjectKey::new("other", "s1"));
        assert_eq!(change(&mut references, "1", elsewhere, 8), []);
        assert_eq!(count(&references, "s1", "1"), 1);
        assert_eq!(
            change(&mut references, "2", add(), 8),
            [Affected::Shared(7)]
        );
        assert_eq!(change(&mut references, "2", remove(), 8), []);
        let last = change(&mut references, "1", remove(), 8);
        assert_eq!(last, [Affected::Released(7)]);
        assert_eq!(references.objects.len(), 0);
    }

    /// CM-1, CM-2: the first time adds all, later times the difference only.
    #[test]
    fn a_set_touches_what_it_changes() {
        let mut references = References::default();
        let set = |names: &[&str]| ReferenceChange::Set(keys(names));
        let first = change(&mut references, "1", set(&["a", "b"]), 1);
        assert_eq!(first, [Affected::Made(1), Affected::Made(1)]);
        assert_eq!(change(&mut references, "1", set(&["a", "b"]), 2), []);
        let update = change(&mut references, "1", set(&["b", "c"]), 3);
        assert_eq!(update, [Affected::Made(3), Affected::Released(1)]);
        let end = change(&mut references, "1", set(&[]), 4);
        assert_eq!(end, [Affected::Released(1), Affected::Released(3)]);
        assert!(references.owners.is_empty());
    }

    /// CM-2 as kubelets before 1.29 had it: an update references everything anew. The counts end as
    /// without that.
    #[test]
    fn a_set_that_renews_touches_everything() {
        let mut references = References::default();
        let mut set = |names: &[&str], made| {
            let change = ReferenceChange::Set(keys(names));
            references.change(&owner("1"), change, true, |_| made).0
        };
        assert_eq!(set(&["a", "b"], 1), [Affected::Made(1), Affected::Made(1)]);
        let update = [
            Affected::Shared(1),
            Affected::Made(2),
            Affected::Released(1),
        ];
        assert_eq!(set(&["b", "c"], 2), update);
        assert_eq!(set(&[], 3), [Affected::Released(1), Affected::Released(2)]);
    }

    /// A set makes each count one, whatever was added before.
    #[test]
    fn a_set_forgets_how_often_something_was_added() {
        let mut references = References::default();
        for _ in 0..3 {
            change(&mut references, "1", ReferenceChange::Add(key("a")), 1);
        }
        let same = ReferenceChange::Set(keys(&["a"]));
        assert_eq!(change(&mut references, "1", same, 2), []);
        let removed = change(&mut references, "1", ReferenceChange::Remove(key("a")), 2);
        assert_eq!(removed, [Affected::Released(1)]);
    }

    /// CM-3: an object made again is another owner, and references of its own.
    #[test]
    fn owners_are_told_apart_by_kind_key_and_uid() {
        let named = |kind: &'static str, uid: &str| Owner {
            uid: uid.into(),
            ..Owner::new(kind, key("p"))
        };
        let owners = [named("Pod", "1"), named("Pod", "2"), named("Route", "1")];
        let mut references = References::default();
        for (number, owner) in owners.iter().enumerate() {
            references.change(owner, ReferenceChange::Add(key("a")), false, |_| 7);
            assert_eq!(references.owners_of(&key("a")), number + 1);
        }
        assert_eq!(references.total(), 3);
        let listed: Vec<Owner> = references.owners().into_keys().collect();
        assert_eq!(listed, owners);
    }

    /// Random owners against counts that are written down one by one.
    #[test]
    fn b6_random_owners_and_a_simple_model_agree() {
        for (mut dice, seed) in Dice::histories(100) {
            let mut below = |sides: u64| usize::try_from(dice.roll(sides)).unwrap();
            let mut references = References::default();
            let mut model: BTreeMap<(Owner, ObjectKey), u32> = BTreeMap::new();
            let mut entries: BTreeMap<ObjectKey, u32> = BTreeMap::new();
            for step in 0..200 {
                let owner = owner(["1", "2", "3"][below(3)]);
                let name = key(["a", "b", "c", "d"][below(4)]);
                let renews = below(4) == 0;
                let change = match below(3) {
                    0 => {
                        *model.entry((owner.clone(), name.clone())).or_default() += 1;
                        ReferenceChange::Add(name)
                    }
                    1 => {
                        let entry = (owner.clone(), name.clone());
                        let count = model.get(&entry).map_or(0, |count| count - 1);
                        if count == 0 {
                            model.remove(&entry);
                        } else {
                            model.insert(entry, count);
                        }
                        ReferenceChange::Remove(name)
                    }
                    _ => {
                        let mut set = keys(&["a", "b", "c", "d"]);
                        set.retain(|_| below(2) == 0);
                        model.retain(|(other, _), _| *other != owner);
                        let counts = set.iter().map(|name| ((owner.clone(), name.clone()), 1));
                        model.extend(counts);
                        ReferenceChange::Set(set)
                    }
                };
                let was_known = references.owners.contains_key(&owner);
                let sets_none = matches!(&change, ReferenceChange::Set(set) if set.is_empty());
                let before = entries.clone();
                let mut made = Vec::new();
                let (affected, goes) = references.change(&owner, change, renews, |key| {
                    made.push(key.clone());
                    step
                });
                let is_there = model.keys().any(|(other, _)| *other == owner);
                assert_eq!(goes, !is_there && (was_known || sets_none), "{seed}");
                // An entry lives exactly as long as its object is referenced.
                let named: BTreeSet<&ObjectKey> = model.keys().map(|(_, key)| key).collect();
                entries.retain(|key, _| named.contains(key));
                entries.extend(made.iter().map(|key| (key.clone(), step)));
                let released = before
                    .keys()
                    .filter(|key| !entries.contains_key(key))
                    .count();
                let is_released = |one: &&Affected<u32>| matches!(one, Affected::Released(_));
                let told = affected.iter().filter(is_released).count();
                assert_eq!(told, released, "{seed}");
                assert!(made.iter().all(|key| !before.contains_key(key)), "{seed}");
                assert_eq!(references.objects.len(), named.len(), "{seed}");
                assert_eq!(references.total(), model.len(), "{seed}");
                for name in ["a", "b", "c", "d"] {
                    let owners = model.keys().filter(|(_, key)| key.name() == name).count();
                    assert_eq!(references.owners_of(&key(name)), owners, "{seed}");
                    assert_eq!(
                        references.get("ns", name),
                        entries.get(&key(name)),
                        "{seed}"
                    );
                }
            }
        }
    }

    /// OC-26 and KEY-1: the borrowed key finds what the owned one stored.
    #[test]
    fn a_borrowed_key_finds_its_item() {
        let mut references = References::default();
        let keys = [ObjectKey::new("ns", "a"), ObjectKey::new("", "a")];
        let set = ReferenceChange::Set(keys.into());
        references.change(&owner("1"), set, false, |key| key.namespace().len());
        assert_eq!(references.get("ns", "a"), Some(&2));
        assert_eq!(references.get("", "a"), Some(&0));
        assert_eq!(references.get("n", "sa"), None);
    }
}
