//! The policy for each refusal: the next request, its time, and the number of tries. A table that
//! the code runs on and the manual prints.

mod answer;
mod backoff;
mod renewals;
#[cfg(test)]
mod tests;

pub(crate) use answer::AnswerKind;
pub use backoff::BackoffOptions;
pub(crate) use backoff::{Backoff, Chance, FIRST_WAIT, Fast, REOPEN_AT_ONCE, RetryWindow, doubled};
pub(crate) use renewals::{KUBECONFIG, PLUGIN, PROGRAM, RenewalRow, TOKEN_FILE};

use std::time::Duration;

use crate::error::Error;

/// How long the node authorizer may lag behind the binding of a pod (R4). A refused single request
/// is retried for as long, before the refusal is an answer.
pub(crate) const FORBIDDEN_GRACE: Duration = Duration::from_secs(3);
/// The longest wait that a server can ask for. Without this cap a wrong header would silence a
/// cache for hours.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(5 * 60);
/// How many named waits in a row are followed as they are.
pub(crate) const NAMED_MAX: u32 = 10;
/// For a row whose first step applies without end.
const EVER: u32 = u32::MAX;

/// The kind of a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PolicyRequest {
    /// A get, or a page of a list, with a waiting caller.
    Read,
    /// The first get of a manager with `Cache`, whose own backoff follows its failures.
    FirstRead,
    /// A request that the program composes itself, including writes.
    Raw,
    /// Any request, as a call of the kinds above sends it once.
    Sent,
    /// A sent request that may change something, and of which bytes went out.
    Update,
    /// A reflector's list at no version or at `0`.
    List,
    /// A reflector's list at a version.
    ListAt,
    LaterPage,
    /// A streamed list: its opening, or an error that ends it.
    Stream,
    /// The opening of a watch.
    Open,
    /// An error event within a watch.
    Watch,
    /// The list of one item that shows the server's version.
    Probe,
}

/// The next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextRequest {
    /// The same request.
    Same,
    /// A list, streamed where streams are in use.
    List,
    /// A list that is not streamed.
    ListPlainly,
    /// One list without pages.
    ListWhole,
    /// A list at no version: the most recent.
    MostRecent,
    /// The same request with other credentials, if the source has some with another value.
    Renewed,
    /// None: the caller gets the error.
    Fail,
}

/// The time of the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitRule {
    AtOnce,
    /// At a random time within a second.
    Soon,
    /// The next wait of the backoff.
    Backoff,
    /// The wait that the server names; after ten in a row, the backoff's if that is longer.
    Named,
    /// The wait that the server names or the backoff's, whichever is longer.
    Longer,
}

/// The next request, and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PolicyStep {
    pub(crate) next: NextRequest,
    pub(crate) wait: WaitRule,
}

/// One row of the policy.
#[derive(Debug)]
struct PolicyRow {
    requests: &'static [PolicyRequest],
    /// Empty stands for every answer that no earlier row has.
    answers: &'static [AnswerKind],
    /// Whether the server names a wait; `None` if that does not matter.
    named: Option<bool>,
    first: PolicyStep,
    /// How many times in a row `first` applies.
    times: u32,
    then: PolicyStep,
}

macro_rules! row {
    ($requests:tt; $answers:tt; $named:expr; $first:ident $wait:ident) => {
        row!($requests; $answers; $named; $first $wait EVER; Fail AtOnce)
    };
    ([$($request:ident)+]; [$($answer:ident)*]; $named:expr; $first:ident $wait:ident $times:expr;
        $then:ident $then_wait:ident) => {
        PolicyRow {
            requests: &[$(PolicyRequest::$request),+],
            answers: &[$(AnswerKind::$answer),*],
            named: $named,
            first: PolicyStep { next: NextRequest::$first, wait: WaitRule::$wait },
            times: $times,
            then: PolicyStep { next: NextRequest::$then, wait: WaitRule::$then_wait },
        }
    };
}

const YES: Option<bool> = Some(true);
const NO: Option<bool> = Some(false);
const EITHER: Option<bool> = None;

/// The first row that fits counts. The last row of each request always fits.
#[rustfmt::skip]
const ROWS: &[PolicyRow] = &[
    row!([Read FirstRead]; [Expired Gone TooLarge NotFound]; EITHER; Fail AtOnce),
    row!([Read FirstRead]; []; YES; Same Named 9; Fail AtOnce),
    row!([Read FirstRead]; [TooMany]; NO; Same Backoff 9; Fail AtOnce),
    row!([Read]; [Internal Unavailable Cut]; NO; Same Soon 1; Fail AtOnce),
    row!([Read FirstRead]; []; NO; Fail AtOnce),

    row!([Raw]; []; EITHER; Fail AtOnce),

    row!([Sent]; [Ended]; EITHER; Same AtOnce),
    row!([Sent]; [Silent]; EITHER; Same AtOnce 1; Fail AtOnce),
    row!([Sent Update]; [Unauthorized]; EITHER; Renewed AtOnce 1; Fail AtOnce),
    row!([Sent Update]; []; EITHER; Fail AtOnce),

    row!([LaterPage]; [Expired]; EITHER; ListWhole AtOnce),
    row!([List LaterPage ListAt]; [Expired Gone TooLarge]; EITHER;
        MostRecent AtOnce 1; MostRecent Longer),
    row!([ListAt]; [Unreadable Internal]; NO; List Backoff 1; MostRecent AtOnce),
    row!([ListAt Open]; [Unreadable Internal]; YES; Same Named 9; MostRecent Longer),
    row!([List ListAt LaterPage]; []; YES; Same Named),
    row!([List ListAt LaterPage]; []; NO; List Backoff),

    row!([Stream]; [Refused]; EITHER; Same Longer),
    row!([Stream]; [Expired Gone TooLarge TooMany]; EITHER; Same Longer 1; ListPlainly Longer),
    row!([Stream]; [OverLimit]; EITHER; ListPlainly Longer),
    row!([Stream]; []; YES; Same Named 1; ListPlainly Longer),
    row!([Stream]; [Cut Silent Unsent]; NO; ListPlainly Backoff),
    row!([Stream]; []; NO; ListPlainly AtOnce),

    row!([Open Watch]; [Expired Gone]; NO; List Soon 1; List Backoff),
    row!([Open Watch]; [Expired Gone TooLarge]; EITHER; List Longer),
    row!([Open Watch]; [TooMany Refused]; NO; Same Backoff),
    row!([Open]; []; YES; Same Named),
    row!([Watch]; []; YES; Same Named 1; Same Longer),
    row!([Open Watch]; []; NO; List Backoff),

    row!([Probe]; [Expired Gone]; NO; MostRecent Soon 1; MostRecent Backoff),
    row!([Probe]; [Expired Gone]; YES; MostRecent Longer),
    row!([Probe]; []; YES; Same Named),
    row!([Probe]; []; NO; Same Backoff),
];

impl PolicyRow {
    fn fits(&self, request: PolicyRequest, answer: AnswerKind, named: bool) -> bool {
        self.requests.contains(&request)
            && (self.answers.is_empty() || self.answers.contains(&answer))
            && self.named.is_none_or(|is| is == named)
    }
}

/// The step after the answer `error` to `request`; `failed` such requests in a row have failed
/// alike, including this one.
pub(crate) fn after(request: PolicyRequest, error: &Error, failed: u32) -> PolicyStep {
    let named = asked_wait(error).is_some();
    step(request, AnswerKind::of(error), named, failed)
}

/// The transport's next request after the first such answer, to an update or another request.
pub(crate) fn next(is_update: bool, answer: AnswerKind) -> NextRequest {
    let sent = if is_update {
        PolicyRequest::Update
    } else {
        PolicyRequest::Sent
    };
    step(sent, answer, false, 1).next
}

fn step(request: PolicyRequest, answer: AnswerKind, named: bool, failed: u32) -> PolicyStep {
    let fail = PolicyStep {
        next: NextRequest::Fail,
        wait: WaitRule::AtOnce,
    };
    let row = ROWS.iter().find(|row| row.fits(request, answer, named));
    row.map_or(fail, |row| {
        if failed <= row.times {
            row.first
        } else {
            row.then
        }
    })
}

/// The wait that the server asks for before the same request, capped.
pub(crate) fn asked_wait(error: &Error) -> Option<Duration> {
    let asked = error.retry_after().filter(|wait| !wait.is_zero());
    asked.map(|wait| wait.min(RETRY_AFTER_MAX))
}
