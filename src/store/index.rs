//! Named index functions and their maps: plain data, kept in step by the store's state
//! (IX-1..IX-12).

use std::fmt;

use hashbrown::{HashMap, HashSet};

use crate::error::{Error, default_of};
use crate::guard::guard;
use crate::list_watch::Listed;
use crate::object::{Object, ObjectKey};
use crate::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// The name of the index by namespace.
#[doc(alias = "NamespaceIndex")]
pub const NAMESPACE_INDEX: &str = "namespace";

/// Returns the values of an object under an index: any number of them.
type IndexFn<K> = Arc<dyn Fn(&K) -> Vec<String> + Send + Sync>;

/// Index functions by name, for a [`Store`](crate::store::Store).
///
/// A function returns any number of values, and the index lists the object under each. It runs on
/// the reflector's thread, without a lock. It must be quick, because the reflector does not read
/// the watch meanwhile. It cannot fail: an object that fits no value has none.
///
/// If a function panics, that index does not list the object; all else goes on.
/// [`Store::index_panics`](crate::store::Store::index_panics) counts the panics. The first one of a
/// store is logged at `error`, later ones at `debug`.
///
/// # Examples
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use kubecache::store::Indexers;
///
/// let indexers = Indexers::new().by_namespace().with("node", |pod: &Pod| {
///     pod.spec.iter().filter_map(|spec| spec.node_name.clone()).collect()
/// });
/// assert_eq!(indexers.names().collect::<Vec<_>>(), ["namespace", "node"]);
/// ```
#[doc(alias = "IndexFunc")]
pub struct Indexers<K: Object> {
    functions: Vec<(String, IndexFn<K>)>,
    /// How often one of them panicked in its store.
    panics: Arc<AtomicU64>,
}

impl<K: Object> Indexers<K> {
    /// Makes an empty set of index functions.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the index by namespace. Cluster-scoped objects are under the empty value.
    #[must_use]
    pub fn by_namespace(self) -> Self {
        self.with(NAMESPACE_INDEX, |object: &K| {
            vec![object.namespace().to_owned()]
        })
    }

    /// Adds an index, or replaces the function of that name.
    #[must_use]
    pub fn with(
        mut self,
        name: impl Into<String>,
        function: impl Fn(&K) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        let name = name.into();
        self.functions.retain(|(known, _)| *known != name);
        self.functions.push((name, Arc::new(function)));
        self
    }

    /// The names of the indices, in the order in which they were added.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.functions.iter().map(|(name, _)| name.as_str())
    }

    /// Both sets of functions, unless they share a name (IX-9).
    pub(super) fn merged(&self, more: &Self) -> Result<Self, Error> {
        let mut shared: Vec<&str> = more.names().collect();
        shared.retain(|name| self.position(name).is_some());
        if !shared.is_empty() {
            let shared = shared.join(", ");
            return Err(Error::config(format!("indexer conflict: {shared}")));
        }
        Ok(Self {
            functions: [&*self.functions, &*more.functions].concat(),
            panics: Arc::clone(&self.panics),
        })
    }

    /// The values of an item, one list per index; none for an undecodable object. Runs code of the
    /// program.
    pub(super) fn values(&self, item: &Listed<K>) -> Values {
        let Some(object) = item.decoded() else {
            return Values::default();
        };
        let values = self.calls(self, object);
        values.map(Result::unwrap_or_default).collect()
    }

    /// The values of an object by the `new` functions, whose panic is an error.
    pub(super) fn values_by(&self, new: &Self, object: &K) -> Result<Values, Error> {
        self.calls(new, object).collect()
    }

    /// The values of one object under one index; an error when there is no such index.
    pub(super) fn values_in(&self, name: &str, object: &K) -> Result<Vec<String>, Error> {
        let position = self.position(name).ok_or_else(|| unknown(name))?;
        let function = self.functions.get(position);
        function.map_or(Ok(Vec::new()), |(name, function)| {
            self.call(name, function, object)
        })
    }

    fn calls(&self, of: &Self, object: &K) -> impl Iterator<Item = Result<Box<[Arc<str>]>, Error>> {
        of.functions.iter().map(|(name, function)| {
            let mut values = self.call(name, function, object)?;
            values.sort_unstable();
            values.dedup();
            Ok(values.into_iter().map(Arc::from).collect())
        })
    }

    /// How often a function panicked.
    pub(super) fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    /// Calls one function. Counts its panic, and logs it without text that the function may have
    /// formatted from the object.
    fn call(&self, name: &str, function: &IndexFn<K>, object: &K) -> Result<Vec<String>, Error> {
        let key = object.key();
        let resource = K::resource();
        let kind = resource.kind();
        guard(
            format_args!("the function of index {name}, at {kind} {key},"),
            || function(object),
        )
        .inspect_err(|error| {
            let first = self.panics.fetch_add(1, Ordering::Relaxed) == 0;
            let level = if first {
                log::Level::Error
            } else {
                log::Level::Debug
            };
            log::log!(level, "{error}; the index does not list the object");
        })
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.names().position(|known| known == name)
    }
}

/// A clone counts its own panics.
impl<K: Object> Clone for Indexers<K> {
    fn clone(&self) -> Self {
        Self {
            functions: self.functions.clone(),
            panics: Arc::default(),
        }
    }
}

default_of!([K: Object] Indexers<K>: functions, panics);

impl<K: Object> fmt::Debug for Indexers<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

/// The values of one object, per index. The store remembers them, so it need not compute them again
/// when the object goes (IX-7).
pub(super) type Values = Box<[Box<[Arc<str>]>]>;

/// The indices of a store, in the order of their functions.
pub(super) struct Indices<K: Object> {
    functions: Arc<Indexers<K>>,
    /// The keys under each value of each index.
    maps: Vec<HashMap<Arc<str>, HashSet<Arc<ObjectKey>>>>,
}

impl<K: Object> Indices<K> {
    pub(super) fn new(functions: Arc<Indexers<K>>) -> Self {
        let maps = functions.names().map(|_| HashMap::new()).collect();
        Self { functions, maps }
    }

    pub(super) fn functions(&self) -> &Arc<Indexers<K>> {
        &self.functions
    }

    /// Moves a key to other values. Does not touch values that it keeps, and removes a value
    /// without keys (IX-8).
    pub(super) fn replace(&mut self, key: &Arc<ObjectKey>, before: &Values, after: &Values) {
        let none: &[Arc<str>] = &[];
        for (nth, map) in self.maps.iter_mut().enumerate() {
            let before = before.get(nth).map_or(none, |values| values);
            let after = after.get(nth).map_or(none, |values| values);
            for gone in before.iter().filter(|value| !after.contains(value)) {
                if let Some(keys) = map.get_mut(gone) {
                    keys.remove(key);
                    if keys.is_empty() {
                        map.remove(gone);
                    }
                }
            }
            for new in after.iter().filter(|value| !before.contains(value)) {
                let keys = map.entry(Arc::clone(new)).or_default();
                keys.insert(Arc::clone(key));
            }
        }
    }

    /// The keys under any of the values, each once (IX-3, IX-4).
    pub(super) fn keys<'a>(
        &'a self,
        name: &str,
        values: &[&str],
    ) -> Result<HashSet<&'a Arc<ObjectKey>>, Error> {
        let map = self.map(name)?;
        let sets = values.iter().filter_map(|value| map.get(*value));
        Ok(sets.flatten().collect())
    }

    /// Every value of any object; none for an unknown index.
    pub(super) fn all_values(&self, name: &str) -> Vec<String> {
        self.map(name)
            .map(|map| map.keys().map(|value| (**value).to_owned()).collect())
            .unwrap_or_default()
    }

    fn map(&self, name: &str) -> Result<&HashMap<Arc<str>, HashSet<Arc<ObjectKey>>>, Error> {
        let position = self.functions.position(name);
        let map = position.and_then(|position| self.maps.get(position));
        map.ok_or_else(|| unknown(name))
    }
}

fn unknown(name: &str) -> Error {
    Error::config(format!("Index with name {name} does not exist"))
}
