//! Who references which object: counts per pod uid, and the one place that owns the items (OC-3..OC-5, B6). Pure.

use std::num::NonZeroU32;

use hashbrown::HashMap;

use crate::object::{KeyRef, ObjectKey};

/// The references to the objects of one kind, each object with its item `I`.
///
/// An item is in here exactly while somebody references it. A count that is zero or less cannot be written down: it
/// is no entry at all.
#[derive(Debug)]
pub(crate) struct References<I> {
    entries: HashMap<ObjectKey, Entry<I>>,
}

#[derive(Debug)]
struct Entry<I> {
    item: I,
    pods: HashMap<Box<str>, NonZeroU32>,
}

/// What an added reference was.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Added<I> {
    /// The first one: the item was just made.
    First(I),
    /// One more on an item that was there.
    Shared(I),
}

/// What a deleted reference was.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Deleted<I> {
    /// The last one: the item is no longer in here.
    Last(I),
    /// Others remain.
    Shared,
    /// Nobody had counted it (OC-3, OC-4).
    Unknown,
}

impl<I> Default for References<I> {
    fn default() -> Self {
        Self {
            entries: HashMap::new(),
        }
    }
}

impl<I: Clone> References<I> {
    /// Counts a reference of the pod `uid`; makes the item if it is the first one of all.
    pub(crate) fn add(&mut self, key: &ObjectKey, uid: &str, make: impl FnOnce() -> I) -> Added<I> {
        if let Some(entry) = self.entries.get_mut(key) {
            let count = entry.pods.get(uid).copied();
            let more = count.map_or(NonZeroU32::MIN, |count| count.saturating_add(1));
            entry.pods.insert(uid.into(), more);
            return Added::Shared(entry.item.clone());
        }
        let item = make();
        let entry = Entry {
            item: item.clone(),
            pods: [(uid.into(), NonZeroU32::MIN)].into_iter().collect(),
        };
        self.entries.insert(key.clone(), entry);
        Added::First(item)
    }

    /// Takes back one reference of the pod `uid`; gives the item out with the last one of all.
    pub(crate) fn delete(&mut self, key: &ObjectKey, uid: &str) -> Deleted<I> {
        let Some(entry) = self.entries.get_mut(key) else {
            return Deleted::Unknown;
        };
        let Some(count) = entry.pods.get_mut(uid) else {
            return Deleted::Unknown;
        };
        if let Some(less) = NonZeroU32::new(count.get().saturating_sub(1)) {
            *count = less;
            return Deleted::Shared;
        }
        entry.pods.remove(uid);
        if !entry.pods.is_empty() {
            return Deleted::Shared;
        }
        let last = self.entries.remove(key);
        last.map_or(Deleted::Unknown, |entry| Deleted::Last(entry.item))
    }

    /// The item of an object that is referenced. Allocates nothing.
    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<&I> {
        let key = KeyRef { namespace, name };
        self.entries.get(&key).map(|entry| &entry.item)
    }

    /// Puts another item in the place of the one of an object that is referenced.
    pub(crate) fn set_item(&mut self, key: &ObjectKey, item: I) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.item = item;
        }
    }

    /// How many pods reference the object.
    pub(crate) fn pods(&self, key: &ObjectKey) -> usize {
        self.entries.get(key).map_or(0, |entry| entry.pods.len())
    }

    /// How many references there are: an object that two pods reference counts twice.
    pub(crate) fn total(&self) -> usize {
        self.entries.values().map(|entry| entry.pods.len()).sum()
    }

    /// Every item.
    pub(crate) fn items(&self) -> impl Iterator<Item = &I> {
        self.entries.values().map(|entry| &entry.item)
    }

    /// How many objects are referenced.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("ns", name)
    }

    fn count(references: &References<u32>, name: &str, uid: &str) -> u32 {
        references
            .entries
            .get(&key(name))
            .and_then(|entry| entry.pods.get(uid))
            .map_or(0, |count| count.get())
    }

    /// OC-4, first three rows; `TestRefMapHandlesReferencesCorrectly`.
    #[test]
    fn the_reference_table_of_one_pod() {
        let rows: [(&str, &[u32]); 3] = [("aadd", &[1, 2, 1, 0]), ("d", &[0]), ("add", &[1, 0, 0])];
        for (steps, expected) in rows {
            let mut references = References::default();
            let counts: Vec<u32> = steps
                .chars()
                .map(|step| {
                    match step {
                        'a' => drop(references.add(&key("s1"), "pod1", || 7)),
                        _ => drop(references.delete(&key("s1"), "pod1")),
                    }
                    count(&references, "s1", "pod1")
                })
                .collect();
            assert_eq!(counts, expected, "{steps}");
            assert_eq!(references.len(), 0, "{steps}: no item is left");
        }
    }

    /// OC-4, last row, without OC-5's count of -1 (B6): what was never added is not taken back.
    #[test]
    fn deleting_what_others_added_changes_nothing() {
        let mut references = References::default();
        assert_eq!(references.add(&key("s1"), "pod1", || 7), Added::First(7));
        assert_eq!(references.delete(&key("s1"), "pod2"), Deleted::Unknown);
        assert_eq!(references.delete(&key("s2"), "pod1"), Deleted::Unknown);
        let elsewhere = ObjectKey::new("other", "s1");
        assert_eq!(references.delete(&elsewhere, "pod1"), Deleted::Unknown);
        assert_eq!(count(&references, "s1", "pod1"), 1);
        assert_eq!(references.add(&key("s1"), "pod2", || 8), Added::Shared(7));
        assert_eq!(references.delete(&key("s1"), "pod2"), Deleted::Shared);
        assert_eq!(references.delete(&key("s1"), "pod1"), Deleted::Last(7));
        assert_eq!(references.len(), 0);
    }

    /// OC-26 and KEY-1: the borrowed key finds what the owned one stored.
    #[test]
    fn a_borrowed_key_finds_its_item() {
        let mut references = References::default();
        references.add(&ObjectKey::new("ns", "a"), "pod", || 1);
        references.add(&ObjectKey::new("", "a"), "pod", || 2);
        assert_eq!(references.get("ns", "a"), Some(&1));
        assert_eq!(references.get("", "a"), Some(&2));
        assert_eq!(references.get("n", "sa"), None);
    }
}
