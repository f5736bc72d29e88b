//! The setters of options, which all store a value and return the options.

/// Makes a public setter for each line. It stores its argument, or the expression after the equals
/// sign, in the field of its name, or in the one that `in` names. The type is `#[must_use]`.
///
/// `setters! { [K: Object] Options<K>; /// Its docs. name(name: &str) = Some(name.to_owned()); }`
macro_rules! setters {
    (@ $value:ident) => { $value };
    (@ $value:ident = $kept:expr) => { $kept };
    (@ $self:ident.$name:ident) => { &mut $self.$name };
    (@ $self:ident.$name:ident in $($field:ident).+) => { &mut $self.$($field).+ };
    ([$($by:tt)*] $type:ident $(<$($of:ident),+>)?;
        $($(#[$about:meta])*
        $name:ident($value:ident: $kind:ty) $(in $($field:ident).+)? $(= $kept:expr)?;)+) => {
        impl<$($by)*> $type $(<$($of),+>)? {
            $($(#[$about])*
            pub fn $name(mut self, $value: $kind) -> Self {
                *$crate::setters::setters!(@ self.$name $(in $($field).+)?) =
                    $crate::setters::setters!(@ $value $(= $kept)?);
                self
            })+
        }
    };
}
pub(crate) use setters;
