//! A fault: an act, and the connections, requests or objects to which it applies.

use std::fmt;

use super::act::{Act, Layer};
use crate::testing::http::message::RequestMessage;
use crate::testing::recording::Selected;

/// An [`Act`] and the connections, requests or objects to which it applies.
///
/// Without a selection, it applies to all. For an act that changes objects
/// ([`Undecodable`](Act::Undecodable) and its like), namespace and name select objects, in lists,
/// watches and gets alike. An act of a connection ([`Refuse`](Act::Refuse),
/// [`Silent`](Act::Silent), all of a handshake) comes before any request: only the number of the
/// connection can select it.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "testing")] {
/// use kubecache::testing::{Act, Fault};
///
/// let second_watch_breaks = Fault::new(Act::CutAfter(100))
///     .on("/api/v1/namespaces/shop/secrets")
///     .watches()
///     .from(2)
///     .times(1);
/// let every_third_connection_is_a_black_hole = Fault::new(Act::Silent).every(3);
/// let some_lists_fail = Fault::from_json(
///     r#"{"act": "status", "code": 500, "verb": "list", "seed": 7, "probability": 0.1}"#,
/// )?;
/// # let _ = (second_watch_breaks, every_third_connection_is_a_black_hole, some_lists_fail);
/// # }
/// # Ok::<_, kubecache::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    pub(super) act: Act,
    pub(super) path: Option<String>,
    pub(super) path_prefix: Option<String>,
    pub(super) verb: Option<String>,
    pub(super) resource: Option<String>,
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
    pub(super) watch: Option<bool>,
    pub(super) connection: Option<u64>,
    pub(super) per_connection: bool,
    pub(super) first: usize,
    pub(super) every: usize,
    pub(super) times: usize,
    pub(super) chance: Option<FaultChance>,
}

/// A seed, and the probability of each act.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct FaultChance {
    pub(super) seed: u64,
    pub(super) probability: f64,
}

/// The number of a fault of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FaultId(pub(super) u64);

impl fmt::Display for FaultId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<u64> for FaultId {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

impl Fault {
    /// Makes a fault that applies to every connection, request or object.
    pub fn new(act: Act) -> Self {
        Self {
            act,
            path: None,
            path_prefix: None,
            verb: None,
            resource: None,
            namespace: None,
            name: None,
            watch: None,
            connection: None,
            per_connection: false,
            first: 1,
            every: 1,
            times: usize::MAX,
            chance: None,
        }
    }

    /// Returns the act.
    pub fn act(&self) -> &Act {
        &self.act
    }

    /// Applies only to requests for that path, with any selectors.
    #[must_use]
    pub fn on(mut self, path: &str) -> Self {
        self.path = Some(path.to_owned());
        self
    }

    /// Applies only to requests whose path has that prefix.
    #[must_use]
    pub fn under(mut self, prefix: &str) -> Self {
        self.path_prefix = Some(prefix.to_owned());
        self
    }

    /// Applies only to requests of that verb, as RBAC names it: `get`, `list`, `watch`, `create`,
    /// `update`, `patch`, `delete` or `deletecollection`.
    #[must_use]
    pub fn verb(mut self, verb: &str) -> Self {
        self.verb = Some(verb.to_owned());
        self
    }

    /// Applies only to requests of that kind, by its plural: `secrets`. Requests for subresources
    /// of its objects, such as `status`, are among them.
    #[must_use]
    pub fn resource(mut self, plural: &str) -> Self {
        self.resource = Some(plural.to_owned());
        self
    }

    /// Applies only to requests in that namespace. An act that changes objects applies only to
    /// objects in it.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// Applies only to requests for one object of that name, by path or field selector. An act that
    /// changes objects applies only to objects of that name.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Applies only to watches.
    #[must_use]
    pub fn watches(mut self) -> Self {
        self.watch = Some(true);
        self
    }

    /// Applies only to requests other than watches.
    #[must_use]
    pub fn reads(mut self) -> Self {
        self.watch = Some(false);
        self
    }

    /// Applies only to that connection of the server; the first one is number 1.
    #[must_use]
    pub fn connection(mut self, number: u64) -> Self {
        self.connection = Some(number);
        self
    }

    /// Counts the requests of each connection separately.
    #[must_use]
    pub fn per_connection(mut self) -> Self {
        self.per_connection = true;
        self
    }

    /// Applies from the `nth` request on; the first one is number 1.
    #[must_use]
    pub fn from(mut self, nth: usize) -> Self {
        self.first = nth.max(1);
        self
    }

    /// Applies to each `nth` request only: to number `nth`, to twice that, and so on. With
    /// [`from`](Self::from), to that one and each `nth` after it.
    #[must_use]
    pub fn every(mut self, nth: usize) -> Self {
        self.every = nth.max(1);
        self
    }

    /// Applies to at most this many requests.
    #[must_use]
    pub fn times(mut self, times: usize) -> Self {
        self.times = times;
        self
    }

    /// Applies by chance, to about this part of the requests (0.0 to 1.0). The same seed gives the
    /// same choice for the same order of requests.
    #[must_use]
    pub fn by_chance(mut self, seed: u64, probability: f64) -> Self {
        self.chance = Some(FaultChance { seed, probability });
        self
    }

    pub(super) fn is_of_connections(&self) -> bool {
        self.act.layer() == Layer::Connection
    }

    /// Whether it applies to the connection itself.
    pub(super) fn is_about_connection(&self, connection: u64) -> bool {
        self.is_of_connections() && self.is_on(connection) && !self.names_requests()
    }

    /// Whether it selects requests.
    pub(super) fn names_requests(&self) -> bool {
        let texts = [
            &self.path,
            &self.path_prefix,
            &self.verb,
            &self.resource,
            &self.namespace,
            &self.name,
        ];
        self.watch.is_some() || self.per_connection || texts.iter().any(|text| text.is_some())
    }

    fn is_on(&self, connection: u64) -> bool {
        self.connection.is_none_or(|number| number == connection)
    }

    /// Whether it selects that request.
    pub(super) fn is_about(&self, request: &RequestMessage, connection: u64) -> bool {
        let target = &request.target;
        let is_watch = target.is_watch();
        if self.is_of_connections()
            || !self.is_on(connection)
            || (self.act.is_of_watches() && !is_watch)
            || self.watch.is_some_and(|watch| watch != is_watch)
            || self.path.as_ref().is_some_and(|path| *path != target.path)
        {
            return false;
        }
        let prefix = self.path_prefix.as_deref().unwrap_or_default();
        if !target.path.starts_with(prefix) {
            return false;
        }
        let selected = Selected::of(target);
        let is = |wanted: &Option<String>, of: fn(&Selected) -> Option<&str>| {
            let found = selected.as_ref().and_then(of);
            wanted.is_none() || wanted.as_deref() == found
        };
        let by_object = self.act.layer() == Layer::Content;
        is(&self.resource, |selected| Some(&selected.plural))
            && (by_object || is(&self.namespace, |selected| selected.namespace.as_deref()))
            && (by_object || is(&self.name, |selected| selected.name.as_deref()))
            && self.verb.as_deref().is_none_or(|verb| {
                let is_object = selected.as_ref().is_none_or(|selected| selected.is_object);
                verb == verb_of(&request.method, is_watch, is_object)
            })
    }

    /// Whether the `nth` selected request meets it, when `before` have met it.
    pub(super) fn meets(&self, nth: usize, before: usize) -> bool {
        let Some(after) = nth.checked_sub(self.first) else {
            return false;
        };
        // Without a first one, "each third" means the third, the sixth and so on.
        let counted = if self.first == 1 { nth } else { after };
        counted.checked_rem(self.every) == Some(0)
            && before < self.times
            && self.chance.is_none_or(|chance| chance.takes(nth))
    }
}

impl FaultChance {
    fn takes(self, nth: usize) -> bool {
        // The finalizer of SplitMix64: neighbours have nothing in common.
        let nth = u64::try_from(nth).unwrap_or(u64::MAX);
        let mut mixed = self
            .seed
            .wrapping_add(nth.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let part = f64::from(u32::try_from(mixed >> 32).unwrap_or_default());
        part / (f64::from(u32::MAX) + 1.0) < self.probability
    }
}

fn verb_of(method: &str, is_watch: bool, is_object: bool) -> &'static str {
    match method {
        _ if is_watch => "watch",
        "GET" | "HEAD" if is_object => "get",
        "GET" | "HEAD" => "list",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" if is_object => "delete",
        "DELETE" => "deletecollection",
        _ => "",
    }
}
