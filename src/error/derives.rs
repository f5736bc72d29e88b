//! Implements traits without bounds on a type's parameters, and the `Debug` of types in logs and
//! failed assertions.

/// Implements `Debug` with the useful fields: for a type whose parameters need not be `Debug`, or
/// that has fields which cannot be shown. Two dots at the end stand for further fields.
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

/// Implements `Clone` by all fields: for a type whose parameters need not be `Clone`.
///
/// `clone_of!([K: Object] Store<K>: state, clock);`
macro_rules! clone_of {
    ([$($by:tt)*] $type:ident<$of:ident>: $($field:tt),+) => {
        impl<$($by)*> Clone for $type<$of> {
            fn clone(&self) -> Self {
                Self { $($field: Clone::clone(&self.$field)),+ }
            }
        }
    };
}

/// Implements `Default` by all fields, as [`clone_of`] does `Clone`.
macro_rules! default_of {
    ([$($by:tt)*] $type:ident<$of:ident>: $($field:tt),+) => {
        impl<$($by)*> Default for $type<$of> {
            fn default() -> Self {
                Self { $($field: Default::default()),+ }
            }
        }
    };
}
pub(crate) use {clone_of, debug_of, default_of};
