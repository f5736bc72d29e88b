//! Which rows are news: a pure decision over what was printed, what is there, and the time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::print::Rows;
use crate::rows::{Facts, RowKey};

/// An object that waits for its answer is shown only after this: most answers come sooner, and one
/// line is enough.
const PATIENCE: Duration = Duration::from_secs(1);

/// What was printed last of each row, and since when others wait to be.
#[derive(Debug, Default)]
pub(crate) struct Follower {
    printed: Rows,
    waiting: BTreeMap<RowKey, Instant>,
}

/// What to print now, and when to look again although nothing changed.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct News {
    pub(crate) rows: Vec<(RowKey, Facts)>,
    pub(crate) look_again: Option<Instant>,
}

impl Follower {
    /// Compares what is there at `now` with what was printed; what it returns counts as printed.
    pub(crate) fn look(&mut self, rows: &Rows, now: Instant) -> News {
        let mut news = News::default();
        self.waiting.retain(|key, _| rows.contains_key(key));
        for (key, facts) in rows {
            let known = self.printed.get(key);
            if known.is_some_and(|before| facts.says_the_same(before)) {
                self.waiting.remove(key);
                continue;
            }
            let waits_as_before = known.is_some_and(|before| before.state == facts.state);
            if !facts.is_definite() && !waits_as_before {
                let since = *self.waiting.entry(key.clone()).or_insert(now);
                let due = since.checked_add(PATIENCE).unwrap_or(since);
                if now < due {
                    news.look_again = Some(news.look_again.map_or(due, |other| other.min(due)));
                    continue;
                }
            }
            self.waiting.remove(key);
            let was = known.filter(|before| before.content.is_some());
            let changed = was.is_some_and(|before| before.state == facts.state);
            let facts = facts.clone();
            news.rows.push((key.clone(), Facts { changed, ..facts }));
        }
        let gone = self.printed.keys().filter(|key| !rows.contains_key(key));
        let gone: Vec<_> = gone.cloned().collect();
        for key in gone {
            self.printed.remove(&key);
            news.rows.push((key, Facts::removed()));
        }
        for (key, facts) in &news.rows {
            if rows.contains_key(key) {
                self.printed.insert(key.clone(), facts.clone());
            }
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use kubecache::clock::FakeClock;
    use kubecache::manager::ObjectState;
    use kubecache::object::ObjectKey;

    use super::*;
    use crate::rows::{Content, State};

    fn row(name: &str, state: ObjectState, version: &str) -> (RowKey, Facts) {
        let key = RowKey {
            pod: ObjectKey::new("shop", "web-1"),
            kind: "Secret".into(),
            name: name.to_owned(),
        };
        let content = Content {
            resource_version: version.to_owned(),
            immutable: false,
            keys: 1,
            bytes: 1,
            created: None,
        };
        let facts = Facts {
            state: State::Kept(state),
            content: (!version.is_empty()).then_some(content),
            ..Facts::removed()
        };
        (key, facts)
    }

    fn told(news: &News) -> Vec<String> {
        let rows = news.rows.iter();
        rows.map(|(key, facts)| format!("{} {}", key.name, facts.state_in_words()))
            .collect()
    }

    #[test]
    fn each_change_is_told_once_and_a_removal_last() {
        let now = FakeClock::new().now();
        let mut follower = Follower::default();
        let first: Rows = [
            row("a", ObjectState::Synced, "1"),
            row("b", ObjectState::NotFound, ""),
        ]
        .into();
        assert_eq!(
            told(&follower.look(&first, now)),
            ["a Synced", "b NotFound"]
        );
        assert_eq!(follower.look(&first, now), News::default());
        let second: Rows = [row("a", ObjectState::Synced, "2")].into();
        assert_eq!(
            told(&follower.look(&second, now)),
            ["a Changed", "b Removed"]
        );
        assert_eq!(follower.look(&second, now), News::default());
    }

    #[test]
    fn a_wait_is_told_after_a_second_and_a_short_one_never() {
        let clock = FakeClock::new();
        let mut follower = Follower::default();
        let waiting: Rows = [row("a", ObjectState::Waiting, "")].into();
        let news = follower.look(&waiting, clock.now());
        assert_eq!(
            (news.rows.len(), news.look_again),
            (0, clock.now().checked_add(PATIENCE))
        );
        clock.advance(Duration::from_millis(999));
        assert!(follower.look(&waiting, clock.now()).rows.is_empty());
        clock.advance(Duration::from_millis(1));
        assert_eq!(told(&follower.look(&waiting, clock.now())), ["a Waiting"]);

        let mut follower = Follower::default();
        assert!(follower.look(&waiting, clock.now()).rows.is_empty());
        let answered: Rows = [row("a", ObjectState::Synced, "1")].into();
        let news = follower.look(&answered, clock.now());
        assert_eq!(
            (told(&news), news.look_again),
            (vec!["a Synced".to_owned()], None)
        );
    }

    #[test]
    fn why_an_object_waits_is_told_at_its_first_failure_and_not_at_each() {
        let clock = FakeClock::new();
        let mut follower = Follower::default();
        let (key, waits) = row("a", ObjectState::Waiting, "");
        let failing = |reason: &str| Facts {
            reason: Some(reason.to_owned()),
            failed: true,
            ..waits.clone()
        };
        let mut look =
            |facts: Facts| told(&follower.look(&[(key.clone(), facts)].into(), clock.now()));
        assert!(look(waits.clone()).is_empty());
        clock.advance(PATIENCE);
        assert_eq!(look(waits.clone()), ["a Waiting"]);
        assert_eq!(
            look(failing("1 failed")),
            ["a Waiting"],
            "the first failure"
        );
        assert!(look(failing("2 failed")).is_empty(), "the same series");
        assert!(look(waits.clone()).is_empty());
        assert!(look(failing("3 failed")).is_empty(), "nothing was answered");
        let (_, answered) = row("a", ObjectState::NotFound, "");
        assert_eq!(look(answered), ["a NotFound"]);
        assert!(look(waits.clone()).is_empty());
        clock.advance(PATIENCE);
        assert_eq!(look(failing("1 failed")), ["a Waiting"], "another series");
    }
}
