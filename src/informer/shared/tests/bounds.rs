//! More objects than an informer may have (promise 6): handlers follow those that it holds.

use super::*;

#[test]
fn handlers_follow_the_objects_that_an_informer_beyond_its_bound_holds() {
    let stage = Stage::with(&["a", "b", "c"]);
    stage.source.limit_objects(2);
    let informer = stage.informer();
    let (_registration, told) = follow(&informer);
    stage.run(&informer);
    assert_eq!(next_sorted(&told, 2), ["*a2", "*b3"]);
    let error = informer.health().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    assert!(
        error.to_string().contains("1 more found no room"),
        "{error}"
    );

    stage.set("d");
    stage.set("a");
    assert_eq!(next(&told, 1), ["a2>6"], "nothing is told of d");
    stage.source.delete("", "b");
    stage.set("c");
    assert_eq!(next(&told, 2), ["-b7", "+c8"], "it has taken the room");

    // A list keeps those two, although another comes before them.
    stage.behind_its_back(|stage| {
        stage.set("0");
        stage.set("a");
    });
    assert_eq!(words(informer.store()), ["a10", "c8"]);
    assert!(informer.health().is_err());
    stage.behind_its_back(|stage| {
        for name in ["0", "c", "d"] {
            stage.source.delete("", name);
        }
    });
    assert_eq!(words(informer.store()), ["a10"]);
    informer.health().unwrap();
    stage.set("e");
    let told: Vec<_> = told
        .iter()
        .map(|told| written(&told))
        .take_while(|told| told != "+e14")
        .collect();
    let unknown = told
        .iter()
        .filter(|told| told.contains('0') && !told.contains("10"));
    assert_eq!(unknown.count(), 0, "{told:?}");
    assert_eq!(told.iter().rfind(|told| told.contains('c')).unwrap(), "?c8");
}
