//! The ways in which a manager can learn of changes, in the kubelet's words.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;

/// How a manager learns that an object changed: the kubelet's
/// `configMapAndSecretChangeDetectionStrategy`.
///
/// It is spelled as the kubelet spells it: `Watch`, `Cache` or `Get`.
///
/// | | requests | a read lags behind the server by |
/// |---|---|---|
/// | `Watch` | a list and an open watch per referenced object | usually milliseconds |
/// | `Cache` | a get per object and time to live, when it is read | the time to live: a minute |
/// | `Get` | a get per read | nothing |
///
/// # Examples
///
/// ```
/// use kubecache::manager::ChangeDetection;
///
/// assert_eq!("Cache".parse::<ChangeDetection>()?, ChangeDetection::Cache);
/// let wrong = "cache".parse::<ChangeDetection>().unwrap_err();
/// assert_eq!(wrong.to_string(), "unknown configmap and secret manager mode: cache");
/// # Ok::<_, kubecache::Error>(())
/// ```
#[doc(alias = "ResourceChangeDetectionStrategy")]
#[doc(alias = "configMapAndSecretChangeDetectionStrategy")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[expect(
    clippy::exhaustive_enums,
    reason = "the kubelet's three, all of which a caller may want to tell apart"
)]
pub enum ChangeDetection {
    /// The manager watches each referenced object, and answers reads from memory. The default.
    #[default]
    Watch,
    /// A read fetches the object if the cached one is older than its time to live.
    Cache,
    /// Each read fetches the object. Nothing is cached, and objects need no references.
    Get,
}

impl ChangeDetection {
    /// All three, the default first.
    pub const ALL: [Self; 3] = [Self::Watch, Self::Cache, Self::Get];

    /// Returns the kubelet's word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Watch => "Watch",
            Self::Cache => "Cache",
            Self::Get => "Get",
        }
    }
}

impl fmt::Display for ChangeDetection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for ChangeDetection {
    type Err = Error;

    /// Parses the kubelet's word; upper and lower case matter.
    ///
    /// # Errors
    ///
    /// `Config` for any other text, in the kubelet's words.
    fn from_str(text: &str) -> Result<Self, Error> {
        let known = Self::ALL.into_iter().find(|mode| mode.as_str() == text);
        known.ok_or_else(|| {
            Error::config(format!("unknown configmap and secret manager mode: {text}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    /// SC-6: spelled and defaulted as the kubelet's; anything else is the kubelet's error.
    #[test]
    fn sc_6_strategies_are_spelled_as_the_kubelet_spells_them() {
        assert_eq!(ChangeDetection::default(), ChangeDetection::Watch);
        for mode in ChangeDetection::ALL {
            assert_eq!(mode.to_string().parse::<ChangeDetection>().unwrap(), mode);
        }
        for wrong in ["", "watch", "TTL", "Get "] {
            let error = wrong.parse::<ChangeDetection>().unwrap_err();
            let text = format!("unknown configmap and secret manager mode: {wrong}");
            assert_eq!((error.kind(), error.to_string()), (ErrorKind::Config, text));
        }
    }
}
