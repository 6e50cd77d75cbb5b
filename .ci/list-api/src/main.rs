//! Prints the public items of crates, one per line, without derived, automatic and blanket implementations of traits.
//! Arguments: files of rustdoc's JSON output.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    for file in std::env::args().skip(1) {
        let listing = public_api::Builder::from_rustdoc_json(&file)
            .omit_blanket_impls(true)
            .omit_auto_trait_impls(true)
            .omit_auto_derived_impls(true)
            .build()
            .map_err(|error| format!("{file}: {error}"))?;
        print!("{listing}");
    }
    Ok(())
}
