//! Fields of a kubeconfig that name a file, or hold its content.

use std::path::PathBuf;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use zeroize::Zeroizing;

use crate::error::Error;
use crate::http::certificates::pem::Pem;
use crate::yaml::Section;

/// Decodes as Go does, but padding may be missing, as in a text that was cut by hand.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Returns the path in a field, relative to the directory of the kubeconfig.
pub(super) fn path(section: &Section, field: &str) -> Result<Option<PathBuf>, Error> {
    let path = section.text(field)?;
    Ok(path.map(|path| section.directory().join(path)))
}

/// Returns the PEM in `<field>-data`, else in the file that `<field>` names, as the API says.
pub(super) fn pem(section: &Section, field: &str) -> Result<Option<Pem>, Error> {
    let data_field = format!("{field}-data");
    if let Some(text) = section.text(&data_field)? {
        let mut compact = Zeroizing::new(String::with_capacity(text.len()));
        compact.extend(text.chars().filter(|letter| !letter.is_ascii_whitespace()));
        // The error of the decoder quotes a byte, which may be one of a key.
        let bytes = BASE64
            .decode(compact.as_bytes())
            .map_err(|_quotes_a_byte| {
                let why = "not base64: it must be the whole PEM file in base64 (base64 -w0 <file>)";
                section.error(&data_field, why)
            })?;
        return Ok(Some(Pem::inline(bytes, section.location(&data_field))));
    }
    Ok(path(section, field)?.map(|path| Pem::file(path, section.location(field))))
}
