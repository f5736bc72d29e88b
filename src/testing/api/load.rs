//! Loads objects from files: manifests in YAML or JSON, and the lists of a recording.

use std::collections::BTreeMap;

use serde_json::Value;

use super::server::ApiServer;
use super::write_options::DeleteRequest;
use crate::error::{Error, ErrorKind};
use crate::testing::manifests::yaml_values;
use crate::testing::recording::{Exchange, Recording};

impl ApiServer {
    /// Writes the objects of manifests, as [`apply_value`](Self::apply_value) does: YAML documents
    /// or JSON, including lists. Returns their number.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] when the text is not YAML, with the line. The error of the first
    /// object that the server refuses, with its kind and name; earlier objects are written.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[cfg(feature = "testing")] {
    /// let server = kubecache::testing::ApiServer::new()?;
    /// let manifests = "
    /// apiVersion: v1
    /// kind: Secret
    /// metadata: {namespace: shop, name: db}
    /// stringData: {password: made-up}
    /// ---
    /// apiVersion: v1
    /// kind: ConfigMap
    /// metadata: {namespace: shop, name: settings}
    /// ";
    /// assert_eq!(server.load(manifests)?, 2);
    /// # }
    /// # Ok::<_, kubecache::Error>(())
    /// ```
    pub fn load(&self, text: &str) -> Result<usize, Error> {
        let values = yaml_values(text).map_err(|why| Error::new(ErrorKind::Config, why))?;
        let objects: Vec<_> = values.into_iter().flat_map(objects_of).collect();
        self.write_all(&objects)
    }

    /// Writes the objects from the lists and watches of a recording, each in its last recorded
    /// state. Returns the number of changes.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load).
    pub fn load_recording(&self, recording: &Recording) -> Result<usize, Error> {
        let mut last = LastStates::default();
        let answers = recording.exchanges().iter().map(Exchange::answer);
        for answer in answers.filter(|answer| answer.status() == 200) {
            let body = answer.body();
            if let Some(list) = serde_json::from_str(&body).ok().filter(is_list) {
                let objects = objects_of(list).into_iter();
                objects.for_each(|object| last.learn(object, false));
                continue;
            }
            let events = body.lines();
            for mut event in events.map_while(|line| serde_json::from_str::<Value>(line).ok()) {
                let object = event.get_mut("object").map(Value::take);
                match (event.get("type").and_then(Value::as_str), object) {
                    (Some("ADDED" | "MODIFIED"), Some(object)) => last.learn(object, false),
                    (Some("DELETED"), Some(object)) => last.learn(object, true),
                    _ => {}
                }
            }
        }
        let mut changes = 0_usize;
        for (object, is_gone) in last.in_order() {
            changes = changes.saturating_add(if is_gone {
                self.remove(&object)?
            } else {
                self.replay(&object)?
            });
        }
        Ok(changes)
    }

    /// Writes a recorded object. Returns the number of changes. If it cannot follow the present
    /// one, it is another object of that name, and the delete between them was not recorded.
    fn replay(&self, object: &Value) -> Result<usize, Error> {
        if self.apply_value(object).is_err() {
            self.remove(object)?;
            self.write_all(std::slice::from_ref(object))?;
        }
        let marked = self.write(object, |writer, state, route, object| {
            writer.mark_as(state, route, &object);
            Ok(())
        });
        marked.map_err(|error| about(object, error))?;
        Ok(1)
    }

    /// Deletes an object, unless another watch did so already. Returns the number of changes.
    fn remove(&self, object: &Value) -> Result<usize, Error> {
        let deleted = self.write(object, |writer, state, route, _| {
            writer.delete(state, route, &DeleteRequest::default())
        });
        match deleted {
            Ok(_) => Ok(1),
            Err(error) if error.is_not_found() => Ok(0),
            Err(error) => Err(about(object, error)),
        }
    }

    fn write_all(&self, objects: &[Value]) -> Result<usize, Error> {
        for object in objects {
            self.apply_value(object)
                .map_err(|error| about(object, error))?;
        }
        Ok(objects.len())
    }
}

/// The newest recorded state of each object, whichever exchange had it.
#[derive(Default)]
struct LastStates(BTreeMap<[String; 4], LastState>);

struct LastState {
    version: u64,
    object: Value,
    is_gone: bool,
}

impl LastStates {
    fn learn(&mut self, object: Value, is_gone: bool) {
        let text = |path: &str| {
            let found = object.pointer(path).and_then(Value::as_str);
            found.unwrap_or_default().to_owned()
        };
        let key = [
            "/apiVersion",
            "/kind",
            "/metadata/namespace",
            "/metadata/name",
        ];
        let key = key.map(text);
        let version = text("/metadata/resourceVersion")
            .parse()
            .unwrap_or_default();
        // Of equal versions the later one counts: some have none.
        if self
            .0
            .get(&key)
            .is_none_or(|known| known.version <= version)
        {
            let state = LastState {
                version,
                object,
                is_gone,
            };
            self.0.insert(key, state);
        }
    }

    /// The states in the order of their versions. Definitions come first, since a kind must be
    /// there before its objects.
    fn in_order(self) -> impl Iterator<Item = (Value, bool)> {
        let is_object = |kind: &str| kind != "CustomResourceDefinition";
        let states = self.0.into_iter();
        let mut states: Vec<_> = states
            .map(|([_, kind, _, _], state)| (is_object(&kind), state))
            .collect();
        states.sort_by_key(|(is_object, state)| (*is_object, state.version));
        let states = states.into_iter();
        states.map(|(_, state)| (state.object, state.is_gone))
    }
}

fn about(object: &Value, error: Error) -> Error {
    let text = |pointer| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or("")
    };
    error.context(&format!("{} {:?}", text("/kind"), text("/metadata/name")))
}

fn is_list(value: &Value) -> bool {
    let kind = value.get("kind").and_then(Value::as_str);
    let has_items = value.get("items").is_some_and(Value::is_array);
    has_items && kind.is_some_and(|kind| kind.ends_with("List"))
}

/// The objects of a list, which name their type there, or the object itself.
fn objects_of(mut value: Value) -> Vec<Value> {
    if !is_list(&value) {
        return vec![value];
    }
    let kind = value
        .get("kind")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let kind = kind.strip_suffix("List").filter(|kind| !kind.is_empty());
    let kind = kind.map(Value::from);
    let version = value.get("apiVersion").cloned();
    let Some(Value::Array(items)) = value.get_mut("items").map(Value::take) else {
        return Vec::new();
    };
    let named = items.into_iter().map(|mut item| {
        if let (Some(kind), Some(version)) = (&kind, &version)
            && let Some(object) = item.as_object_mut()
        {
            object.entry("kind").or_insert_with(|| kind.clone());
            object
                .entry("apiVersion")
                .or_insert_with(|| version.clone());
        }
        item
    });
    named.collect()
}
