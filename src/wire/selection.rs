//! Which objects of a collection are decoded. The text of the others is passed over.

use super::json::Decoder;
use super::json_text::Text;
use super::members::{find, members_of};
use super::scan::spells;
use crate::object::ResourceVersion;

/// Selects the objects of a collection that are decoded, by what stands in their metadata.
///
/// A watch of a whole namespace has one where few of its objects matter. The decoder looks for the
/// metadata of each object in the text. It passes over an object that is not selected: that is
/// neither decoded nor allocated.
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
    /// Called on the thread that decodes, once for each object that comes, in the order in which
    /// they come. It must not block. A panic of it is a panic of the decoder.
    fn selects(&self, namespace: &str, name: &str, version: &str) -> bool;
}

/// The version of an object that is not selected. `None` for one that is to be decoded: so is an
/// object in which no name is found, because the decoder says what is wrong with it. Sets
/// `is_selected` for an object that the selection has selected.
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
