//! Gets and lists: one object, or all of a kind at one version, in pages if the client asks for
//! that.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value, json};

use super::list_options::{self, AskedVersion, text};
use super::refusal::Refusal;
use super::resources::ApiResource;
use super::routes::ObjectRoute;
use super::selectors::ObjectFilter;
use super::storage::{Compacted, ObjectsByKey, StorageState, StoredVersion};
use crate::sync::Arc;
use crate::testing::recording::Target;

/// Answers a get.
pub(super) fn get(
    state: &StorageState,
    route: &ObjectRoute,
    target: &Target,
) -> Result<Arc<StoredVersion>, Refusal> {
    if let AskedVersion::At(asked) = AskedVersion::of_list(target)?
        && asked > state.version()
    {
        return Err(Refusal::too_large_version(asked, state.version()));
    }
    let found = state.get(&route.resource.storage_key(), &route.key());
    found.ok_or_else(|| Refusal::not_found(&route.resource, &route.name))
}

/// The selected objects of a list, or of one page of it, and the metadata of the list.
pub(super) struct ListedObjects {
    pub(super) metadata: Value,
    pub(super) items: Vec<Arc<StoredVersion>>,
}

/// Reads a list, or a page of it.
pub(super) fn list(
    state: &mut StorageState,
    route: &ObjectRoute,
    target: &Target,
) -> Result<ListedObjects, Refusal> {
    let resource = &route.resource;
    let page = Page::of(target)?;
    let filter = ObjectFilter::of(resource, route.namespace.as_deref(), target)?;
    let (version, objects) = page.objects(state, resource)?;
    let first = page.first_key();
    let mut behind = objects
        .range::<str, _>((std::ops::Bound::Excluded(first), std::ops::Bound::Unbounded))
        .map(|(_, object)| object)
        .filter(|object| filter.is_in_range(object));
    let mut items = Vec::new();
    for object in behind.by_ref() {
        if filter.matches(resource, object) {
            items.push(Arc::clone(object));
        }
        if page.limit == Some(items.len()) {
            break;
        }
    }
    // The server does not know whether the selector takes any of them.
    let rest = behind.count();
    let mut metadata = Map::new();
    metadata.insert(
        "resourceVersion".to_owned(),
        Value::from(version.to_string()),
    );
    if rest > 0 && !filter.is_of_one(resource) {
        let last = items
            .last()
            .map(|object| object.key.clone())
            .unwrap_or_default();
        let token = PageToken { version, last }.text();
        metadata.insert("continue".to_owned(), Value::from(token));
        // The server does not count the remaining items of a selector.
        let selects = target
            .value("labelSelector")
            .or(target.value("fieldSelector"));
        if selects.unwrap_or_default().is_empty() {
            metadata.insert("remainingItemCount".to_owned(), Value::from(rest));
        }
    }
    Ok(ListedObjects {
        metadata: Value::Object(metadata),
        items,
    })
}

/// The beginning and the length of a page.
#[derive(Debug)]
struct Page {
    /// The maximum number of objects; `None` for all.
    limit: Option<usize>,
    token: Option<PageToken>,
    asked: AskedVersion,
    is_exact: bool,
}

impl Page {
    fn of(target: &Target) -> Result<Self, Refusal> {
        list_options::check_list(target)?;
        let limit = list_options::number(target, "limit")?.unwrap_or_default();
        let (version, matching) = (
            text(target, "resourceVersion"),
            text(target, "resourceVersionMatch"),
        );
        let token = text(target, "continue");
        let token = match token {
            "" => None,
            text => Some(PageToken::read(text)?),
        };
        if token.is_some() && !matches!(version, "" | "0") {
            let message = "specifying resource version is not allowed when using continue";
            return Err(Refusal::bad_request(message));
        }
        let asked = AskedVersion::of_list(target)?;
        // The server's cache, which answers at `0`, knows no pages.
        let is_whole = asked == AskedVersion::Any && token.is_none();
        let limit_of_page = usize::try_from(limit).ok().filter(|limit| *limit > 0);
        Ok(Self {
            limit: limit_of_page.filter(|_| !is_whole),
            token,
            asked,
            // A page at a version has exactly that version, as before the parameter existed.
            is_exact: matching == "Exact" || (matching.is_empty() && limit > 0),
        })
    }

    /// The objects of the page's version, and that version.
    fn objects(
        &self,
        state: &mut StorageState,
        resource: &ApiResource,
    ) -> Result<(u64, ObjectsByKey), Refusal> {
        let kind = resource.storage_key();
        let current = state.version();
        let wanted = match (&self.token, self.asked) {
            (Some(PageToken { version: 0, .. }), _) => current,
            (Some(token), _) => token.version,
            (None, AskedVersion::At(asked)) if asked > current => {
                return Err(Refusal::too_large_version(asked, current));
            }
            (None, AskedVersion::At(asked)) if self.is_exact => asked,
            (None, _) => current,
        };
        if wanted > current {
            return Err(Refusal::too_large_version(wanted, current));
        }
        let objects = state.objects_at(&kind, wanted);
        let objects = objects.map_err(|Compacted { oldest }| match &self.token {
            Some(token) => Refusal::page_expired(
                PageToken {
                    version: 0,
                    last: token.last.clone(),
                }
                .text(),
            ),
            None => too_old(wanted, oldest),
        })?;
        Ok((wanted, objects))
    }

    /// The key behind which the page begins.
    fn first_key(&self) -> &str {
        self.token.as_ref().map_or("", |token| &token.last)
    }
}

/// The refusal of a version that the history no longer reaches.
pub(super) fn too_old(asked: u64, oldest: u64) -> Refusal {
    Refusal::expired(format!("too old resource version: {asked} ({oldest})"))
}

/// The content of a continue token, which is opaque to clients.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PageToken {
    /// 0 goes on with the present state.
    version: u64,
    /// The key of the last object so far.
    last: String,
}

impl PageToken {
    fn text(&self) -> String {
        let plain = json!({"v": "model", "rv": self.version, "start": self.last});
        URL_SAFE_NO_PAD.encode(plain.to_string())
    }

    fn read(text: &str) -> Result<Self, Refusal> {
        let read = || {
            let plain = URL_SAFE_NO_PAD.decode(text).ok()?;
            let plain: Value = serde_json::from_slice(&plain).ok()?;
            Some(Self {
                version: plain.get("rv")?.as_u64()?,
                last: plain.get("start")?.as_str()?.to_owned(),
            })
        };
        read().ok_or_else(|| {
            let message = "invalid continue token: continue key is not valid";
            Refusal::bad_request(message)
        })
    }
}
