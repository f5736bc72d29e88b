//! List bodies: order of members, trimming, errors.

use super::*;

#[test]
fn members_of_the_list_may_stand_in_any_order() {
    let body = br#"{"items":[{"metadata":{"name":"a","namespace":"n","resourceVersion":"5"}}],"kind":"SecretList","apiVersion":"v1","metadata":{"resourceVersion":"9","continue":"more"}}"#;
    let outcome = list_of(&[body], &DecodeOptions::default());
    assert_eq!(outcome.items, ["Secret n/a @5"]);
    let page = outcome.end.unwrap();
    assert_eq!(page.resource_version.as_str(), "9");
    assert_eq!(page.continue_token.as_deref(), Some("more"));
    for split in 0..body.len() {
        let (left, right) = body.split_at(split);
        let again = list_of(&[left, right], &DecodeOptions::default());
        assert_eq!(again.items, ["Secret n/a @5"]);
    }
}
