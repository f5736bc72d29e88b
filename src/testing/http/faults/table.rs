//! The tables of faults: the name of each, an example, and the behaviour of a correct client.

/// A line of [`FAULTS`] or [`SERVER_FAULTS`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct FaultDescription {
    /// The fault's name. In [`FAULTS`] it begins with an act's name.
    pub name: &'static str,
    /// An example: in [`FAULTS`] as [`Fault::list_from_json`](super::Fault::list_from_json) reads
    /// it, in [`SERVER_FAULTS`] the methods of [`ApiServer`](crate::testing::ApiServer).
    pub example: &'static str,
    /// The behaviour of a correct client.
    pub client: &'static str,
}

macro_rules! faults {
    ($(#[$doc:meta])* $table:ident $($name:literal $example:literal $client:literal)*) => {
        $(#[$doc])*
        ///
        /// | name | an example | a correct client |
        /// |---|---|---|
        $(#[doc = concat!("| `", $name, "` | `", $example, "` | ", $client, " |")])*
        pub const $table: &[FaultDescription] = &[
            $(FaultDescription { name: $name, example: $example, client: $client },)*
        ];
    };
}

faults! {
    /// The faults that connections, requests and objects of a test server meet.
    ///
    /// A name begins with the act's name. The same object selects the requests: see
    /// [`Fault::from_json`](super::Fault::from_json). [`SERVER_FAULTS`] has the faults of a server
    /// as a whole.
    FAULTS
    "refuse" r#"{"act":"refuse","times":3}"#
        "keeps what it has, and connects again with a growing wait"
    "silent" r#"{"act":"silent","every":3}"#
        "gives up by a time limit of its own, and uses another connection"
    "certificate" r#"{"act":"certificate","flaw":"expired"}"#
        "sends nothing, not even a token; says what is wrong with the certificate"
    "certificate-not-yet-valid" r#"{"act":"certificate","flaw":"not-yet-valid"}"#
        "sends nothing; says from when the certificate is valid, for a clock may be wrong"
    "certificate-wrong-host" r#"{"act":"certificate","flaw":"wrong-host"}"#
        "sends nothing; says for which host the certificate is"
    "certificate-unknown-authority" r#"{"act":"certificate","flaw":"unknown-authority"}"#
        "sends nothing; says who signed the certificate"
    "client-certificate" r#"{"act":"client-certificate"}"#
        "says that the server wants a client certificate"
    "status" r#"{"act":"status","code":429,"reason":"TooManyRequests","retryAfterSeconds":5}"#
        "waits as long as it is told, within a bound of its own; a 403 or 404 ends no cache"
    "status-403-for-a-while" r#"{"act":"status","code":403,"reason":"Forbidden","times":5}"#
        "keeps what it has, and asks again with a growing wait"
    "status-404-for-a-kind"
        r#"{"act":"status","code":404,"reason":"NotFound","resource":"secrets"}"#
        "says that the server lacks the kind; goes on with all other kinds"
    "status-409" r#"{"act":"status","code":409,"reason":"Conflict","verb":"update"}"#
        "reads the object anew before it writes once more"
    "status-410" r#"{"act":"status","code":410,"reason":"Expired","verb":"list"}"#
        "lists anew without a version"
    "status-500" r#"{"act":"status","code":500,"reason":"InternalError","every":2}"#
        "keeps what it has, and asks again with a growing wait"
    "hang" r#"{"act":"hang","verb":"list"}"#
        "gives up by a time limit of its own"
    "unauthorized" r#"{"act":"unauthorized"}"#
        "reads its token anew and asks once more"
    "too-large-version" r#"{"act":"too-large-version","verb":"get"}"#
        "asks again a little later, or for any version"
    "html" r#"{"act":"html"}"#
        "says that no API server answers; takes nothing of it for an object"
    "redirect" r#"{"act":"redirect","to":"http://localhost:1/"}"#
        "follows to no other host with its token"
    "echo-headers" r#"{"act":"echo-headers"}"#
        "shows its token in no error and no log"
    "control-characters" r#"{"act":"control-characters"}"#
        "writes none of them to a log or a terminal"
    "watch-error" r#"{"act":"watch-error","code":410,"reason":"Expired"}"#
        "lists anew after 410, and opens the watch again after any other"
    "unfinished" r#"{"act":"unfinished","part":"item","mebibytes":64}"#
        "stops reading at a bound of its own"
    "unfinished-line" r#"{"act":"unfinished","part":"line","mebibytes":64,"watch":true}"#
        "stops reading at a bound of its own, and opens the watch again"
    "unfinished-body" r#"{"act":"unfinished","part":"body","mebibytes":64,"verb":"get"}"#
        "stops reading at a bound of its own"
    "gzip-bomb" r#"{"act":"gzip-bomb","mebibytes":512}"#
        "stops reading at a bound of its own"
    "wrong-kind" r#"{"act":"wrong-kind","times":1}"#
        "takes no object of another kind"
    "wrong-names" r#"{"act":"wrong-names","verb":"get"}"#
        "takes no object for the one it asked for"
    "unnamed" r#"{"act":"unnamed","namespace":"shop"}"#
        "sets the object aside, and keeps all others"
    "undecodable" r#"{"act":"undecodable","namespace":"shop","name":"db"}"#
        "sets the object aside with the reason, and keeps all others"
    "not-utf-8" r#"{"act":"not-utf-8"}"#
        "refuses the object or the answer, and keeps what it has"
    "deep" r#"{"act":"deep","levels":100000}"#
        "refuses the object without running out of stack"
    "huge-number" r#"{"act":"huge-number"}"#
        "refuses the object, and goes on"
    "older-versions" r#"{"act":"older-versions","by":100,"times":1}"#
        "does not go back to an older object of a watch; a list it asked for may be older"
    "no-bookmarks" r#"{"act":"no-bookmarks"}"#
        "goes on; at worst it lists anew after the watch expired"
    "no-events" r#"{"act":"no-events"}"#
        "cannot know, unless it asks besides the watch: the cache is late until the watch ends"
    "heartbeats" r#"{"act":"heartbeats","everyMilliseconds":1000}"#
        "does not take blank lines for news; opens a watch again that outlives its time"
    "duplicate-events" r#"{"act":"duplicate-events"}"#
        "tells its user of each change once"
    "reorder-events" r#"{"act":"reorder-events"}"#
        "never replaces an object by an older version of it"
    "gzip-cut" r#"{"act":"gzip-cut"}"#
        "fails the read, and takes no part of it for the whole"
    "hang-after" r#"{"act":"hang-after","bytes":100}"#
        "gives up by a limit of silence, and asks again"
    "cut-after" r#"{"act":"cut-after","bytes":100}"#
        "fails the read; opens the watch again where it stood"
    "drip" r#"{"act":"drip","bytes":1,"everyMilliseconds":500}"#
        "gives up by a limit of the whole read, not of silence alone"
    "stall" r#"{"act":"stall","part":"handshake","after":10}"#
        "gives up by a time limit of its own, in each phase"
    "stall-head" r#"{"act":"stall","part":"head","after":10}"#
        "gives up by a limit of the wait for an answer"
    "stall-body" r#"{"act":"stall","part":"body","after":100}"#
        "gives up by a limit of silence"
    "stall-event" r#"{"act":"stall","part":"event","event":2,"after":20,"watch":true}"#
        "takes no part of an event for an event; gives the watch up by a limit of silence"
    "stall-error-body"
        r#"[{"act":"status","code":500},{"act":"stall","part":"body","after":10}]"#
        "gives up by a limit of its own, and says the status that it got"
    "dribble" r#"{"act":"dribble","part":"head","bytes":1,"everyMilliseconds":500}"#
        "bounds the phase as a whole"
    "dribble-handshake"
        r#"{"act":"dribble","part":"handshake","bytes":1,"everyMilliseconds":500}"#
        "bounds the handshake as a whole"
    "dribble-body" r#"{"act":"dribble","part":"body","bytes":1,"everyMilliseconds":500}"#
        "bounds the body as a whole, not silence alone"
    "dribble-event"
        r#"{"act":"dribble","part":"event","event":2,"bytes":1,"everyMilliseconds":500}"#
        "bounds the time of one event, or is late by it and no more"
    "drip-error-body"
        r#"[{"act":"status","code":500},{"act":"drip","bytes":1,"everyMilliseconds":500}]"#
        "bounds the body of an error too, and says the status that it got"
    "cut" r#"{"act":"cut","part":"event","event":2,"after":20,"watch":true}"#
        "takes no part of an event for an event; opens the watch again where it stood"
    "reset" r#"{"act":"reset","part":"body","after":100}"#
        "as after a close; asks once more where nothing of the answer has come"
    "flip-bit" r#"{"act":"flip-bit","part":"body","at":0}"#
        "refuses what is no JSON; a wrong value in good JSON nobody can see"
    "half-open" r#"{"act":"half-open"}"#
        "gives the next request a time limit, and then another connection"
    "wrong-length" r#"{"act":"wrong-length","by":-5}"#
        "fails the read, and uses the connection no more"
    "interim-flood" r#"{"act":"interim-flood","count":100000}"#
        "passes over a few, and gives up after more"
}

faults! {
    /// The faults of an API server as a whole.
    ///
    /// The examples are methods of [`ApiServer`](crate::testing::ApiServer) or of
    /// [`FakeClock`](crate::clock::FakeClock). Most have a request of the control port, too: see
    /// [`ControlServer`](crate::testing::ControlServer).
    SERVER_FAULTS
    "crash" "server.crash(); server.come_back()?;"
        "keeps what it has; finds afterwards what changed meanwhile; as often as it happens"
    "restore" "server.restore(version)?;"
        "follows a server whose history went back, also to objects that are older"
    "compact" "server.compact();"
        "lists anew after 410, and loses no change"
    "expire-watches" "server.expire_watches();"
        "lists anew, and tells of each change once"
    "cut-watches" "server.cut_watches();"
        "opens the watch again where it stood"
    "rotate-tls" "server.rotate_tls(&authority)?;"
        "trusts no new authority by itself; goes on as soon as it may trust the server again"
    "rotate-token" "server.remove_token(old); server.add_token(new, user, groups);"
        "reads its token anew after a 401, and asks once more"
    "clock-jump" "clock.advance(Duration::from_secs(1_000_000));"
        "takes no time-out that passed by a jump for more than one failure"
}
