//! Named index functions and their maps: plain data, kept in step by the store's state (IX-1..IX-12).

use std::collections::BTreeMap;
use std::fmt;

use hashbrown::{HashMap, HashSet};

use crate::error::{Error, ErrorKind};
use crate::object::{Object, ObjectKey};
use crate::sync::Arc;

/// The name of the index by namespace (KEY-11).
#[doc(alias = "NamespaceIndex")]
pub const NAMESPACE_INDEX: &str = "namespace";

/// What an index lists an object under: any number of values.
type IndexFn<K> = Arc<dyn Fn(&K) -> Vec<String> + Send + Sync>;

/// Index functions by name, for a [`Store`](crate::store::Store).
///
/// A function gives any number of values; the object is found under each of them. It runs on the reflector's
/// thread, under no lock, and cannot fail: an object that fits no value gives none (instead of IX-6).
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
pub struct Indexers<K: Object>(BTreeMap<String, IndexFn<K>>);

impl<K: Object> Indexers<K> {
    /// No index.
    pub fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Adds the index by namespace; cluster-scoped objects stand under the empty one (KEY-11).
    #[must_use]
    pub fn by_namespace(self) -> Self {
        self.with(NAMESPACE_INDEX, |object: &K| {
            vec![object.metadata().namespace.clone().unwrap_or_default()]
        })
    }

    /// Adds an index; a function of the same name is replaced.
    #[must_use]
    pub fn with(
        mut self,
        name: impl Into<String>,
        function: impl Fn(&K) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        self.0.insert(name.into(), Arc::new(function));
        self
    }

    /// The names of the indices, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Both sets of functions, unless they share a name (IX-9).
    pub(super) fn merged(&self, more: &Self) -> Result<Self, Error> {
        let shared: Vec<&str> = more
            .names()
            .filter(|name| self.0.contains_key(*name))
            .collect();
        if !shared.is_empty() {
            let text = format!("indexer conflict: {}", shared.join(", "));
            return Err(Error::new(ErrorKind::Config, text));
        }
        let both = self.0.iter().chain(&more.0);
        Ok(Self(
            both.map(|(name, function)| (name.clone(), Arc::clone(function)))
                .collect(),
        ))
    }

    /// The values of an object, one list per index in the order of their names; user code runs here.
    pub(super) fn values(&self, object: &K) -> Values {
        self.0
            .values()
            .map(|function| {
                let mut values = function(object);
                values.sort_unstable();
                values.dedup();
                values.into_iter().map(Arc::from).collect()
            })
            .collect()
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.0.keys().position(|known| known == name)
    }
}

impl<K: Object> Default for Indexers<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Object> fmt::Debug for Indexers<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// The values one object stands under, per index. They are remembered, not computed again, when it goes (IX-7).
pub(super) type Values = Box<[Box<[Arc<str>]>]>;

/// The maps of all indices.
pub(super) struct Indices<K: Object> {
    functions: Arc<Indexers<K>>,
    maps: Vec<HashMap<Arc<str>, HashSet<Arc<ObjectKey>>>>,
}

impl<K: Object> Indices<K> {
    pub(super) fn new(functions: Arc<Indexers<K>>) -> Self {
        let maps = functions.0.iter().map(|_| HashMap::new()).collect();
        Self { functions, maps }
    }

    pub(super) fn functions(&self) -> &Arc<Indexers<K>> {
        &self.functions
    }

    pub(super) fn insert(&mut self, key: &Arc<ObjectKey>, values: &Values) {
        for (map, values) in self.maps.iter_mut().zip(values) {
            for value in values {
                map.entry_ref(&**value).or_default().insert(Arc::clone(key));
            }
        }
    }

    /// Takes a key out; a value nobody has any more leaves no trace (IX-8).
    pub(super) fn remove(&mut self, key: &ObjectKey, values: &Values) {
        for (map, values) in self.maps.iter_mut().zip(values) {
            for value in values {
                if let Some(keys) = map.get_mut(&**value) {
                    keys.remove(key);
                    if keys.is_empty() {
                        map.remove(&**value);
                    }
                }
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

    /// Every value some object has; none for an unknown index (IX-2).
    pub(super) fn all_values(&self, name: &str) -> Vec<String> {
        self.map(name)
            .map(|map| map.keys().map(|value| (**value).to_owned()).collect())
            .unwrap_or_default()
    }

    fn map(&self, name: &str) -> Result<&HashMap<Arc<str>, HashSet<Arc<ObjectKey>>>, Error> {
        self.functions
            .position(name)
            .and_then(|position| self.maps.get(position))
            .ok_or_else(|| unknown(name))
    }
}

/// The values of one object under one index; an error when there is no such index.
pub(super) fn values_of<K: Object>(
    functions: &Indexers<K>,
    name: &str,
    object: &K,
) -> Result<Vec<String>, Error> {
    let function = functions.0.get(name).ok_or_else(|| unknown(name))?;
    Ok(function(object))
}

fn unknown(name: &str) -> Error {
    Error::new(
        ErrorKind::Config,
        format!("Index with name {name} does not exist"),
    )
}
