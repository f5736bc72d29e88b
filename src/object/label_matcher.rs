//! Whether labels match a selector: the API's syntax, evaluated here instead of by the server.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector as SelectorInObject;

use super::LabelSelector;
use crate::error::{Error, ErrorKind};

/// A [`LabelSelector`] that was read, to be held against labels (LS-1).
///
/// # Examples
///
/// ```
/// use kubecache::object::{LabelMatcher, LabelSelector};
///
/// let matcher = LabelMatcher::parse(&LabelSelector::new("app=shop,tier notin (test, canary),!old"))?;
/// let labels = [("app".to_owned(), "shop".to_owned())].into();
/// assert!(matcher.matches(Some(&labels)));
/// assert!(!matcher.matches(None));
/// # Ok::<(), kubecache::Error>(())
/// ```
#[doc(alias = "labels.Selector")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelMatcher(Match);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Match {
    Nothing,
    /// All of these; without any, everything.
    All(Vec<Requirement>),
}

/// What one label must be.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    label: String,
    must: Must,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Must {
    Exist,
    NotExist,
    BeIn(BTreeSet<String>),
    /// A label that is not there is in no set.
    NotBeIn(BTreeSet<String>),
    BeGreater(i64),
    BeLess(i64),
}

impl LabelMatcher {
    /// Matches every object, without looking at its labels.
    #[doc(alias = "labels.Everything")]
    pub fn everything() -> Self {
        Self(Match::All(Vec::new()))
    }

    /// Matches no object.
    #[doc(alias = "labels.Nothing")]
    pub fn nothing() -> Self {
        Self(Match::Nothing)
    }

    /// Reads a selector: `a`, `!a`, `a=b`, `a==b`, `a!=b`, `a in (b,c)`, `a notin (b,c)`, `a>1`, `a<1`, joined by
    /// commas. An empty selector matches everything.
    ///
    /// # Errors
    ///
    /// `Config` with the requirement that cannot be read.
    #[doc(alias = "labels.Parse")]
    pub fn parse(selector: &LabelSelector) -> Result<Self, Error> {
        let text = selector.as_str();
        if text.trim().is_empty() {
            return Ok(Self::everything());
        }
        let requirements = split(text).into_iter().map(|part| {
            Requirement::parse(part.trim()).ok_or_else(|| {
                let text = format!("label selector \"{text}\": cannot read \"{}\"", part.trim());
                Error::new(ErrorKind::Config, text)
            })
        });
        Ok(Self(Match::All(requirements.collect::<Result<_, _>>()?)))
    }

    /// Matches what has all of these labels, such as the `spec.selector` of a Service; an empty set matches everything.
    ///
    /// Nothing is validated: a label that the API would refuse is on no object.
    #[doc(alias = "labels.SelectorFromSet")]
    pub fn of_labels(labels: &BTreeMap<String, String>) -> Self {
        let all = labels.iter().map(|(label, value)| Requirement {
            label: label.clone(),
            must: Must::BeIn([value.clone()].into()),
        });
        Self(Match::All(all.collect()))
    }

    /// Matches by the selector that stands in an object, such as the `spec.selector` of a Deployment: one without any
    /// requirement matches everything; where there is no selector at all, the API means [`nothing`](Self::nothing).
    ///
    /// # Errors
    ///
    /// `Config` with the key or the value that no label can have, or the expression that says
    /// nothing: an unknown
    /// operator, or values that are missing or too many.
    #[doc(alias = "LabelSelectorAsSelector")]
    pub fn of_object(selector: &SelectorInObject) -> Result<Self, Error> {
        let mut all = Vec::new();
        for (label, value) in selector.match_labels.iter().flatten() {
            let must = Must::BeIn([value.clone()].into());
            all.push(Requirement::validated(label, must)?);
        }
        for expression in selector.match_expressions.iter().flatten() {
            let values: BTreeSet<String> = expression.values.iter().flatten().cloned().collect();
            let must = match (&*expression.operator, values.is_empty()) {
                ("In", false) => Must::BeIn(values),
                ("NotIn", false) => Must::NotBeIn(values),
                ("Exists", true) => Must::Exist,
                ("DoesNotExist", true) => Must::NotExist,
                (operator, _) => {
                    let text = format!(
                        "label selector: cannot read the expression \"{} {operator}\" with {} values",
                        expression.key,
                        values.len()
                    );
                    return Err(Error::new(ErrorKind::Config, text));
                }
            };
            all.push(Requirement::validated(&expression.key, must)?);
        }
        Ok(Self(Match::All(all)))
    }

    /// Whether labels match; `None` is an object without labels.
    pub fn matches(&self, labels: Option<&BTreeMap<String, String>>) -> bool {
        match &self.0 {
            Match::Nothing => false,
            Match::All(all) => all.iter().all(|requirement| {
                let value = labels.and_then(|labels| labels.get(&requirement.label));
                requirement.must.holds(value.map(String::as_str))
            }),
        }
    }

    /// Whether no object can match.
    pub fn is_nothing(&self) -> bool {
        self.0 == Match::Nothing
    }

    /// Whether every object matches.
    pub fn is_everything(&self) -> bool {
        matches!(&self.0, Match::All(all) if all.is_empty())
    }
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
    fn parse(text: &str) -> Option<Self> {
        if let Some(label) = text.strip_prefix('!') {
            return Self::of(label, Must::NotExist);
        }
        if let Some(rest) = text.strip_suffix(')') {
            let (head, values) = rest.split_once('(')?;
            let (label, operator) = head.trim_end().rsplit_once(char::is_whitespace)?;
            let values: Option<BTreeSet<String>> = values.split(',').map(value).collect();
            return match operator {
                "in" => Self::of(label, Must::BeIn(values?)),
                "notin" => Self::of(label, Must::NotBeIn(values?)),
                _ => None,
            };
        }
        if let Some((label, unwanted)) = text.split_once("!=") {
            return Self::of(label, Must::NotBeIn([value(unwanted)?].into()));
        }
        if let Some((label, wanted)) = text.split_once('=') {
            let wanted = wanted.strip_prefix('=').unwrap_or(wanted);
            return Self::of(label, Must::BeIn([value(wanted)?].into()));
        }
        if let Some((label, bound)) = text.split_once('>') {
            return Self::of(label, Must::BeGreater(number(bound)?));
        }
        if let Some((label, bound)) = text.split_once('<') {
            return Self::of(label, Must::BeLess(number(bound)?));
        }
        Self::of(text, Must::Exist)
    }

    fn of(label: &str, must: Must) -> Option<Self> {
        let label = label.trim();
        is_key(label).then(|| Self {
            label: label.to_owned(),
            must,
        })
    }

    /// A requirement of a selector that stands in an object.
    ///
    /// # Errors
    ///
    /// `Config` with the key, or the value, that no label can have.
    fn validated(label: &str, must: Must) -> Result<Self, Error> {
        let refused = |what: &str, text: &str| {
            let message = format!("label selector: {text:?} cannot be the {what} of a label");
            Err(Error::new(ErrorKind::Config, message))
        };
        if !is_key(label) {
            return refused("key", label);
        }
        if let Must::BeIn(values) | Must::NotBeIn(values) = &must
            && let Some(value) = values.iter().find(|value| !is_of_label(value))
        {
            return refused("value", value);
        }
        Ok(Self {
            label: label.to_owned(),
            must,
        })
    }
}

/// Whether the API takes it as the key of a label: a name, behind a prefix and a slash or alone.
fn is_key(label: &str) -> bool {
    match label.split_once('/') {
        Some((prefix, name)) => is_prefix(prefix) && !name.is_empty() && is_of_label(name),
        None => !label.is_empty() && is_of_label(label),
    }
}

/// A number to compare with; it has to be a label's value, so it has no sign.
fn number(text: &str) -> Option<i64> {
    value(text)?.parse().ok()
}

/// A label's value; it may be empty.
fn value(text: &str) -> Option<String> {
    let text = text.trim();
    is_of_label(text).then(|| text.to_owned())
}

/// Whether the API takes it as the name or the value of a label: at most 63 letters, digits, `-`, `_` and `.`, the first and
/// the last a letter or a digit.
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

impl Must {
    fn holds(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match self {
            Self::Exist => value.is_some(),
            Self::NotExist => value.is_none(),
            Self::BeIn(values) => value.is_some_and(|value| values.contains(value)),
            Self::NotBeIn(values) => value.is_none_or(|value| !values.contains(value)),
            Self::BeGreater(bound) => number().is_some_and(|number| number > *bound),
            Self::BeLess(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;

    use super::*;

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
        ] {
            assert!(read(text).is_err(), "{text}");
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

    /// F22: a number is one that is a label's value too, so it has no sign.
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

    /// F22: a selector in an object is held to the rules of one in text.
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
