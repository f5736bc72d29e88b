//! The requests of the comparison, in order: later ones build on the state that earlier ones left.

/// What of an answer is compared.
#[derive(Clone, Copy)]
pub(super) enum View {
    /// The HTTP status.
    Code,
    Whole,
    Metadata,
    /// What is there.
    At(&'static str),
    /// Of a refusal: reason, code and details.
    Reason,
    Table,
    Events,
    /// What discovery tells of a kind.
    Kind(&'static str),
}

/// One request, and how its answer is compared.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) body: &'static str,
    pub(super) view: View,
    /// Empty: nobody.
    pub(super) user: &'static str,
    content_type: &'static str,
    accept: &'static str,
    /// More lines of the head.
    lines: &'static str,
    /// The request is repeated until the answer has this text.
    pub(super) until: Option<&'static str>,
}

impl Row {
    pub(super) fn headers(&self) -> String {
        let all = [("content-type", self.content_type), ("accept", self.accept)];
        let mut text = String::new();
        for (name, value) in all.iter().filter(|(_, value)| !value.is_empty()) {
            text.extend([*name, ": ", *value, "\r\n"]);
        }
        text + self.lines
    }

    pub(super) const fn of(name: &'static str, method: &'static str, path: &'static str) -> Self {
        Self {
            name,
            method,
            path,
            body: "",
            view: View::Whole,
            user: "admin",
            content_type: "application/json",
            accept: "application/json",
            lines: "",
            until: None,
        }
    }

    pub(super) const fn body(mut self, body: &'static str) -> Self {
        self.body = body;
        self
    }

    pub(super) const fn view(mut self, view: View) -> Self {
        self.view = view;
        self
    }

    pub(super) const fn user(mut self, user: &'static str) -> Self {
        self.user = user;
        self
    }

    pub(super) const fn content_type(mut self, content_type: &'static str) -> Self {
        self.content_type = content_type;
        self
    }

    pub(super) const fn accept(mut self, accept: &'static str) -> Self {
        self.accept = accept;
        self
    }

    pub(super) const fn lines(mut self, lines: &'static str) -> Self {
        self.lines = lines;
        self
    }

    pub(super) const fn until(mut self, text: &'static str) -> Self {
        self.until = Some(text);
        self
    }
}

pub(super) const MERGE: &str = "application/merge-patch+json";
pub(super) const JSON_PATCH: &str = "application/json-patch+json";
pub(super) const STRATEGIC: &str = "application/strategic-merge-patch+json";

pub(super) const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
pub(super) const METADATA: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
pub(super) const METADATA_LIST: &str =
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Where the answers differ, and why.
pub(super) const DIFFERENCES: &[(&str, &str)] = &[
    (
        "page-bad-token",
        "the token is of another form, and so are the words about it",
    ),
    (
        "no-token",
        "a server in memory that knows users has no anonymous one",
    ),
    (
        "pod-create",
        "a service account is not mounted, and tolerations are not added",
    ),
    (
        "pod-strategic",
        "as above: the container has no mount of an account",
    ),
];

pub(super) const ROWS: &[Row] = &[
    Row::of("ns-create", "POST", "/api/v1/namespaces").body(r#"{"metadata":{"name":"model"}}"#),
    Row::of("ns-again", "POST", "/api/v1/namespaces").body(r#"{"metadata":{"name":"model"}}"#),
    Row::of("ns-bad-name", "POST", "/api/v1/namespaces").body(r#"{"metadata":{"name":"a.b"}}"#),
    Row::of("ns-get", "GET", "/api/v1/namespaces/model"),
    Row::of("create", "POST", "/api/v1/namespaces/model/configmaps").body(
        "{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\
            \"a\",\"labels\":{\"app\":\"web\"}},\"data\":{\"k\":\"1\"}}",
    ),
    Row::of(
        "create-again",
        "POST",
        "/api/v1/namespaces/model/configmaps",
    )
    .body(r#"{"metadata":{"name":"a"}}"#),
    Row::of(
        "create-no-name",
        "POST",
        "/api/v1/namespaces/model/configmaps",
    )
    .body(r#"{"metadata":{}}"#),
    Row::of(
        "create-bad-name",
        "POST",
        "/api/v1/namespaces/model/configmaps",
    )
    .body(r#"{"metadata":{"name":"A_b"}}"#),
    Row::of(
        "create-generated",
        "POST",
        "/api/v1/namespaces/model/configmaps",
    )
    .body(r#"{"metadata":{"generateName":"made-"}}"#),
    Row::of(
        "create-other-kind",
        "POST",
        "/api/v1/namespaces/model/configmaps",
    )
    .body(r#"{"kind":"Secret","apiVersion":"v1","metadata":{"name":"x"}}"#)
    .view(View::Reason),
    Row::of(
        "create-other-version",
        "POST",
        "/api/v1/namespaces/model/configmaps",
    )
    .body(r#"{"kind":"ConfigMap","apiVersion":"v2","metadata":{"name":"x"}}"#)
    .view(View::Reason),
    Row::of(
        "create-bad-json",
        "POST",
        "/api/v1/namespaces/model/configmaps",
    )
    .body(r#"{"kind":"#)
    .view(View::Reason),
    Row::of(
        "create-no-object",
        "POST",
        "/api/v1/namespaces/model/configmaps",
    )
    .body("[1]")
    .view(View::Reason),
    Row::of(
        "create-elsewhere",
        "POST",
        "/api/v1/namespaces/model/configmaps",
    )
    .body(r#"{"metadata":{"name":"x","namespace":"default"}}"#),
    Row::of(
        "create-absent-ns",
        "POST",
        "/api/v1/namespaces/absent/configmaps",
    )
    .body(r#"{"metadata":{"name":"x"}}"#),
    Row::of(
        "create-with-version",
        "POST",
        "/api/v1/namespaces/model/configmaps",
    )
    .body(r#"{"metadata":{"name":"x","resourceVersion":"5"}}"#),
    Row::of(
        "create-dry-run",
        "POST",
        "/api/v1/namespaces/model/configmaps?dryRun=All",
    )
    .body(r#"{"metadata":{"name":"dry"}}"#),
    Row::of(
        "create-dry-run-left-nothing",
        "GET",
        "/api/v1/namespaces/model/configmaps/dry",
    ),
    Row::of(
        "create-as-text",
        "POST",
        "/api/v1/namespaces/model/configmaps",
    )
    .body("x")
    .view(View::Reason)
    .content_type("text/plain"),
    Row::of("get", "GET", "/api/v1/namespaces/model/configmaps/a"),
    Row::of(
        "get-absent",
        "GET",
        "/api/v1/namespaces/model/configmaps/absent",
    ),
    Row::of(
        "get-absent-group",
        "GET",
        "/apis/apps/v1/namespaces/model/deployments/absent",
    ),
    Row::of("get-other-kind", "GET", "/api/v1/namespaces/model/gadgets"),
    Row::of("get-other-group", "GET", "/apis/nope.example/v1/things"),
    Row::of("get-other-path", "GET", "/nope").view(View::Code),
    Row::of(
        "get-too-new",
        "GET",
        "/api/v1/namespaces/model/configmaps/a?resourceVersion=999999999",
    ),
    Row::of(
        "get-metadata",
        "GET",
        "/api/v1/namespaces/model/configmaps/a",
    )
    .accept(METADATA),
    Row::of("get-table", "GET", "/api/v1/namespaces/model/configmaps/a")
        .view(View::Table)
        .accept(TABLE),
    Row::of(
        "get-as-text",
        "GET",
        "/api/v1/namespaces/model/configmaps/a",
    )
    .view(View::Reason)
    .accept("text/plain"),
    Row::of(
        "post-to-object",
        "POST",
        "/api/v1/namespaces/model/configmaps/a",
    )
    .body("{}"),
    Row::of(
        "put-to-collection",
        "PUT",
        "/api/v1/namespaces/model/configmaps",
    )
    .body("{}"),
    Row::of("post-to-all-namespaces", "POST", "/api/v1/configmaps")
        .body(r#"{"metadata":{"name":"x"}}"#),
    Row::of("update", "PUT", "/api/v1/namespaces/model/configmaps/a").body(
        "{\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"$rv(create)\",\"la\
            bels\":{\"app\":\"web\"}},\"data\":{\"k\":\"2\"}}",
    ),
    Row::of(
        "update-stale",
        "PUT",
        "/api/v1/namespaces/model/configmaps/a",
    )
    .body(
        "{\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"$rv(create)\"},\"d\
            ata\":{\"k\":\"3\"}}",
    ),
    Row::of(
        "update-same",
        "PUT",
        "/api/v1/namespaces/model/configmaps/a",
    )
    .body(r#"{"metadata":{"name":"a","labels":{"app":"web"}},"data":{"k":"2"}}"#),
    Row::of(
        "update-unconditional",
        "PUT",
        "/api/v1/namespaces/model/configmaps/a",
    )
    .body(r#"{"metadata":{"name":"a","labels":{"app":"web"}},"data":{"k":"4"}}"#),
    Row::of(
        "update-other-name",
        "PUT",
        "/api/v1/namespaces/model/configmaps/a",
    )
    .body(r#"{"metadata":{"name":"b"}}"#),
    Row::of(
        "update-no-name",
        "PUT",
        "/api/v1/namespaces/model/configmaps/a",
    )
    .body(r#"{"metadata":{}}"#),
    Row::of(
        "update-other-ns",
        "PUT",
        "/api/v1/namespaces/model/configmaps/a",
    )
    .body(r#"{"metadata":{"name":"a","namespace":"default"}}"#),
    Row::of(
        "update-absent",
        "PUT",
        "/api/v1/namespaces/model/configmaps/absent",
    )
    .body(r#"{"metadata":{"name":"absent"}}"#),
    Row::of(
        "update-other-uid",
        "PUT",
        "/api/v1/namespaces/model/configmaps/a",
    )
    .body(r#"{"metadata":{"name":"a","uid":"11111111-1111-4111-8111-111111111111"}}"#)
    .view(View::Reason),
    Row::of(
        "update-creates",
        "PUT",
        "/apis/coordination.k8s.io/v1/namespaces/model/leases/l",
    )
    .body(r#"{"metadata":{"name":"l"},"spec":{"holderIdentity":"x"}}"#),
    Row::of(
        "patch-merge",
        "PATCH",
        "/api/v1/namespaces/model/configmaps/a",
    )
    .body(r#"{"data":{"l":"x"}}"#)
    .content_type(MERGE),
    Row::of(
        "patch-nothing",
        "PATCH",
        "/api/v1/namespaces/model/configmaps/a",
    )
    .body("{}")
    .content_type(MERGE),
    Row::of(
        "patch-remove",
        "PATCH",
        "/api/v1/namespaces/model/configmaps/a",
    )
    .body(r#"{"data":{"l":null}}"#)
    .content_type(MERGE),
    Row::of(
        "patch-stale",
        "PATCH",
        "/api/v1/namespaces/model/configmaps/a",
    )
    .body(r#"{"metadata":{"resourceVersion":"$rv(create)"},"data":{"l":"y"}}"#)
    .content_type(MERGE),
    Row::of(
        "patch-name",
        "PATCH",
        "/api/v1/namespaces/model/configmaps/a",
    )
    .body(r#"{"metadata":{"name":"b"}}"#)
    .view(View::Code)
    .content_type(MERGE),
    Row::of(
        "patch-bad-json",
        "PATCH",
        "/api/v1/namespaces/model/configmaps/a",
    )
    .body(r#"{"data":"#)
    .view(View::Reason)
    .content_type(MERGE),
    Row::of(
        "patch-absent",
        "PATCH",
        "/api/v1/namespaces/model/configmaps/absent",
    )
    .body("{}")
    .content_type(MERGE),
    Row::of(
        "patch-json",
        "PATCH",
        "/api/v1/namespaces/model/configmaps/a",
    )
    .body(
        "[{\"op\":\"test\",\"path\":\"/data/k\",\"value\":\"4\"},{\"op\":\"add\
            \",\"path\":\"/data/m\",\"value\":\"5\"}]",
    )
    .content_type(JSON_PATCH),
    Row::of(
        "patch-json-test-fails",
        "PATCH",
        "/api/v1/namespaces/model/configmaps/a",
    )
    .body(r#"[{"op":"test","path":"/data/k","value":"9"}]"#)
    .content_type(JSON_PATCH),
    Row::of(
        "patch-json-missing",
        "PATCH",
        "/api/v1/namespaces/model/configmaps/a",
    )
    .body(r#"[{"op":"remove","path":"/data/zz"}]"#)
    .content_type(JSON_PATCH),
    Row::of(
        "patch-json-object",
        "PATCH",
        "/api/v1/namespaces/model/configmaps/a",
    )
    .body("{}")
    .view(View::Reason)
    .content_type(JSON_PATCH),
    Row::of(
        "patch-json-other-op",
        "PATCH",
        "/api/v1/namespaces/model/configmaps/a",
    )
    .body(r#"[{"op":"jump","path":"/data"}]"#)
    .view(View::Reason)
    .content_type(JSON_PATCH),
    Row::of(
        "patch-strategic",
        "PATCH",
        "/api/v1/namespaces/model/configmaps/a",
    )
    .body(r#"{"metadata":{"labels":{"tier":"x"}}}"#)
    .content_type(STRATEGIC),
    Row::of(
        "patch-other-type",
        "PATCH",
        "/api/v1/namespaces/model/configmaps/a",
    )
    .body("{}")
    .view(View::Reason)
    .content_type("application/json"),
    Row::of("create-b", "POST", "/api/v1/namespaces/model/configmaps")
        .body(r#"{"metadata":{"name":"b","labels":{"app":"db"}}}"#),
    Row::of("create-c", "POST", "/api/v1/namespaces/model/configmaps")
        .body(r#"{"metadata":{"name":"c","labels":{"app":"web","x":"y"}}}"#),
    Row::of(
        "delete-generated",
        "DELETE",
        "/api/v1/namespaces/model/configmaps?labelSelector=!app",
    )
    .view(View::At("/kind")),
    Row::of("list", "GET", "/api/v1/namespaces/model/configmaps"),
    Row::of(
        "list-by-label",
        "GET",
        "/api/v1/namespaces/model/configmaps?labelSelector=app%3Dweb",
    ),
    Row::of(
        "list-by-labels",
        "GET",
        "/api/v1/namespaces/model/configmaps?labelSelector=app+in+(web,db),!x",
    ),
    Row::of(
        "list-by-bad-label",
        "GET",
        "/api/v1/namespaces/model/configmaps?labelSelector=a%3Db%3Dc",
    )
    .view(View::Reason),
    Row::of(
        "list-by-name",
        "GET",
        "/api/v1/namespaces/model/configmaps?fieldSelector=metadata.name%3Db",
    ),
    Row::of(
        "list-but-name",
        "GET",
        "/api/v1/namespaces/model/configmaps?fieldSelector=metadata.name!%3Db,m\
            etadata.namespace%3Dmodel",
    ),
    Row::of(
        "list-by-other-field",
        "GET",
        "/api/v1/namespaces/model/configmaps?fieldSelector=data.k%3D1",
    ),
    Row::of(
        "list-by-bad-field",
        "GET",
        "/api/v1/namespaces/model/configmaps?fieldSelector=metadata.name",
    ),
    Row::of(
        "list-absent-ns",
        "GET",
        "/api/v1/namespaces/absent/configmaps",
    ),
    Row::of(
        "page-1",
        "GET",
        "/api/v1/namespaces/model/configmaps?limit=1",
    ),
    Row::of(
        "page-2",
        "GET",
        "/api/v1/namespaces/model/configmaps?limit=1&continue=$token(page-1)",
    ),
    Row::of(
        "page-rest",
        "GET",
        "/api/v1/namespaces/model/configmaps?continue=$token(page-2)",
    ),
    Row::of(
        "page-bad-token",
        "GET",
        "/api/v1/namespaces/model/configmaps?limit=1&continue=x",
    ),
    Row::of(
        "page-with-version",
        "GET",
        "/api/v1/namespaces/model/configmaps?limit=1&continue=$token(page-1)&re\
            sourceVersion=$rv(page-1)",
    )
    .view(View::Code),
    Row::of(
        "page-bad-limit",
        "GET",
        "/api/v1/namespaces/model/configmaps?limit=x",
    )
    .view(View::Reason),
    Row::of(
        "page-table",
        "GET",
        "/api/v1/namespaces/model/configmaps?limit=1",
    )
    .view(View::Table)
    .accept(TABLE),
    Row::of(
        "list-exact",
        "GET",
        "/api/v1/namespaces/model/configmaps?resourceVersion=$rv(create-b)&reso\
            urceVersionMatch=Exact",
    ),
    Row::of(
        "list-not-older",
        "GET",
        "/api/v1/namespaces/model/configmaps?resourceVersion=$rv(create-b)&reso\
            urceVersionMatch=NotOlderThan",
    ),
    Row::of(
        "list-any",
        "GET",
        "/api/v1/namespaces/model/configmaps?resourceVersion=$rv(create-c)",
    ),
    Row::of(
        "list-match-alone",
        "GET",
        "/api/v1/namespaces/model/configmaps?resourceVersionMatch=Exact",
    ),
    Row::of(
        "list-exact-zero",
        "GET",
        "/api/v1/namespaces/model/configmaps?resourceVersion=0&resourceVersionM\
            atch=Exact",
    ),
    Row::of(
        "list-match-other",
        "GET",
        "/api/v1/namespaces/model/configmaps?resourceVersion=1&resourceVersionM\
            atch=Maybe",
    ),
    Row::of(
        "list-match-continue",
        "GET",
        "/api/v1/namespaces/model/configmaps?resourceVersion=1&resourceVersionM\
            atch=Exact&continue=$token(page-1)",
    ),
    Row::of(
        "list-too-new",
        "GET",
        "/api/v1/namespaces/model/configmaps?resourceVersion=999999999",
    ),
    Row::of(
        "list-bad-version",
        "GET",
        "/api/v1/namespaces/model/configmaps?resourceVersion=x",
    )
    .view(View::Reason),
    Row::of(
        "list-sends-events",
        "GET",
        "/api/v1/namespaces/model/configmaps?sendInitialEvents=true&resourceVer\
            sionMatch=NotOlderThan&resourceVersion=1",
    ),
    Row::of("list-table", "GET", "/api/v1/namespaces/model/configmaps")
        .view(View::Table)
        .accept(TABLE),
    Row::of(
        "list-table-plain",
        "GET",
        "/api/v1/namespaces/model/configmaps?includeObject=None",
    )
    .view(View::Table)
    .accept(TABLE),
    Row::of(
        "list-table-whole",
        "GET",
        "/api/v1/namespaces/model/configmaps?includeObject=Object",
    )
    .view(View::Table)
    .accept(TABLE),
    Row::of(
        "list-metadata",
        "GET",
        "/api/v1/namespaces/model/configmaps",
    )
    .accept(METADATA_LIST),
    Row::of(
        "watch-from",
        "GET",
        "/api/v1/namespaces/model/configmaps?watch=1&timeoutSeconds=1&resourceV\
            ersion=$rv(create)",
    )
    .view(View::Events),
    Row::of(
        "watch-state",
        "GET",
        "/api/v1/namespaces/model/configmaps?watch=1&timeoutSeconds=1",
    )
    .view(View::Events),
    Row::of(
        "watch-any",
        "GET",
        "/api/v1/namespaces/model/configmaps?watch=1&timeoutSeconds=1&resourceV\
            ersion=0",
    )
    .view(View::Events),
    Row::of(
        "watch-by-label",
        "GET",
        "/api/v1/namespaces/model/configmaps?watch=1&timeoutSeconds=1&resourceV\
            ersion=$rv(create)&labelSelector=tier",
    )
    .view(View::Events),
    Row::of(
        "watch-by-name",
        "GET",
        "/api/v1/namespaces/model/configmaps?watch=1&timeoutSeconds=1&resourceV\
            ersion=$rv(create)&fieldSelector=metadata.name%3Db",
    )
    .view(View::Events),
    Row::of(
        "watch-list",
        "GET",
        "/api/v1/namespaces/model/configmaps?watch=1&timeoutSeconds=1&sendIniti\
            alEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=tr\
            ue",
    )
    .view(View::Events),
    Row::of(
        "watch-list-no-bookmark",
        "GET",
        "/api/v1/namespaces/model/configmaps?watch=1&timeoutSeconds=1&sendIniti\
            alEvents=true&resourceVersionMatch=NotOlderThan",
    )
    .view(View::Events),
    Row::of(
        "watch-list-alone",
        "GET",
        "/api/v1/namespaces/model/configmaps?watch=1&timeoutSeconds=1&sendIniti\
            alEvents=true",
    ),
    Row::of(
        "watch-match-alone",
        "GET",
        "/api/v1/namespaces/model/configmaps?watch=1&timeoutSeconds=1&resourceV\
            ersion=1&resourceVersionMatch=NotOlderThan",
    ),
    Row::of(
        "watch-list-exact",
        "GET",
        "/api/v1/namespaces/model/configmaps?watch=1&timeoutSeconds=1&sendIniti\
            alEvents=true&resourceVersionMatch=Exact&resourceVersion=5",
    ),
    Row::of(
        "watch-not-initial",
        "GET",
        "/api/v1/namespaces/model/configmaps?watch=1&timeoutSeconds=1&sendIniti\
            alEvents=false&resourceVersionMatch=NotOlderThan",
    )
    .view(View::Events),
    Row::of(
        "watch-bad-version",
        "GET",
        "/api/v1/namespaces/model/configmaps?watch=1&timeoutSeconds=1&resourceV\
            ersion=x",
    )
    .view(View::Reason),
    Row::of(
        "watch-future",
        "GET",
        "/api/v1/namespaces/model/configmaps?watch=1&timeoutSeconds=1&resourceV\
            ersion=999999999",
    )
    .view(View::Events),
    Row::of(
        "watch-table",
        "GET",
        "/api/v1/namespaces/model/configmaps?watch=1&timeoutSeconds=1",
    )
    .view(View::Events)
    .accept(TABLE),
    Row::of(
        "watch-metadata",
        "GET",
        "/api/v1/namespaces/model/configmaps?watch=1&timeoutSeconds=1",
    )
    .view(View::Events)
    .accept(METADATA),
    Row::of(
        "watch-bad-field",
        "GET",
        "/api/v1/namespaces/model/configmaps?watch=1&timeoutSeconds=1&fieldSele\
            ctor=x%3Dy",
    )
    .view(View::Reason),
    Row::of(
        "delete-other-uid",
        "DELETE",
        "/api/v1/namespaces/model/configmaps/b",
    )
    .body(
        "{\"kind\":\"DeleteOptions\",\"apiVersion\":\"v1\",\"preconditions\":{\
            \"uid\":\"11111111-1111-4111-8111-111111111111\"}}",
    ),
    Row::of(
        "delete-other-version",
        "DELETE",
        "/api/v1/namespaces/model/configmaps/b",
    )
    .body(
        "{\"kind\":\"DeleteOptions\",\"apiVersion\":\"v1\",\"preconditions\":{\
            \"resourceVersion\":\"1\"}}",
    ),
    Row::of(
        "delete-dry-run",
        "DELETE",
        "/api/v1/namespaces/model/configmaps/b?dryRun=All",
    ),
    Row::of("delete", "DELETE", "/api/v1/namespaces/model/configmaps/b"),
    Row::of(
        "delete-absent",
        "DELETE",
        "/api/v1/namespaces/model/configmaps/b",
    ),
    Row::of(
        "watch-delete",
        "GET",
        "/api/v1/namespaces/model/configmaps?watch=1&timeoutSeconds=1&resourceV\
            ersion=$rv(create-c)",
    )
    .view(View::Events),
    Row::of(
        "finalizer-create",
        "POST",
        "/api/v1/namespaces/model/configmaps",
    )
    .body(r#"{"metadata":{"name":"f","finalizers":["example.com/x"]}}"#),
    Row::of(
        "finalizer-delete",
        "DELETE",
        "/api/v1/namespaces/model/configmaps/f",
    ),
    Row::of(
        "finalizer-delete-again",
        "DELETE",
        "/api/v1/namespaces/model/configmaps/f",
    ),
    Row::of(
        "finalizer-more",
        "PATCH",
        "/api/v1/namespaces/model/configmaps/f",
    )
    .body(r#"{"metadata":{"finalizers":["example.com/x","example.com/y"]}}"#)
    .content_type(MERGE),
    Row::of(
        "finalizer-last",
        "PATCH",
        "/api/v1/namespaces/model/configmaps/f",
    )
    .body(r#"{"metadata":{"finalizers":null}}"#)
    .content_type(MERGE),
    Row::of(
        "finalizer-gone",
        "GET",
        "/api/v1/namespaces/model/configmaps/f",
    ),
    Row::of(
        "account-create",
        "POST",
        "/api/v1/namespaces/model/serviceaccounts",
    )
    .body(r#"{"metadata":{"name":"default"}}"#),
    Row::of("pod-create", "POST", "/api/v1/namespaces/model/pods").body(
        "{\"metadata\":{\"name\":\"p\",\"labels\":{\"app\":\"web\"}},\"spec\":{\
            \"containers\":[{\"name\":\"c\",\"image\":\"x:1\",\"ports\":[{\"contai\
            nerPort\":80}]}]},\"status\":{\"phase\":\"Running\"}}",
    ),
    Row::of("pod-table", "GET", "/api/v1/namespaces/model/pods")
        .view(View::Table)
        .accept(TABLE),
    Row::of(
        "pod-status",
        "PATCH",
        "/api/v1/namespaces/model/pods/p/status",
    )
    .body(
        "{\"status\":{\"phase\":\"Running\",\"podIP\":\"10.0.0.9\",\"podIPs\":[\
            {\"ip\":\"10.0.0.9\"}],\"conditions\":[{\"type\":\"Ready\",\"status\":\
            \"True\"}]}}",
    )
    .view(View::At("/status/phase"))
    .content_type(STRATEGIC),
    Row::of("pod-strategic", "PATCH", "/api/v1/namespaces/model/pods/p")
        .body(
            "{\"spec\":{\"containers\":[{\"name\":\"c\",\"image\":\"x:2\"}]},\"stat\
            us\":{\"phase\":\"Failed\"}}",
        )
        .view(View::At("/spec/containers"))
        .content_type(STRATEGIC),
    Row::of("pod-status-stays", "GET", "/api/v1/namespaces/model/pods/p")
        .view(View::At("/status/phase")),
    Row::of("pod-metadata", "GET", "/api/v1/namespaces/model/pods/p").view(View::Metadata),
    Row::of(
        "pod-by-phase",
        "GET",
        "/api/v1/namespaces/model/pods?fieldSelector=status.phase%3DRunning,spe\
            c.nodeName%3D",
    )
    .accept(METADATA_LIST),
    Row::of(
        "pod-by-other-field",
        "GET",
        "/api/v1/namespaces/model/pods?fieldSelector=spec.color%3Dred",
    ),
    Row::of(
        "pod-delete-unbound",
        "DELETE",
        "/api/v1/namespaces/model/pods/p",
    )
    .view(View::Metadata),
    Row::of("pod-bound", "POST", "/api/v1/namespaces/model/pods")
        .body(
            "{\"metadata\":{\"name\":\"q\",\"labels\":{\"app\":\"web\"}},\"spec\":{\
            \"nodeName\":\"model-node\",\"containers\":[{\"name\":\"c\",\"image\":\
            \"x:1\",\"ports\":[{\"containerPort\":80}]}]},\"status\":{\"phase\":\"\
            Running\"}}",
        )
        .view(View::Metadata),
    Row::of(
        "pod-delete-bound",
        "DELETE",
        "/api/v1/namespaces/model/pods/q",
    )
    .view(View::Metadata),
    Row::of(
        "pod-delete-bound-again",
        "DELETE",
        "/api/v1/namespaces/model/pods/q",
    )
    .view(View::Metadata),
    Row::of(
        "pod-delete-now",
        "DELETE",
        "/api/v1/namespaces/model/pods/q",
    )
    .body(r#"{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0}"#)
    .view(View::Metadata),
    Row::of("pod-gone", "GET", "/api/v1/namespaces/model/pods/q"),
    Row::of("secret-create", "POST", "/api/v1/namespaces/model/secrets")
        .body(r#"{"metadata":{"name":"s"},"stringData":{"a":"b"}}"#),
    Row::of("secret-type", "PATCH", "/api/v1/namespaces/model/secrets/s")
        .body(r#"{"type":"other"}"#)
        .content_type(MERGE),
    Row::of(
        "secret-immutable",
        "PATCH",
        "/api/v1/namespaces/model/secrets/s",
    )
    .body(r#"{"immutable":true}"#)
    .content_type(MERGE),
    Row::of(
        "secret-immutable-change",
        "PATCH",
        "/api/v1/namespaces/model/secrets/s",
    )
    .body(r#"{"data":{"a":"eA=="}}"#)
    .content_type(MERGE),
    Row::of(
        "secret-mutable-again",
        "PATCH",
        "/api/v1/namespaces/model/secrets/s",
    )
    .body(r#"{"immutable":null}"#)
    .content_type(MERGE),
    Row::of("secret-table", "GET", "/api/v1/namespaces/model/secrets")
        .view(View::Table)
        .accept(TABLE),
    Row::of(
        "secret-by-type",
        "GET",
        "/api/v1/namespaces/model/secrets?fieldSelector=type%3DOpaque",
    )
    .accept(METADATA_LIST),
    Row::of(
        "deployment-create",
        "POST",
        "/apis/apps/v1/namespaces/model/deployments",
    )
    .body(
        "{\"metadata\":{\"name\":\"d\"},\"spec\":{\"selector\":{\"matchLabels\"\
            :{\"a\":\"b\"}},\"template\":{\"metadata\":{\"labels\":{\"a\":\"b\"}},\
            \"spec\":{\"containers\":[{\"name\":\"c\",\"image\":\"x:1\"}]}}}}",
    ),
    Row::of(
        "deployment-label",
        "PATCH",
        "/apis/apps/v1/namespaces/model/deployments/d",
    )
    .body(r#"{"metadata":{"labels":{"x":"y"}}}"#)
    .view(View::Metadata)
    .content_type(MERGE),
    Row::of(
        "deployment-scale",
        "PATCH",
        "/apis/apps/v1/namespaces/model/deployments/d",
    )
    .body(r#"{"spec":{"replicas":3}}"#)
    .view(View::Metadata)
    .content_type(STRATEGIC),
    Row::of(
        "deployment-status",
        "PATCH",
        "/apis/apps/v1/namespaces/model/deployments/d/status",
    )
    .body(r#"{"spec":{"replicas":9},"status":{"replicas":1}}"#)
    .view(View::At("/spec/replicas"))
    .content_type(MERGE),
    Row::of(
        "deployment-table",
        "GET",
        "/apis/apps/v1/namespaces/model/deployments",
    )
    .view(View::Table)
    .accept(TABLE),
    Row::of(
        "deployment-delete",
        "DELETE",
        "/apis/apps/v1/namespaces/model/deployments/d",
    ),
    Row::of("node-create", "POST", "/api/v1/nodes")
        .body(r#"{"metadata":{"name":"model-node"}}"#)
        .view(View::Metadata),
    Row::of("node-table", "GET", "/api/v1/nodes/model-node")
        .view(View::Table)
        .accept(TABLE),
    Row::of("node-delete", "DELETE", "/api/v1/nodes/model-node"),
    Row::of(
        "lease-table",
        "GET",
        "/apis/coordination.k8s.io/v1/namespaces/model/leases",
    )
    .view(View::Table)
    .accept(TABLE),
    Row::of(
        "crd-create",
        "POST",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    )
    .body(
        "{\"kind\":\"CustomResourceDefinition\",\"apiVersion\":\"apiextensions.\
            k8s.io/v1\",\"metadata\":{\"name\":\"racks.example.com\"},\"spec\":{\"\
            group\":\"example.com\",\"scope\":\"Namespaced\",\"names\":{\"plural\"\
            :\"racks\",\"kind\":\"Rack\",\"singular\":\"rack\",\"listKind\":\"Rack\
            List\",\"shortNames\":[\"rk\"]},\"versions\":[{\"name\":\"v1\",\"serve\
            d\":true,\"storage\":true,\"schema\":{\"openAPIV3Schema\":{\"type\":\"\
            object\",\"x-kubernetes-preserve-unknown-fields\":true}},\"subresource\
            s\":{\"status\":{}},\"additionalPrinterColumns\":[{\"name\":\"Size\",\
            \"type\":\"integer\",\"jsonPath\":\".spec.size\"},{\"name\":\"Age\",\"\
            type\":\"date\",\"jsonPath\":\".metadata.creationTimestamp\"}]}]}}",
    )
    .view(View::At("/spec/names")),
    Row::of(
        "crd-established",
        "GET",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/racks.example.\
            com",
    )
    .view(View::At("/status/acceptedNames"))
    .until("InitialNamesAccepted"),
    Row::of("crd-discovery", "GET", "/apis/example.com/v1")
        .view(View::Kind("racks"))
        .until("racks"),
    Row::of(
        "rack-create",
        "POST",
        "/apis/example.com/v1/namespaces/model/racks",
    )
    .body(
        "{\"kind\":\"Rack\",\"apiVersion\":\"example.com/v1\",\"metadata\":{\"n\
            ame\":\"r\"},\"spec\":{\"size\":4},\"status\":{\"up\":true}}",
    ),
    Row::of(
        "rack-no-kind",
        "POST",
        "/apis/example.com/v1/namespaces/model/racks",
    )
    .body(r#"{"metadata":{"name":"x"}}"#)
    .view(View::Code),
    Row::of(
        "rack-update-no-version",
        "PUT",
        "/apis/example.com/v1/namespaces/model/racks/r",
    )
    .body(
        "{\"kind\":\"Rack\",\"apiVersion\":\"example.com/v1\",\"metadata\":{\"n\
            ame\":\"r\"},\"spec\":{\"size\":5}}",
    )
    .view(View::Reason),
    Row::of(
        "rack-status",
        "PATCH",
        "/apis/example.com/v1/namespaces/model/racks/r/status",
    )
    .body(r#"{"spec":{"size":9},"status":{"up":true}}"#)
    .content_type(MERGE),
    Row::of(
        "rack-strategic",
        "PATCH",
        "/apis/example.com/v1/namespaces/model/racks/r",
    )
    .body(r#"{"spec":{"size":9}}"#)
    .view(View::Reason)
    .content_type(STRATEGIC),
    Row::of(
        "rack-resize",
        "PATCH",
        "/apis/example.com/v1/namespaces/model/racks/r",
    )
    .body(r#"{"spec":{"size":9}}"#)
    .content_type(MERGE),
    Row::of(
        "rack-list",
        "GET",
        "/apis/example.com/v1/namespaces/model/racks",
    ),
    Row::of(
        "rack-table",
        "GET",
        "/apis/example.com/v1/namespaces/model/racks",
    )
    .view(View::Table)
    .accept(TABLE),
    Row::of(
        "rack-other-field",
        "GET",
        "/apis/example.com/v1/namespaces/model/racks?fieldSelector=spec.size%3D4",
    )
    .view(View::Reason),
    Row::of(
        "rack-delete",
        "DELETE",
        "/apis/example.com/v1/namespaces/model/racks/r",
    ),
    Row::of(
        "crd-delete",
        "DELETE",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/racks.example.\
            com",
    )
    .view(View::Code),
    Row::of("discovery-api", "GET", "/api").view(View::At("/versions")),
    Row::of("discovery-apps", "GET", "/apis/apps"),
    Row::of("discovery-absent", "GET", "/apis/absent.example"),
    Row::of("discovery-configmaps", "GET", "/api/v1").view(View::Kind("configmaps")),
    Row::of("discovery-pods", "GET", "/api/v1").view(View::Kind("pods")),
    Row::of("discovery-secrets", "GET", "/api/v1").view(View::Kind("secrets")),
    Row::of("discovery-nodes", "GET", "/api/v1").view(View::Kind("nodes")),
    Row::of("discovery-namespaces", "GET", "/api/v1").view(View::Kind("namespaces")),
    Row::of("discovery-services", "GET", "/api/v1").view(View::Kind("services")),
    Row::of("discovery-events", "GET", "/api/v1").view(View::Kind("events")),
    Row::of("discovery-serviceaccounts", "GET", "/api/v1").view(View::Kind("serviceaccounts")),
    Row::of("discovery-endpoints", "GET", "/api/v1").view(View::Kind("endpoints")),
    Row::of("discovery-deployments", "GET", "/apis/apps/v1").view(View::Kind("deployments")),
    Row::of("aggregated-pods", "GET", "/api")
        .view(View::Kind("pods"))
        .accept(AGGREGATED),
    Row::of("aggregated-deployments", "GET", "/apis")
        .view(View::Kind("deployments"))
        .accept(AGGREGATED),
    Row::of("healthz", "GET", "/healthz").view(View::Code),
    Row::of("no-token", "GET", "/api/v1/namespaces/model/configmaps")
        .view(View::Code)
        .user(""),
    Row::of("wrong-token", "GET", "/api/v1/namespaces/model/configmaps").user("wrong"),
    Row::of(
        "forbidden-get",
        "GET",
        "/api/v1/namespaces/model/configmaps/a",
    )
    .user("nobody"),
    Row::of(
        "forbidden-list",
        "GET",
        "/api/v1/namespaces/model/configmaps",
    )
    .user("nobody"),
    Row::of(
        "forbidden-watch",
        "GET",
        "/api/v1/namespaces/model/configmaps?watch=1&timeoutSeconds=1",
    )
    .user("nobody"),
    Row::of(
        "forbidden-create",
        "POST",
        "/api/v1/namespaces/model/configmaps",
    )
    .body(r#"{"metadata":{"name":"z"}}"#)
    .user("nobody"),
    Row::of(
        "forbidden-delete-all",
        "DELETE",
        "/api/v1/namespaces/model/configmaps",
    )
    .user("nobody"),
    Row::of("forbidden-all", "GET", "/api/v1/nodes").user("nobody"),
    Row::of(
        "forbidden-group",
        "GET",
        "/apis/apps/v1/namespaces/model/deployments",
    )
    .user("nobody"),
    Row::of(
        "impersonation-refused",
        "GET",
        "/api/v1/namespaces/model/secrets",
    )
    .user("nobody")
    .lines("Impersonate-User: jane\r\n"),
    Row::of("impersonation", "GET", "/api/v1/namespaces/model/secrets")
        .lines("Impersonate-User: jane\r\n"),
    Row::of(
        "impersonation-group",
        "GET",
        "/api/v1/namespaces/none/secrets",
    )
    .view(View::Code)
    .lines("Impersonate-User: jane\r\nImpersonate-Group: system:masters\r\n"),
    Row::of(
        "impersonation-account",
        "GET",
        "/api/v1/namespaces/model/secrets",
    )
    .lines("Impersonate-User: system:serviceaccount:model:default\r\n"),
    Row::of(
        "impersonation-of-nobody",
        "GET",
        "/api/v1/namespaces/model/secrets",
    )
    .view(View::Code)
    .lines("Impersonate-Group: system:masters\r\n"),
    Row::of("forbidden-namespace", "GET", "/api/v1/namespaces/model").user("nobody"),
    Row::of(
        "forbidden-status",
        "PATCH",
        "/api/v1/namespaces/model/pods/p/status",
    )
    .body("{}")
    .user("nobody")
    .content_type(MERGE),
    Row::of(
        "delete-all",
        "DELETE",
        "/api/v1/namespaces/model/configmaps?labelSelector=app%3Dweb",
    ),
    Row::of("deleted-all", "GET", "/api/v1/namespaces/model/configmaps"),
    Row::of("namespace-delete", "DELETE", "/api/v1/namespaces/model")
        .view(View::At("/status/phase")),
];
