//! Selects the objects of a collection that are decoded. The decoder passes over the text of the
//! others.

use super::json::Decoder;
use super::json_text::Text;
use super::members::{find, members_of};
use super::scan::spells;
use crate::object::ResourceVersion;

/// Selects the objects of a collection that are decoded, by their metadata.
///
/// A watch of a whole namespace uses a selection if few of its objects matter. The decoder finds
/// the metadata of each object in the text. It passes over an object that is not selected, and
/// neither decodes nor allocates it.
///
/// # Examples
///
/// ```
/// use kubecache::list_watch::Selection;
///
/// struct Named(&'static str);
///
/// impl Selection for Named {
///     fn selects(&self, _namespace: &str, name: &str, _version: &str) -> bool {
///         name == self.0
///     }
/// }
/// ```
pub trait Selection: Send + Sync {
    /// Whether the object is decoded. `version` is its resource version.
    ///
    /// The decoding thread calls it once for each object, in the order of arrival. It must not
    /// block. If it panics, the decoder panics.
    fn selects(&self, namespace: &str, name: &str, version: &str) -> bool;
}

/// The version of an object that is not selected. `None` for an object to decode. That includes an
/// object without a name, because the decoder says what is wrong with it. Sets `is_selected` if the
/// selection selected the object.
pub(super) fn passed_over(
    selection: Option<&dyn Selection>,
    json: &[u8],
    is_selected: &mut bool,
) -> Option<ResourceVersion> {
    let selection = selection?;
    let metadata = find(json, "metadata")?;
    let [mut namespace, mut name, mut version] = [const { Text::Plain("") }; 3];
    for member in members_of(metadata) {
        let (key, value) = member.ok()?;
        let text = if spells(key, "name") {
            &mut name
        } else if spells(key, "namespace") {
            &mut namespace
        } else if spells(key, "resourceVersion") {
            &mut version
        } else {
            continue;
        };
        *text = Decoder::string(value)?;
    }
    let [namespace, name, version] = [&namespace, &name, &version].map(Text::as_str);
    if name.is_empty() {
        return None;
    }
    *is_selected = selection.selects(namespace, name, version);
    (!*is_selected).then(|| ResourceVersion::from(version))
}
