//! The members of an API object that a decoder passes over, or notes.

use crate::object::wipe::LAST_APPLIED;

/// The parts of an API object that are passed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Skipped {
    /// The fields that a cache does not keep (B19).
    pub(super) trim: bool,
    /// The values of a Secret and kubectl's copy of them, which are decoded apart.
    pub(super) secret: bool,
    /// All but the metadata, the kind and the version.
    pub(super) rest: bool,
}

/// The values of members of an API object that its decoder noted, as they stand in the text. The
/// last of several counts. The members of a Secret are also passed over.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Noted<'de> {
    pub(super) kind: Option<&'de [u8]>,
    pub(super) api_version: Option<&'de [u8]>,
    pub(super) data: Option<&'de [u8]>,
    pub(super) string_data: Option<&'de [u8]>,
    pub(super) last_applied: Option<&'de [u8]>,
}

/// Where a member is noted.
pub(super) type NotedMember<'de> = for<'a> fn(&'a mut Noted<'de>) -> &'a mut Option<&'de [u8]>;

/// A container with members that matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Place {
    Object,
    Metadata,
    Annotations,
    #[default]
    Elsewhere,
}

/// The decoder's treatment of a member.
pub(super) enum MemberUse<'de> {
    Skip,
    /// Noted and passed over.
    Cut(NotedMember<'de>),
    /// Noted if it is a string, and decoded.
    Note(NotedMember<'de>),
    /// Decoded; a map in it is this place.
    Value(Place),
}

impl Place {
    pub(super) fn member<'de>(self, key: &str, skipped: Skipped) -> MemberUse<'de> {
        let Skipped { trim, secret, rest } = skipped;
        match (self, key) {
            (Self::Object, "metadata") => MemberUse::Value(Self::Metadata),
            (Self::Object, "kind") => MemberUse::Note(|noted| &mut noted.kind),
            (Self::Object, "apiVersion") => MemberUse::Note(|noted| &mut noted.api_version),
            (Self::Object, _) if rest => MemberUse::Skip,
            (Self::Object, "data") if secret => MemberUse::Cut(|noted| &mut noted.data),
            (Self::Object, "stringData") if secret => {
                MemberUse::Cut(|noted| &mut noted.string_data)
            }
            (Self::Metadata, "managedFields") | (Self::Annotations, LAST_APPLIED) if trim => {
                MemberUse::Skip
            }
            (Self::Metadata, "annotations") if trim || secret => {
                MemberUse::Value(Self::Annotations)
            }
            (Self::Annotations, LAST_APPLIED) => MemberUse::Cut(|noted| &mut noted.last_applied),
            _ => MemberUse::Value(Self::Elsewhere),
        }
    }
}
