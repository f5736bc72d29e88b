//! Matches labels against a selector: the API's syntax, evaluated here instead of by the server.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector as SelectorInObject;

use super::{LabelSelector, Object};
use crate::error::Error;

/// A parsed [`LabelSelector`], which tells whether labels match it.
///
/// # Examples
///
/// ```
/// use kubecache::object::{LabelMatcher, LabelSelector};
///
/// let selector = LabelSelector::new("app=shop,tier notin (test, canary),!old");
/// let matcher = LabelMatcher::parse(&selector)?;
/// let labels = [("app".to_owned(), "shop".to_owned())].into();
/// assert!(matcher.matches(Some(&labels)));
/// assert!(!matcher.matches(None));
/// # Ok::<(), kubecache::Error>(())
/// ```
#[doc(alias = "labels.Selector")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelMatcher {
    /// The requirements that labels must all meet; `None` matches nothing.
    all: Option<Vec<Requirement>>,
}

/// A requirement on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    label: String,
    value: LabelValue,
    /// The value must differ; a missing label has no value.
    negated: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum LabelValue {
    Any,
    In(BTreeSet<String>),
    GreaterThan(i64),
    LessThan(i64),
}

impl LabelMatcher {
    /// Matches every object, without looking at its labels.
    #[doc(alias = "labels.Everything")]
    pub fn everything() -> Self {
        Self::of(Vec::new())
    }

    /// Matches no object.
    #[doc(alias = "labels.Nothing")]
    pub fn nothing() -> Self {
        Self { all: None }
    }

    /// Parses a selector: `a`, `!a`, `a=b`, `a==b`, `a!=b`, `a in (b,c)`, `a notin (b,c)`, `a>1`,
    /// `a<1`, joined by commas. An empty selector matches everything.
    ///
    /// # Errors
    ///
    /// `Config` with the invalid requirement.
    #[doc(alias = "labels.Parse")]
    pub fn parse(selector: &LabelSelector) -> Result<Self, Error> {
        let text = selector.as_str();
        if trim(text).is_empty() {
            return Ok(Self::everything());
        }
        let requirements = split(text).into_iter().map(trim).map(|part| {
            let requirement = Requirement::parse(part).filter(|one| one.refused().is_none());
            requirement.ok_or_else(|| {
                Error::config(format!("label selector \"{text}\": cannot read \"{part}\""))
            })
        });
        Ok(Self::of(requirements.collect::<Result<_, _>>()?))
    }

    fn of(all: Vec<Requirement>) -> Self {
        Self { all: Some(all) }
    }

    /// Makes a matcher for exact labels, such as the `spec.selector` of a Service. An object
    /// matches if it has all of them; an empty set matches everything.
    ///
    /// It validates nothing, because no object has a label that the API would refuse.
    #[doc(alias = "labels.SelectorFromSet")]
    pub fn of_labels(labels: &BTreeMap<String, String>) -> Self {
        Self::of(labels.iter().map(Requirement::is).collect())
    }

    /// Makes a matcher from a selector in an object, such as the `spec.selector` of a Deployment. A
    /// selector without requirements matches everything. For an object without a selector, use
    /// [`nothing`](Self::nothing), as the API does.
    ///
    /// # Errors
    ///
    /// `Config` with the key or value that no label can have, or the invalid expression: an unknown
    /// operator, or missing or excess values.
    #[doc(alias = "LabelSelectorAsSelector")]
    pub fn of_object(selector: &SelectorInObject) -> Result<Self, Error> {
        let labels = selector.match_labels.iter().flatten();
        let mut all: Vec<_> = labels.map(Requirement::is).collect();
        for expression in selector.match_expressions.iter().flatten() {
            let values: BTreeSet<String> = expression.values.iter().flatten().cloned().collect();
            let (value, negated) = match (&*expression.operator, values.is_empty()) {
                ("In", false) => (LabelValue::In(values), false),
                ("NotIn", false) => (LabelValue::In(values), true),
                ("Exists", true) => (LabelValue::Any, false),
                ("DoesNotExist", true) => (LabelValue::Any, true),
                (operator, _) => {
                    return Err(Error::config(format!(
                        "label selector: cannot read the expression \"{} {operator}\" with {} \
                         values",
                        expression.key,
                        values.len()
                    )));
                }
            };
            all.push(Requirement::new(&expression.key, value, negated));
        }
        match all.iter().find_map(Requirement::refused) {
            None => Ok(Self::of(all)),
            Some((what, text)) => Err(Error::config(format!(
                "label selector: {text:?} cannot be the {what} of a label"
            ))),
        }
    }

    /// Whether `labels` match; `None` stands for an object without labels.
    pub fn matches(&self, labels: Option<&BTreeMap<String, String>>) -> bool {
        self.matches_by(|name| labels?.get(name).map(String::as_str))
    }

    /// Whether the labels of an object match.
    pub fn matches_object<K: Object>(&self, object: &K) -> bool {
        self.matches_by(|name| object.label(name))
    }

    fn matches_by<'a>(&self, value_of: impl Fn(&str) -> Option<&'a str>) -> bool {
        let all = self.all.as_ref();
        all.is_some_and(|all| all.iter().all(|one| one.holds(value_of(&one.label))))
    }

    /// Whether no object can match.
    pub fn is_nothing(&self) -> bool {
        self.all.is_none()
    }

    /// Whether every object matches.
    pub fn is_everything(&self) -> bool {
        self.all.as_ref().is_some_and(Vec::is_empty)
    }
}

/// What the API's parser takes for white space. Other spaces of Unicode belong to a name, which
/// then is none.
const SPACES: [char; 4] = [' ', '\t', '\r', '\n'];

fn trim(text: &str) -> &str {
    text.trim_matches(SPACES)
}

/// The parts between commas that are not inside parentheses.
fn split(text: &str) -> Vec<&str> {
    let mut inside = false;
    text.split(move |character| {
        match character {
            '(' => inside = true,
            ')' => inside = false,
            _ => {}
        }
        character == ',' && !inside
    })
    .collect()
}

impl Requirement {
    fn new(label: &str, value: LabelValue, negated: bool) -> Self {
        let label = label.to_owned();
        Self {
            label,
            value,
            negated,
        }
    }

    fn is((label, value): (&String, &String)) -> Self {
        Self::new(label, LabelValue::In([value.clone()].into()), false)
    }

    /// Reads one without validating key and values.
    fn parse(text: &str) -> Option<Self> {
        let one = |value: &str| LabelValue::In([trim(value).to_owned()].into());
        let (label, value, negated) = if let Some(label) = text.strip_prefix('!') {
            (label, LabelValue::Any, true)
        } else if let Some(rest) = text.strip_suffix(')') {
            let (head, values) = rest.split_once('(')?;
            let (label, operator) = trim(head).rsplit_once(SPACES)?;
            let values = values.split(',').map(|value| trim(value).to_owned());
            let negated = match operator {
                "in" => false,
                "notin" => true,
                _ => return None,
            };
            (label, LabelValue::In(values.collect()), negated)
        } else if let Some((label, unwanted)) = text.split_once("!=") {
            (label, one(unwanted), true)
        } else if let Some((label, wanted)) = text.split_once('=') {
            let wanted = wanted.strip_prefix('=').unwrap_or(wanted);
            (label, one(wanted), false)
        } else if let Some((label, bound)) = text.split_once('>') {
            (label, LabelValue::GreaterThan(number(bound)?), false)
        } else if let Some((label, bound)) = text.split_once('<') {
            (label, LabelValue::LessThan(number(bound)?), false)
        } else {
            (text, LabelValue::Any, false)
        };
        Some(Self::new(trim(label), value, negated))
    }

    /// The key or value that no label can have, and its text.
    fn refused(&self) -> Option<(&'static str, &str)> {
        if !is_key(&self.label) {
            return Some(("key", &self.label));
        }
        let LabelValue::In(values) = &self.value else {
            return None;
        };
        let refused = values.iter().find(|value| !is_of_label(value));
        refused.map(|value| ("value", &**value))
    }

    fn holds(&self, value: Option<&str>) -> bool {
        let number = |text: &str| text.parse::<i64>().ok();
        let is_that = value.is_some_and(|value| match &self.value {
            LabelValue::Any => true,
            LabelValue::In(values) => values.contains(value),
            LabelValue::GreaterThan(bound) => number(value).is_some_and(|value| value > *bound),
            LabelValue::LessThan(bound) => number(value).is_some_and(|value| value < *bound),
        });
        is_that != self.negated
    }
}

/// Whether the API takes it as the key of a label: a name, optionally after a prefix and a slash.
fn is_key(label: &str) -> bool {
    match label.split_once('/') {
        Some((prefix, name)) => is_prefix(prefix) && !name.is_empty() && is_of_label(name),
        None => !label.is_empty() && is_of_label(label),
    }
}

/// A number to compare with. It must be a valid label value, so it has no sign.
fn number(text: &str) -> Option<i64> {
    let text = trim(text);
    is_of_label(text).then(|| text.parse().ok())?
}

/// Whether the API takes it as the name or the value of a label: at most 63 letters, digits, `-`,
/// `_` and `.`, the first and the last a letter or a digit.
fn is_of_label(text: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_outer = |c: char| c.is_ascii_alphanumeric();
    text.len() <= 63
        && text.chars().all(is_inner)
        && text.chars().next().is_none_or(is_outer)
        && text.chars().last().is_none_or(is_outer)
}

/// Whether the API takes it before the slash of a label's name: a DNS subdomain.
fn is_prefix(text: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_part = |part: &str| {
        !part.is_empty()
            && part.chars().all(is_inner)
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(is_part)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;

    use super::*;
    use crate::error::ErrorKind;

    fn owned((label, value): (&str, &str)) -> (String, String) {
        (label.to_owned(), value.to_owned())
    }

    fn read(text: &str) -> Result<LabelMatcher, Error> {
        LabelMatcher::parse(&LabelSelector::new(text))
    }

    /// LS-1: the selectors of the API's documentation against one set of labels.
    #[test]
    fn ls_1_the_table_of_requirements() {
        let labels: BTreeMap<String, String> = [
            ("app", "shop"),
            ("tier", ""),
            ("rank", "7"),
            ("a.io/x", "y_z"),
        ]
        .map(owned)
        .into();
        let table = [
            ("", true),
            (" ", true),
            ("app", true),
            ("nope", false),
            ("!nope", true),
            ("!app", false),
            ("app=shop", true),
            ("app = shop", true),
            ("app==shop", true),
            ("app=bar", false),
            ("nope=shop", false),
            ("tier=", true),
            ("app=", false),
            ("app!=bar", true),
            ("app!=shop", false),
            ("nope!=shop", true),
            ("app in (bar, shop)", true),
            ("app in (bar)", false),
            ("nope in (bar)", false),
            ("tier in (,bar)", true),
            ("app notin (bar,baz)", true),
            ("app notin (shop)", false),
            ("nope notin (shop)", true),
            ("rank>6", true),
            ("rank > 7", false),
            ("rank<8", true),
            ("rank<7", false),
            ("app<8", false),
            ("nope>1", false),
            ("a.io/x=y_z", true),
            ("app=shop,rank in (7,8),!nope", true),
            ("app=shop,rank in (7,8),nope", false),
        ];
        for (text, expected) in table {
            assert_eq!(
                read(text).unwrap().matches(Some(&labels)),
                expected,
                "{text}"
            );
        }
        assert!(read("!a,b!=c").unwrap().matches(None));
        assert!(!read("a").unwrap().matches(None));
    }

    #[test]
    fn what_is_no_selector_is_an_error_that_names_it() {
        for text in [
            "a=b,",
            ",",
            "a in b",
            "a in (b",
            "a on (b)",
            "=b",
            "a>b",
            "a b",
            "!",
            "a=b=c",
            "a=(b)",
            "a in (b!)",
            "a=-b",
            "a=b.",
            "_a",
            "a/b/c",
            "/a",
            "a/",
            "A.io/b",
            "a..io/b",
            "-a.io/b",
            // Only these are white space to the API: a space, a tab and the ends of lines.
            "\u{a0}",
            "\u{b}",
            "a=b\u{a0}",
            "\u{2003}a",
            "a\u{a0}in (b)",
            "a in (b,\u{85}c)",
            "a>1\u{c}",
        ] {
            assert!(read(text).is_err(), "{text:?}");
        }
        let long = "x".repeat(64);
        assert!(read(&long).is_err() && read(&format!("a={long}")).is_err());
        assert!(read(&long[1..]).is_ok() && read(&format!("a={}", &long[1..])).is_ok());
        assert!(read(&format!("{}/a", "x".repeat(254))).is_err());
        let error = read("a=b,c d").unwrap_err();
        assert_eq!(
            error.to_string(),
            "label selector \"a=b,c d\": cannot read \"c d\""
        );
        assert_eq!(error.kind(), ErrorKind::Config);
    }

    /// F22: a number must be a valid label value, so it has no sign.
    #[test]
    fn f22_numbers_with_a_sign_are_no_values() {
        for text in [
            "a>-5",
            "a<+3",
            "a > -5",
            "a>",
            "a>0x1",
            "a>99999999999999999999",
            "a>b",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
        let labels: BTreeMap<String, String> = [("a", "-7")].map(owned).into();
        assert!(
            read("a<05").unwrap().matches(Some(&labels)),
            "what stands on an object may have one"
        );
    }

    /// F22: a selector in an object follows the rules of one in text.
    #[test]
    fn f22_keys_and_values_of_selectors_in_objects_are_validated() {
        let long = "x".repeat(64);
        let of = |key: &str, values: &[&str], operator: Option<&str>| SelectorInObject {
            match_labels: (operator.is_none())
                .then(|| values.iter().map(|value| owned((key, value))).collect()),
            match_expressions: operator.map(|operator| {
                vec![LabelSelectorRequirement {
                    key: key.to_owned(),
                    operator: operator.to_owned(),
                    values: Some(values.iter().map(|value| (*value).to_owned()).collect()),
                }]
            }),
        };
        for (key, value) in [
            ("", "a"),
            ("a b", "a"),
            ("_a", "a"),
            ("a/b/c", "a"),
            ("A.io/b", "a"),
            (&*long, "a"),
            ("a", "-b"),
            ("a", "b c"),
            ("a", "b!"),
            ("a", &*long),
        ] {
            for operator in [None, Some("In"), Some("NotIn")] {
                let error = LabelMatcher::of_object(&of(key, &[value], operator)).unwrap_err();
                assert_eq!(
                    error.kind(),
                    ErrorKind::Config,
                    "{key} {value} {operator:?}"
                );
            }
            if value == "a" {
                for operator in ["Exists", "DoesNotExist"] {
                    assert!(LabelMatcher::of_object(&of(key, &[], Some(operator))).is_err());
                }
            }
        }
        let empty = LabelMatcher::of_object(&of("a.io/b", &[""], Some("In"))).unwrap();
        assert!(empty.matches(Some(&[("a.io/b", "")].map(owned).into())));
    }

    #[test]
    fn ls_1_selectors_that_stand_in_objects() {
        let labels: BTreeMap<String, String> = [("app", "shop"), ("tier", "web")].map(owned).into();
        let wanted = |pairs: &[(&str, &str)]| pairs.iter().copied().map(owned).collect();
        let of_labels = |pairs| LabelMatcher::of_labels(&wanted(pairs));
        assert!(of_labels(&[("app", "shop")]).matches(Some(&labels)));
        assert!(!of_labels(&[("app", "shop"), ("tier", "db")]).matches(Some(&labels)));
        assert!(of_labels(&[]).is_everything());

        let expression = |operator: &str, values: &[&str]| SelectorInObject {
            match_labels: Some(wanted(&[("app", "shop")])),
            match_expressions: Some(vec![LabelSelectorRequirement {
                key: "tier".to_owned(),
                operator: operator.to_owned(),
                values: Some(values.iter().map(|value| (*value).to_owned()).collect()),
            }]),
        };
        let table: [(&str, &[&str], bool); 6] = [
            ("In", &["web", "db"], true),
            ("In", &["db"], false),
            ("NotIn", &["web"], false),
            ("NotIn", &["db"], true),
            ("Exists", &[], true),
            ("DoesNotExist", &[], false),
        ];
        for (operator, values, expected) in table {
            let matcher = LabelMatcher::of_object(&expression(operator, values)).unwrap();
            assert_eq!(matcher.matches(Some(&labels)), expected, "{operator}");
            assert!(!matcher.matches(None));
        }
        let without = LabelMatcher::of_object(&SelectorInObject::default()).unwrap();
        assert!(without.is_everything());
        for (operator, values) in [("in", &["a"][..]), ("In", &[]), ("Exists", &["a"])] {
            let error = LabelMatcher::of_object(&expression(operator, values)).unwrap_err();
            assert!(error.to_string().contains(&format!("\"tier {operator}\"")));
        }
    }

    #[test]
    fn everything_and_nothing_are_known_as_such() {
        assert!(read("").unwrap().is_everything());
        assert!(!read("a").unwrap().is_everything() && !read("a").unwrap().is_nothing());
        assert!(LabelMatcher::nothing().is_nothing() && !LabelMatcher::nothing().is_everything());
        assert!(!LabelMatcher::nothing().matches(None));
    }
}
