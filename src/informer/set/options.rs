//! The options of all informers of a set.

use std::time::Duration;

use crate::informer::InformerOptions;
use crate::object::{Object, Scope};
use crate::reflector::ReflectorOptions;
use crate::setters::setters;
use crate::store::Indexers;

/// The options of the informers of an [`InformerSet`](crate::informer::InformerSet).
/// [`informer_with`](crate::informer::InformerSet::informer_with) changes them for one informer.
///
/// # Examples
///
/// ```
/// use kubecache::informer::InformerSetOptions;
/// use kubecache::object::Scope;
/// use std::time::Duration;
///
/// let options = InformerSetOptions::default()
///     .scope(Scope::namespace("shop"))
///     .resync_period(Duration::from_secs(600));
/// # drop(options);
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "options do nothing before a set is made with them"]
pub struct InformerSetOptions {
    pub(super) scope: Scope,
    pub(super) resync_period: Duration,
    pub(super) reflector: ReflectorOptions,
}

setters! { [] InformerSetOptions;
    /// Sets the scope of informers that are made without one: one namespace, or the objects that
    /// match selectors. Default: all objects.
    ///
    /// For a cluster-scoped kind only the selectors count, as in client-go.
    #[doc(alias("WithNamespace", "WithTweakListOptions"))]
    scope(scope: Scope);

    /// Sets how often handlers without a period of their own receive every object once more.
    /// Default: zero, which means never.
    #[doc(alias = "defaultResync")]
    resync_period(period: Duration);

    /// Sets how the informers list and watch, and the clock of the set and its informers.
    ///
    /// Each informer gets its own seed, derived from the one set here, so that they do not retry in
    /// step. The set ignores `waiters`, `known_version` and `resync_period`, which belong to one
    /// informer.
    reflector(options: ReflectorOptions);
}

impl InformerSetOptions {
    /// The scope of an informer that is requested without one.
    pub(super) fn scope_of<K: Object>(&self) -> Scope {
        if K::resource().is_namespaced() {
            return self.scope.clone();
        }
        Scope::all()
            .fields(self.scope.field_selector().clone())
            .labels(self.scope.label_selector().clone())
    }

    /// The first options of the informer with that number.
    pub(super) fn of_informer<K: Object>(&self, name: String, number: u64) -> InformerOptions<K> {
        let mut reflector = self.reflector.clone();
        reflector.seed = reflector.seed.map(|seed| seed.wrapping_add(number));
        reflector.known_version = None;
        let mut indexers = Indexers::new();
        if K::resource().is_namespaced() {
            // Listers of one namespace are quick with it.
            indexers = indexers.by_namespace();
        }
        let options = InformerOptions::default()
            .resync_period(self.resync_period)
            .indexers(indexers)
            .reflector(reflector);
        // The errors of waits name the kind already, so a name appears only if it adds something
        // (WT-4).
        if name == K::resource().to_string() {
            options
        } else {
            options.name(name)
        }
    }
}
