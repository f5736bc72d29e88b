//! Answers an unrecorded get of one object: the object, or the API server's refusal.

use std::cmp::Ordering;

use serde_json::{Value, json};

use super::history::{PlayedHistory, Point, State};
use crate::object::ResourceVersion;
use crate::testing::recording::{Answer, Exchange, PathPlace, Target};

/// The answer to a get of `place` after all facts for which `past` is true; `None` when the
/// recording does not know.
pub(super) fn answer(
    history: &PlayedHistory,
    place: &PathPlace,
    target: &Target,
    past: &dyn Fn(&Point) -> bool,
) -> Option<Exchange> {
    let state = history.state(place, past)?;
    let asked = ResourceVersion::from(target.value("resourceVersion").unwrap_or_default());
    let current = history.version(past);
    let answer = match state {
        State::Refused(exchange) => refused(exchange, place),
        _ if !asked.is_unset() && asked.numeric_order(&current) == Some(Ordering::Greater) => {
            too_large(&asked, &current)
        }
        State::There(object) => Answer::text(200, format!("{object}\n")),
        State::Absent => not_found(place),
    };
    let mut exchange = Exchange::get("", answer);
    exchange.target = target.clone();
    Some(exchange)
}

fn not_found(place: &PathPlace) -> Answer {
    let (resource, name) = (place.resource.in_messages(), &place.object.name);
    let mut details = json!({"name": name, "kind": place.resource.plural});
    let group = place.resource.group();
    if let Some(fields) = details.as_object_mut()
        && !group.is_empty()
    {
        fields.insert("group".to_owned(), Value::from(group));
    }
    let message = format!("{resource} {name:?} not found");
    status(404, "NotFound", &message, &details)
}

/// The server's words for a version that it has not reached (RF-13).
fn too_large(asked: &ResourceVersion, current: &ResourceVersion) -> Answer {
    let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
    let cause =
        json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
    let details = json!({"causes": [cause], "retryAfterSeconds": 1});
    status(504, "Timeout", &message, &details).header("retry-after", "1")
}

fn status(code: u16, reason: &str, message: &str, details: &Value) -> Answer {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "details": details, "code": code,
    });
    Answer::text(code, format!("{status}\n"))
}

/// A refusal names the verb and, of a get, the object.
fn refused(exchange: &Exchange, place: &PathPlace) -> Answer {
    let recorded = &exchange.answer;
    let body = recorded.body();
    let Ok(mut status) = serde_json::from_str::<Value>(&body) else {
        return recorded.clone();
    };
    let message = status.get("message").and_then(Value::as_str);
    let (resource, name) = (place.resource.in_messages(), &place.object.name);
    let message = message.unwrap_or_default().replacen(
        &format!("{resource} is forbidden"),
        &format!("{resource} {name:?} is forbidden"),
        1,
    );
    let message = ["list", "watch"].iter().fold(message, |message, verb| {
        message.replacen(&format!("cannot {verb} resource"), "cannot get resource", 1)
    });
    if let Some(fields) = status.as_object_mut() {
        fields.insert("message".to_owned(), Value::from(message));
    }
    let mut answer = Answer::text(recorded.status, format!("{status}\n"));
    let kept = recorded.headers.iter();
    let kept = kept.filter(|(name, _)| name != "content-length");
    answer.headers = kept.cloned().collect();
    answer
}

#[cfg(test)]
mod tests;
