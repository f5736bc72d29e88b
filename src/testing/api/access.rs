//! Authentication and authorization: bearer tokens, client certificates, and rules by user, verb,
//! kind, namespace and name.

use super::impersonation::{ANONYMOUS, Impersonated};
use super::refusal::Refusal;
use super::resources::ApiResource;
use super::routes::{ObjectRoute, Route};

use crate::http::certificate_subject;
use crate::object::Resource;
use crate::testing::http::Caller;
use crate::testing::http::message::RequestMessage;

/// The group that may do everything.
const MASTERS: &str = "system:masters";

/// The user of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ApiUser {
    pub(super) name: String,
    pub(super) groups: Vec<String>,
}

/// The rights of some users: RBAC in one value. An unset property is not limited.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "testing")] {
/// use kubecache::testing::{AccessRule, ApiServer};
///
/// let server = ApiServer::builder()
///     .token("made-up", "agent", &["nodes"])
///     .rule(AccessRule::for_user("agent").verbs(&["get", "watch"]).resources(&["secrets"]))
///     .start()?;
/// # drop(server);
/// # }
/// # Ok::<_, kubecache::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct AccessRule {
    /// A user, or a group.
    subject: Subject,
    verbs: Vec<String>,
    groups: Vec<String>,
    resources: Vec<String>,
    namespaces: Vec<String>,
    names: Vec<String>,
}

#[derive(Clone, Debug)]
enum Subject {
    User(String),
    Group(String),
}

impl AccessRule {
    fn new(subject: Subject) -> Self {
        Self {
            subject,
            verbs: Vec::new(),
            groups: Vec::new(),
            resources: Vec::new(),
            namespaces: Vec::new(),
            names: Vec::new(),
        }
    }

    /// Makes a rule for a user, which allows everything until it is limited.
    pub fn for_user(name: impl Into<String>) -> Self {
        Self::new(Subject::User(name.into()))
    }

    /// Makes a rule for the users of a group, which allows everything until it is limited.
    pub fn for_group(name: impl Into<String>) -> Self {
        Self::new(Subject::Group(name.into()))
    }

    /// Limits it to verbs of the API, such as `get`, `list`, `watch`, `deletecollection`.
    #[must_use]
    pub fn verbs(mut self, verbs: &[&str]) -> Self {
        self.verbs = owned(verbs);
        self
    }

    /// Limits it to API groups; the core group is the empty text.
    #[must_use]
    pub fn groups(mut self, groups: &[&str]) -> Self {
        self.groups = owned(groups);
        self
    }

    /// Limits it to kinds, by their plural; a status is `pods/status`.
    #[must_use]
    pub fn resources(mut self, plurals: &[&str]) -> Self {
        self.resources = owned(plurals);
        self
    }

    /// Limits it to objects in these namespaces.
    #[must_use]
    pub fn namespaces(mut self, namespaces: &[&str]) -> Self {
        self.namespaces = owned(namespaces);
        self
    }

    /// Limits it to objects of these names. A list or watch counts if its field selector names one.
    #[must_use]
    pub fn names(mut self, names: &[&str]) -> Self {
        self.names = owned(names);
        self
    }

    fn is_for(&self, user: &ApiUser) -> bool {
        match &self.subject {
            Subject::User(name) => *name == user.name,
            Subject::Group(name) => user.groups.contains(name),
        }
    }

    fn allows(&self, wanted: &WantedAccess<'_>) -> bool {
        let takes = |limits: &[String], value: &str| {
            limits.is_empty() || limits.iter().any(|limit| limit == "*" || limit == value)
        };
        takes(&self.verbs, wanted.verb)
            && takes(&self.groups, wanted.group)
            && takes(&self.resources, &wanted.resource)
            && takes(&self.namespaces, wanted.namespace.unwrap_or_default())
            && takes(&self.names, wanted.name)
    }
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// The access that a request wants, as rules see it.
struct WantedAccess<'a> {
    verb: &'a str,
    group: &'a str,
    /// The plural, with the subresource after a slash.
    resource: String,
    namespace: Option<&'a str>,
    name: &'a str,
}

/// The users that the server knows, and their rights.
#[derive(Clone, Debug, Default)]
pub(super) struct AccessRequest {
    tokens: Vec<(String, ApiUser)>,
    /// Without a rule, every user may do everything.
    rules: Vec<AccessRule>,
    /// Whether the server asks for client certificates, which name their users.
    takes_certificates: bool,
    /// Whether the server knows users, or knew some, so that no user is anonymous.
    knows_users: bool,
}

impl AccessRequest {
    pub(super) fn add_token(&mut self, token: &str, user: &str, groups: &[&str]) {
        let user = ApiUser {
            name: user.to_owned(),
            groups: owned(groups),
        };
        self.knows_users = true;
        self.tokens.retain(|(known, _)| known != token);
        self.tokens.push((token.to_owned(), user));
    }

    pub(super) fn remove_token(&mut self, token: &str) {
        self.tokens.retain(|(known, _)| known != token);
    }

    pub(super) fn set_rules(&mut self, rules: Vec<AccessRule>) {
        self.rules = rules;
    }

    pub(super) fn add_rule(&mut self, rule: AccessRule) {
        self.rules.push(rule);
    }

    pub(super) fn take_certificates(&mut self) {
        self.takes_certificates = true;
        self.knows_users = true;
    }

    /// The first token, for a kubeconfig.
    pub(super) fn first_token(&self) -> Option<&str> {
        self.tokens.first().map(|(token, _)| &**token)
    }

    /// The user of a request; the refusal is a 401.
    pub(super) fn user(
        &self,
        request: &RequestMessage,
        caller: &Caller,
    ) -> Result<ApiUser, Refusal> {
        if self.takes_certificates
            && let Some(subject) = caller
                .certificates
                .first()
                .and_then(|own| certificate_subject(own))
        {
            let values = |attribute: &str| {
                let pairs = subject.iter().filter(|(name, _)| name == attribute);
                pairs.map(|(_, value)| value.clone()).collect::<Vec<_>>()
            };
            if let Some(name) = values("CN").into_iter().next() {
                let mut groups = values("O");
                groups.push("system:authenticated".to_owned());
                return Ok(ApiUser { name, groups });
            }
        }
        let header = request.header("authorization").unwrap_or_default();
        let shown = match header.split_once(' ') {
            Some((kind, token)) if kind.eq_ignore_ascii_case("bearer") => Some(token.trim()),
            _ => None,
        };
        match shown {
            Some(token) if self.knows_users => {
                let known = self.tokens.iter().find(|(known, _)| known == token);
                let (_, user) = known.ok_or_else(Refusal::unauthorized)?;
                let mut user = user.clone();
                user.groups.push("system:authenticated".to_owned());
                Ok(user)
            }
            _ if self.knows_users => Err(Refusal::unauthorized()),
            _ => Ok(ApiUser {
                name: ANONYMOUS.to_owned(),
                groups: vec!["system:unauthenticated".to_owned()],
            }),
        }
    }

    /// The user as whom a request acts: the one that it impersonates, or `own`. The refusal is a
    /// 403 where no rule allows `own` to impersonate, or a 400.
    pub(super) fn acting(
        &self,
        own: ApiUser,
        request: &RequestMessage,
        route: &Route,
        selected: Option<&str>,
    ) -> Result<ApiUser, Refusal> {
        let Some(user) = Impersonated::of(request)? else {
            return Ok(own);
        };
        for right in user.rights() {
            let wanted = WantedAccess {
                verb: "impersonate",
                group: right.group,
                resource: right.resource.to_owned(),
                namespace: right.namespace,
                name: right.name,
            };
            if self.allows(&own, &wanted) {
                continue;
            }
            // A server of today has newer verbs, and tells of the first of these.
            if let Route::Objects(route) = route {
                let verb = format!("impersonate-on:{}:{}", user.mode(), route.verb.name());
                let wanted = WantedAccess {
                    verb: &verb,
                    ..wanted_by(route, selected)
                };
                return Err(forbidden(&own, &wanted, &route.resource));
            }
            let kind = Resource::new("", "v1", right.resource.to_owned(), "");
            return Err(forbidden(&own, &wanted, &ApiResource::new(kind)));
        }
        let (name, groups) = user.into_parts();
        Ok(ApiUser { name, groups })
    }

    /// Refuses a request that no rule allows, with a 403.
    pub(super) fn check(
        &self,
        user: &ApiUser,
        route: &ObjectRoute,
        selected: Option<&str>,
    ) -> Result<(), Refusal> {
        let wanted = wanted_by(route, selected);
        if self.allows(user, &wanted) {
            return Ok(());
        }
        Err(forbidden(user, &wanted, &route.resource))
    }

    fn allows(&self, user: &ApiUser, wanted: &WantedAccess<'_>) -> bool {
        let mut rules = self.rules.iter().filter(|rule| rule.is_for(user));
        self.rules.is_empty()
            || user.groups.iter().any(|group| group == MASTERS)
            || rules.any(|rule| rule.allows(wanted))
    }
}

/// The access that a request for objects wants.
fn wanted_by<'a>(route: &'a ObjectRoute, selected: Option<&'a str>) -> WantedAccess<'a> {
    let resource = &route.resource;
    let plural = match &*route.subresource {
        "" => resource.plural().to_owned(),
        subresource => format!("{}/{subresource}", resource.plural()),
    };
    let name = match &*route.name {
        "" => selected.unwrap_or_default(),
        name => name,
    };
    // To rules, a namespace is in itself.
    let namespace = if resource.is("", "namespaces") && !route.name.is_empty() {
        Some(&*route.name)
    } else {
        route.namespace.as_deref()
    };
    WantedAccess {
        verb: route.verb.name(),
        group: resource.group(),
        resource: plural,
        namespace,
        name,
    }
}

fn forbidden(user: &ApiUser, wanted: &WantedAccess<'_>, resource: &ApiResource) -> Refusal {
    let place = match wanted.namespace {
        Some(namespace) => format!("in the namespace {namespace:?}"),
        None => "at the cluster scope".to_owned(),
    };
    let why = format!(
        "User {:?} cannot {} resource {:?} in API group {:?} {place}",
        user.name, wanted.verb, wanted.resource, wanted.group
    );
    Refusal::forbidden(resource, wanted.name, &why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::api::resources::KindRegistry;
    use crate::testing::api::routes::Route;
    use crate::testing::recording::Target;

    fn request(token: Option<&str>) -> RequestMessage {
        let header = token.map(|token| ("authorization".to_owned(), format!("Bearer {token}")));
        RequestMessage {
            method: "GET".to_owned(),
            target: Target::parse("/api/v1/pods"),
            is_http_1_0: false,
            headers: header.into_iter().collect(),
            body: Vec::new(),
        }
    }

    fn nobody_shown() -> Caller {
        Caller {
            connection: 1,
            certificates: Vec::new(),
        }
    }

    fn refused(access: &AccessRequest, path: &str) -> Option<String> {
        let route = Route::of(&KindRegistry::built_in(), "GET", &Target::parse(path)).unwrap();
        let Route::Objects(route) = route else {
            panic!("{path}");
        };
        let user = access.user(&request(Some("t")), &nobody_shown()).unwrap();
        let checked = access.check(&user, &route, None);
        checked.err().map(|refusal| refusal.message().to_owned())
    }

    #[test]
    fn a_token_is_a_user_and_no_token_is_anonymous_where_nobody_is_known() {
        let mut access = AccessRequest::default();
        let nobody = access.user(&request(None), &nobody_shown()).unwrap();
        assert_eq!(nobody.name, "system:anonymous");
        access.add_token("t", "bob", &["ops"]);
        let bob = access.user(&request(Some("t")), &nobody_shown()).unwrap();
        assert_eq!((bob.name.as_str(), bob.groups[0].as_str()), ("bob", "ops"));
        for token in [None, Some("other")] {
            let refused = access.user(&request(token), &nobody_shown()).unwrap_err();
            assert_eq!(refused.code, 401);
        }
    }

    fn acting(access: &AccessRequest, headers: &[(&str, &str)]) -> Result<ApiUser, String> {
        let mut request = request(Some("t"));
        let pairs = headers.iter();
        let pairs = pairs.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        request.headers.extend(pairs);
        let own = access.user(&request, &nobody_shown()).unwrap();
        let target = Target::parse("/api/v1/namespaces/shop/secrets");
        let route = Route::of(&KindRegistry::built_in(), "GET", &target).unwrap();
        let acting = access.acting(own, &request, &route, None);
        acting.map_err(|refusal| refusal.message().to_owned())
    }

    /// Seen: the server ignored the headers, so that a test of somebody's rights proved nothing.
    #[test]
    fn whoever_is_impersonated_has_own_rights_and_a_rule_has_to_allow_it() {
        let mut access = AccessRequest::default();
        access.add_token("t", "agent", &["nodes"]);
        let jane = ("Impersonate-User", "jane");
        let user = acting(&access, &[jane]).unwrap();
        let groups = vec!["system:authenticated".to_owned()];
        let name = "jane".to_owned();
        assert_eq!(user, ApiUser { name, groups }, "without a rule");
        assert_eq!(acting(&access, &[]).unwrap().name, "agent");

        access.add_rule(AccessRule::for_user("agent").resources(&["secrets"]));
        let refusal = "secrets is forbidden: User \"agent\" cannot \
                       impersonate-on:user-info:list resource \"secrets\" in API group \"\" in the \
                       namespace \"shop\"";
        assert_eq!(acting(&access, &[jane]).unwrap_err(), refusal);
        let rule = AccessRule::for_user("agent").verbs(&["impersonate"]);
        access.add_rule(rule.resources(&["users", "serviceaccounts"]));
        assert_eq!(acting(&access, &[jane]).unwrap().name, "jane");
        for more in [
            "Impersonate-Group",
            "Impersonate-Uid",
            "Impersonate-Extra-Scopes",
        ] {
            let refused = acting(&access, &[jane, (more, "it")]);
            assert_eq!(refused.unwrap_err(), refusal, "{more}");
            let nobody = acting(&access, &[(more, "it")]).unwrap_err();
            assert!(nobody.contains("without a user"), "{nobody}");
        }
        let account = ("impersonate-user", "system:serviceaccount:shop:web");
        let user = acting(&access, &[account]).unwrap();
        let [all, of_namespace] = ["", ":shop"].map(|end| format!("system:serviceaccounts{end}"));
        assert_eq!(
            user.groups,
            [all.as_str(), &of_namespace, "system:authenticated"]
        );
    }

    #[test]
    fn a_rule_limits_what_it_names_and_the_refusal_has_the_servers_words() {
        let mut access = AccessRequest::default();
        access.add_token("t", "bob", &[]);
        assert_eq!(refused(&access, "/api/v1/pods"), None);
        let rule = AccessRule::for_user("bob")
            .verbs(&["get"])
            .resources(&["secrets"]);
        access.add_rule(rule.namespaces(&["shop"]).names(&["db"]));
        let secrets = "/api/v1/namespaces/shop/secrets";
        assert_eq!(refused(&access, &format!("{secrets}/db")), None);
        assert_eq!(
            refused(&access, &format!("{secrets}/other")).as_deref(),
            Some(
                "secrets \"other\" is forbidden: User \"bob\" cannot get resource \"secrets\" in \
                 API group \"\" in the namespace \"shop\""
            )
        );
        assert_eq!(
            refused(&access, "/api/v1/nodes").as_deref(),
            Some(
                "nodes is forbidden: User \"bob\" cannot list resource \"nodes\" in API group \"\" \
                 at the cluster scope"
            )
        );
    }
}
