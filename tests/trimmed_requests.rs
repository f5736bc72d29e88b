//! Requests whose answers the decoder trims: what they ask for, what comes and what is counted,
//! against servers that leave the managed fields out, ignore that wish, or refuse it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kubecache::clock::Deadline;
use kubecache::hooks::Hook;
use kubecache::http::{
    Client, ClientMetric, ClientOptions, Config, DecodeOptions, Patch, Request, Trim, WriteOptions,
};
use kubecache::informer::{InformerOptions, SharedInformer};
use kubecache::object::{Object, ObjectKey, Scope};
use kubecache::testing::{ApiServer, DropParameter, Received, Recording};
use kubecache::{Compact, Dynamic, Metadata};
use serde_json::json;

const NEVER: Deadline = Deadline::NEVER;

const DROP: &str = "drop=metadata.managedFields";

/// What every server makes of the parameter.
const SERVERS: [DropParameter; 3] = [
    DropParameter::Honored,
    DropParameter::Ignored,
    DropParameter::Refused,
];

/// What a client's hook was told: the bytes that came, and those of them that were passed over.
#[derive(Clone, Debug, Default)]
struct Counted {
    came: Arc<AtomicUsize>,
    skipped: Arc<AtomicUsize>,
}

impl Counted {
    fn hook(&self) -> Hook<ClientMetric> {
        let counted = self.clone();
        Hook::new(move |metric| {
            if let ClientMetric::BodyDecoded {
                bytes,
                skipped_bytes,
                ..
            } = metric
            {
                counted.came.fetch_add(*bytes, Ordering::SeqCst);
                counted.skipped.fetch_add(*skipped_bytes, Ordering::SeqCst);
            }
        })
    }

    /// The bytes that came, and those that were passed over, since the last call.
    fn take(&self) -> (usize, usize) {
        let take = |counter: &AtomicUsize| counter.swap(0, Ordering::SeqCst);
        (take(&self.came), take(&self.skipped))
    }
}

fn key() -> ObjectKey {
    ObjectKey::new("shop", "web")
}

/// The members of the metadata that are passed over, as the server writes them, with a comma each.
const MANAGED: &str = r#","managedFields":[{"manager":"m","fieldsV1":{"f:data":{"f:k":{}}}}]"#;
const LAST_APPLIED: &str = r#","kubectl.kubernetes.io/last-applied-configuration":"{}""#;

fn start(drop: DropParameter) -> ApiServer {
    let server = ApiServer::builder().drop_parameter(drop).start().unwrap();
    let text = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","data":{{"k":"1"}},"metadata":{{"name":"web",
        "namespace":"shop","annotations":{{"a":"b"{LAST_APPLIED}}}{MANAGED}}}}}"#
    );
    server.load(&text).unwrap();
    server
}

fn client_of(server: &ApiServer, trim: Trim) -> (Client, Counted) {
    let counted = Counted::default();
    let decode = DecodeOptions::default().trim(trim);
    let options = ClientOptions::default()
        .decode(decode)
        .metrics(counted.hook());
    let config = Config::for_server(&server.url()).unwrap();
    (Client::new(&config, options).unwrap(), counted)
}

/// The `Accept` headers of all requests so far.
fn asked(server: &ApiServer) -> Vec<String> {
    let accept = |request: &Received| request.header("accept").unwrap().to_owned();
    server.requests().iter().map(accept).collect()
}

/// Follows the object through a change, as an informer does: by a list and a watch, or streamed.
fn follow<K: Object>(
    server: &ApiServer,
    client: &Client,
) -> Arc<kubecache::object::StoredObject<K>> {
    let source = client.lister_watcher::<K>(Scope::namespace("shop"));
    let informer = SharedInformer::new(source, InformerOptions::default());
    informer.start().unwrap();
    informer.wait_until_synced(NEVER).unwrap();
    server.wait_for_watches(NEVER, |open| open == 1);
    let resource = K::resource();
    let mut changed = server.get_value(&resource, &key()).unwrap().unwrap();
    changed["metadata"]["labels"] = json!({"changed": "true"});
    server.apply_value(&changed).unwrap();
    let is_changed = |object: Option<&K>| object?.label("changed").map(drop);
    let found = informer
        .wait_until(&key(), |object| is_changed(object).is_some(), NEVER)
        .unwrap();
    informer.shutdown(NEVER).unwrap();
    server.wait_for_watches(NEVER, |open| open == 0);
    found.unwrap()
}

/// Each read of each type: what the decoder trims does not ask for the managed fields, what it
/// keeps does, and what comes is the same from each server.
#[test]
fn only_what_is_trimmed_is_asked_for_without_managed_fields() {
    for drop in SERVERS {
        for trim in [Trim::Skip, Trim::Keep] {
            let server = start(drop);
            let (client, _) = client_of(&server, trim);
            let key = key();
            let kept = usize::from(trim == Trim::Keep);
            let fields = |metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| {
                metadata.managed_fields.iter().flatten().count()
            };
            let text = |json: &[u8]| {
                json.windows(13)
                    .filter(|word| word == b"managedFields")
                    .count()
            };

            let listed = client.list::<ConfigMap>(Scope::namespace("shop")).unwrap();
            assert_eq!(fields(&listed[0].metadata), kept, "{drop:?} {trim:?}");
            let listed = client.list::<Metadata<ConfigMap>>(Scope::namespace("shop"));
            assert_eq!(fields(&listed.unwrap()[0].metadata), kept);
            let listed = client.list::<Compact<ConfigMap>>(Scope::namespace("shop"));
            assert_eq!(text(listed.unwrap()[0].json()), kept);
            let got = client.get::<Compact<ConfigMap>>(&key).unwrap();
            assert_eq!(text(got.json()), kept);
            let got = client.get::<Metadata<ConfigMap>>(&key).unwrap();
            assert_eq!(fields(&got.metadata), kept);
            let maps = client.with_resource(ConfigMap::resource());
            assert_eq!(text(maps.get::<Dynamic>(&key).unwrap().json()), kept);
            let followed = follow::<ConfigMap>(&server, &client);
            assert_eq!(fields(&followed.metadata), kept);
            let followed = follow::<Metadata<ConfigMap>>(&server, &client);
            assert_eq!(fields(&followed.metadata), kept);
            let patch = Patch::Merge(json!({"data": {"k": "2"}}));
            let options = WriteOptions::default();
            let patched = client.patch::<Compact<ConfigMap>>(&key, &patch, &options, NEVER);
            assert_eq!(text(patched.unwrap().json()), kept);

            let accepted = asked(&server);
            let asks = |accept: &String| accept.contains(DROP) == (trim == Trim::Skip);
            assert!(accepted.iter().all(asks), "{trim:?} {accepted:#?}");

            // What may be written back has all fields, whatever the client's caches skip.
            let own = client.get::<ConfigMap>(&key).unwrap();
            assert_eq!(fields(&own.metadata), 1, "{drop:?} {trim:?}");
            let options = WriteOptions::default();
            let written = client.replace(&**own, &options, NEVER).unwrap();
            assert_eq!(fields(&written.metadata), 1, "{drop:?} {trim:?}");
            let patched = client.patch::<ConfigMap>(&key, &patch, &options, NEVER);
            assert_eq!(fields(&patched.unwrap().metadata), 1);
            client
                .delete::<ConfigMap>(&key, &json!(null), &options, NEVER)
                .unwrap();
            let rest = asked(&server).split_off(accepted.len());
            assert!(
                !rest.iter().any(|accept| accept.contains(DROP)),
                "{rest:#?}"
            );
        }
    }
}

/// Each form has itself behind it, without the parameter: a server that refuses the parameter sends
/// what it sent before there was one.
#[test]
fn a_server_that_refuses_the_parameter_sends_the_same_form() {
    let servers = SERVERS.map(start);
    let bodies = servers.map(|server| {
        let (client, counted) = client_of(&server, Trim::Skip);
        client
            .list::<Metadata<ConfigMap>>(Scope::namespace("shop"))
            .unwrap();
        let (list, _) = counted.take();
        client.get::<Metadata<ConfigMap>>(&key()).unwrap();
        (list, counted.take().0)
    });
    let [honored, ignored, refused] = bodies;
    assert_eq!(refused, ignored, "metadata alone, and not whole objects");
    assert_eq!(ignored.0 - honored.0, MANAGED.len());
    assert_eq!(ignored.1 - honored.1, MANAGED.len());
}

/// The bytes of a list, a get and a watch are counted once each, and what is passed over in them.
#[test]
fn bytes_that_came_and_bytes_that_were_passed_over_are_counted() {
    for drop in SERVERS {
        let server = start(drop);
        let (client, counted) = client_of(&server, Trim::Skip);
        let skipped = match drop {
            DropParameter::Honored => LAST_APPLIED.len(),
            _ => LAST_APPLIED.len() + MANAGED.len(),
        };
        client.list::<ConfigMap>(Scope::namespace("shop")).unwrap();
        let (list, in_list) = counted.take();
        assert_eq!(in_list, skipped, "{drop:?}");
        client.get::<Compact<ConfigMap>>(&key()).unwrap();
        let (came, in_get) = counted.take();
        assert_eq!(in_get, skipped, "{drop:?}");
        let asked = asked(&server).pop().unwrap();
        let request = Request::get("/api/v1/namespaces/shop/configmaps/web");
        let body = client
            .send(&request.header("Accept", asked), NEVER)
            .unwrap();
        assert_eq!(came, body.body().len(), "{drop:?}");
        assert!(list > came, "a list has the object and its own members");
        // Two events: the object as it was, and as it was changed.
        follow::<ConfigMap>(&server, &client);
        let (came_by_watch, in_watch) = counted.take();
        assert_eq!(in_watch, 2 * skipped, "{drop:?}");
        assert!(came_by_watch > 2 * came, "{came_by_watch}");
        // A program's own get skips nothing.
        client.get::<ConfigMap>(&key()).unwrap();
        assert_eq!(counted.take().1, 0, "{drop:?}");
    }
}

/// The share of the recorded cluster's objects that a cache passes over: what a server spares that
/// leaves the managed fields out.
#[test]
fn managed_fields_are_a_third_of_what_a_recorded_server_sent() {
    let recording = Recording::load("fixtures/recordings/node-1.jsonl").unwrap();
    let [(ignored, passed_over), (honored, rest)] =
        [DropParameter::Ignored, DropParameter::Honored].map(|drop| {
            let server = ApiServer::builder().drop_parameter(drop).start().unwrap();
            server.load_recording(&recording).unwrap();
            let (client, counted) = client_of(&server, Trim::Skip);
            client.list::<ConfigMap>(Scope::all()).unwrap();
            client.list::<Secret>(Scope::all()).unwrap();
            client.list::<Pod>(Scope::all()).unwrap();
            counted.take()
        });
    println!("{ignored} bytes came, {passed_over} passed over; asked for less {honored}, {rest}");
    assert!(passed_over * 3 > ignored, "{passed_over} of {ignored}");
    assert!(
        ignored - honored >= passed_over - rest,
        "they do not come at all"
    );
    assert!(rest * 20 < honored, "{rest} of {honored}");
}
