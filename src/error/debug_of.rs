//! What the types of the crate show of themselves in logs and failed assertions.

/// Implements `Debug` by those fields that tell something: for a type whose parameters need not
/// be `Debug`, or that holds what cannot be shown. Two dots behind them say that there are more.
///
/// `debug_of!([K: Object] Store<K>, |it| objects: it.len(), ..);`
macro_rules! debug_of {
    ([$($by:tt)*] $type:ident $(<$($of:ident),+>)?, |$it:ident|
        $($field:ident: $value:expr,)* ..) => {
        $crate::error::debug_of!(
            @ [$($by)*] $type $(<$($of),+>)?, $it, finish_non_exhaustive, $($field: $value),*
        );
    };
    ([$($by:tt)*] $type:ident $(<$($of:ident),+>)?, |$it:ident|
        $($field:ident: $value:expr),*) => {
        $crate::error::debug_of!(
            @ [$($by)*] $type $(<$($of),+>)?, $it, finish, $($field: $value),*
        );
    };
    (@ [$($by:tt)*] $type:ident $(<$($of:ident),+>)?, $it:ident, $end:ident,
        $($field:ident: $value:expr),*) => {
        impl<$($by)*> std::fmt::Debug for $type $(<$($of),+>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $it = self;
                let mut shown = f.debug_struct(stringify!($type));
                $(shown.field(stringify!($field), &$value);)*
                shown.$end()
            }
        }
    };
}
pub(crate) use debug_of;
