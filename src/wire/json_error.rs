//! Why a text did not decode, in the words of `serde` without the values that they quote.

use std::fmt::{self, Display};

use serde::de::{self, Expected, Unexpected};

use super::reason::clip;

/// Why a text did not decode, in words that quote no value.
#[derive(Debug)]
pub(super) struct JsonError(Box<str>);

/// The text is no JSON, or none that a value can be made of.
#[cold]
pub(super) fn broken(message: &str) -> JsonError {
    JsonError(message.into())
}

impl Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for JsonError {}

/// The words of `serde`, without the values that it quotes.
impl de::Error for JsonError {
    fn custom<T: Display>(_quotes: T) -> Self {
        broken("the value is not acceptable")
    }

    fn invalid_type(met: Unexpected<'_>, expected: &dyn Expected) -> Self {
        broken(&unexpected("invalid type", met, expected))
    }

    fn invalid_value(met: Unexpected<'_>, expected: &dyn Expected) -> Self {
        broken(&unexpected("invalid value", met, expected))
    }

    fn invalid_length(_length: usize, expected: &dyn Expected) -> Self {
        broken(&format!("invalid length, expected {}", clipped(expected)))
    }

    fn unknown_variant(_variant: &str, expected: &'static [&'static str]) -> Self {
        broken(&format!("unknown variant{}", one_of(expected)))
    }

    fn unknown_field(_field: &str, expected: &'static [&'static str]) -> Self {
        broken(&format!("unknown field{}", one_of(expected)))
    }

    fn missing_field(field: &'static str) -> Self {
        broken(&format!("missing field `{field}`"))
    }

    fn duplicate_field(field: &'static str) -> Self {
        broken(&format!("duplicate field `{field}`"))
    }
}

fn unexpected(what: &str, met: Unexpected<'_>, expected: &dyn Expected) -> String {
    let met = match met {
        Unexpected::Bool(_) => "boolean",
        Unexpected::Unsigned(_) | Unexpected::Signed(_) => "integer",
        Unexpected::Float(_) => "floating point",
        Unexpected::Char(_) => "character",
        Unexpected::Str(_) => "string",
        Unexpected::Bytes(_) => "byte array",
        Unexpected::Unit => "null",
        Unexpected::Option => "Option value",
        Unexpected::NewtypeStruct => "newtype struct",
        Unexpected::Seq => "sequence",
        Unexpected::Map => "map",
        Unexpected::Enum => "enum",
        Unexpected::UnitVariant => "unit variant",
        Unexpected::NewtypeVariant => "newtype variant",
        Unexpected::TupleVariant => "tuple variant",
        Unexpected::StructVariant => "struct variant",
        Unexpected::Other(_) => "value",
    };
    format!("{what}: {met}, expected {}", clipped(expected))
}

fn clipped(expected: &dyn Expected) -> String {
    clip(&expected.to_string()).to_owned()
}

fn one_of(names: &[&str]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    let text = match &*quoted {
        [] => return String::new(),
        [one] => one.clone(),
        [one, other] => format!("{one} or {other}"),
        more => format!("one of {}", more.join(", ")),
    };
    format!(", expected {}", clip(&text))
}
