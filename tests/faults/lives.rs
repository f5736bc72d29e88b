//! Faults of a server's life: it crashes and comes back, it goes back in time, the clock jumps, and
//! a token is to be read anew.

use k8s_openapi::api::core::v1::Secret;
use kubecache::object::Scope;

use super::bed::{Bed, read, secret};

#[test]
fn crash_and_return_n_times() {
    let bed = Bed::new(false);
    for turn in 0..5 {
        bed.server.crash();
        let listed = bed.client.list::<Secret>(Scope::namespace("shop"));
        let error = read(listed.map(|_| String::new()));
        assert!(error.starts_with("Unreachable"), "{error}");
        assert_eq!(bed.watched(), bed.stored(), "both keep what they have");
        // What changes meanwhile is found afterwards.
        let value = format!("turn {turn}");
        bed.server.apply(&secret("db", &value)).unwrap();
        bed.server.come_back().unwrap();
        bed.follow(&value);
    }
}
