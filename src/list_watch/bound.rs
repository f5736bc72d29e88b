//! The bounds of a collection: its number of objects, and the end of its pages.

use crate::error::{Error, ErrorKind};

/// The maximum number of pages of one list: fifty million objects at the usual size. Beyond it, the
/// server seems to have no last page.
const PAGES_MAX: u32 = 100_000;

/// The maximum number of empty pages in a row: each is a request without data before it (B9).
const EMPTY_PAGES_MAX: u8 = 5;

/// How many objects a collection may have, and how many were left out since its last list.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    pub(crate) max: usize,
    pub(crate) left_out: usize,
}

impl Bound {
    pub(crate) fn new(max: usize) -> Self {
        Self { max, left_out: 0 }
    }

    /// Whether there is room for a new object besides `held` others.
    pub(crate) fn has_room(&self, held: usize) -> bool {
        held < self.max
    }

    /// Counts objects for which there is no room.
    pub(crate) fn leave_out(&mut self, objects: usize) {
        self.left_out = self.left_out.saturating_add(objects);
    }

    /// Why the collection `what` lacks objects; `None` if it has all.
    pub(crate) fn error(&self, what: &str) -> Option<Error> {
        let Self { max, left_out } = self;
        (*left_out > 0).then(|| {
            let text = format!(
                "{what}: the maximum is {max} objects, and {left_out} more found no room: \
                 DecodeOptions::list_items_max raises the limit"
            );
            Error::new(ErrorKind::TooLarge, text)
        })
    }
}

/// The pages of one list so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pages {
    count: u32,
    empty: u8,
    /// The token of an earlier page. It is replaced at page 2, 4, 8 and so on, so that tokens that
    /// go in a circle meet it.
    token: String,
}

impl Pages {
    /// Takes the end of a page: the token of the next, or `None` after the last.
    ///
    /// # Errors
    ///
    /// `Protocol` if the pages do not end.
    pub(crate) fn next(
        &mut self,
        token: Option<String>,
        is_empty: bool,
    ) -> Result<Option<String>, Error> {
        let Some(token) = token.filter(|token| !token.is_empty()) else {
            return Ok(None);
        };
        self.count = self.count.saturating_add(1);
        let empty = self.empty.saturating_add(1);
        self.empty = if is_empty { empty } else { 0 };
        let why = if self.empty > EMPTY_PAGES_MAX {
            "they are empty, and announce more"
        } else if self.token == token || self.count > PAGES_MAX {
            "a token repeats, or there are too many of them"
        } else {
            if self.count.is_power_of_two() {
                self.token.clone_from(&token);
            }
            return Ok(Some(token));
        };
        let text = format!("the server's pages do not end: {why}");
        Err(Error::new(ErrorKind::Protocol, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of the page that is refused, for these tokens and items.
    fn refused(tokens: impl Iterator<Item = (String, bool)>) -> Option<usize> {
        let mut pages = Pages::default();
        let mut ends = tokens.map(|(token, is_empty)| pages.next(Some(token), is_empty));
        ends.position(|end| end.is_err())
    }

    #[test]
    fn pages_whose_tokens_go_in_a_circle_of_any_length_end_soon() {
        for length in 1..50_usize {
            for before in [0, 1, 7, 30] {
                let tokens = (0..10_000).map(|page| {
                    let token = if page < before {
                        page
                    } else {
                        before + (page - before) % length
                    };
                    (token.to_string(), false)
                });
                let page = refused(tokens).unwrap();
                assert!(page <= 4 * (length + before), "{length} {before}: {page}");
            }
        }
    }

    #[test]
    fn pages_that_are_empty_or_too_many_do_not_go_on() {
        let all = |is_empty: fn(usize) -> bool| {
            (0..200_000).map(move |page| (page.to_string(), is_empty(page)))
        };
        assert_eq!(refused(all(|_| true)), Some(5));
        assert_eq!(refused(all(|page| page % 6 > 0)), Some(100_000));
        assert_eq!(refused(all(|_| false).take(100_000)), None);
    }

    #[test]
    fn what_is_left_out_is_told_with_option_count_and_scope() {
        let mut bound = Bound::new(2);
        assert!(bound.has_room(1) && !bound.has_room(2) && bound.error("pods").is_none());
        bound.leave_out(3);
        assert_eq!(
            bound
                .error("pods in namespace \"shop\"")
                .unwrap()
                .to_string(),
            "pods in namespace \"shop\": the maximum is 2 objects, and 3 more found no room: \
             DecodeOptions::list_items_max raises the limit"
        );
    }
}
