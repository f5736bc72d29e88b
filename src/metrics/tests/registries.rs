//! Series in a registry of the program's own, their end there, and names that clash.

use prometheus::{IntCounter, IntCounterVec, Opts, Registry, TextEncoder};

use super::*;
use crate::error::ErrorKind;

fn text(registry: &Registry) -> String {
    TextEncoder::new()
        .encode_to_string(&registry.gather())
        .unwrap()
}

#[test]
fn a_registry_shows_the_series_until_they_are_dropped_and_may_have_them_again() {
    let registry = Registry::new_custom(Some("mine".to_owned()), None).unwrap();
    let exposition = Exposition::new();
    let _hook = exposition.reflector::<Secret>("s").unwrap();
    for _ in 0..2 {
        let registered = exposition.register(&registry).unwrap();
        // A series of later.
        let client = exposition.client("c").unwrap();
        let shown = text(&registry);
        for series in [
            "mine_reflector_lists_total{group=\"\",name=\"s\",resource=\"secrets\",",
            "mine_rest_client_exec_plugin_certificate_rotation_age_count{name=\"c\"} 0",
        ] {
            assert!(shown.contains(series), "{series}: {shown}");
        }
        drop(client);
        assert!(
            !text(&registry).contains("rest_client"),
            "gone with its owner"
        );
        drop(registered);
        assert_eq!(text(&registry), "");
    }
}

#[test]
fn a_name_that_the_program_has_already_is_named_and_nothing_stays() {
    const NAME: &str = "rest_client_requests_total";
    let plain = IntCounter::new(NAME, "mine").unwrap();
    let labelled = IntCounterVec::new(Opts::new(NAME, "mine"), &["code"]).unwrap();
    labelled.with_label_values(&["200"]).inc();
    let constant = Opts::new(NAME, "mine").const_label("host", "h");
    let constant = IntCounter::with_opts(constant).unwrap();
    let clashing: [Box<dyn prometheus::core::Collector>; 3] =
        [Box::new(plain), Box::new(labelled), Box::new(constant)];
    for of_program in clashing {
        let registry = Registry::new();
        registry.register(of_program).unwrap();
        let before = text(&registry);
        let exposition = Exposition::new();
        let _hook = exposition.client("c").unwrap();
        let error = exposition.register(&registry).map(drop).unwrap_err();
        let told = format!("registering metric {NAME}: the registry has another one of that name");
        assert_eq!((error.kind(), error.to_string()), (ErrorKind::Config, told));
        assert_eq!(text(&registry), before);
    }
}

#[test]
fn a_second_exposition_is_refused_until_the_first_has_left() {
    let (registry, second) = (Registry::new(), Exposition::new());
    let first = Exposition::new().register(&registry).unwrap();
    let error = second.register(&registry).map(drop).unwrap_err();
    let told = "registering metric reflector_lists_total: the registry has another one of that \
        name";
    assert_eq!(error.to_string(), told);
    drop(first);
    drop(second.register(&registry).unwrap());
}
