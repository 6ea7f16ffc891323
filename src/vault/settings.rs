//! What the owner of a machine decides about models: `vault.toml` of the home.

use mien_base::limits;
use mien_base::model::Manifest;
use serde::Deserialize;

use crate::errors::{Error, Result};
use crate::files;
use crate::home::Home;
use crate::refusal::Reason;

/// The settings; every key may be absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Models whose licence forbids commercial use are refused.
    pub commercial: bool,
    /// Models that lie about as plain files are served, too.
    pub plain: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { commercial: false, plain: true }
    }
}

impl Settings {
    /// The settings of a home; the usual ones where there is no file.
    ///
    /// # Errors
    /// `Damaged` with the key that can't be, `TooLarge`, `Io`.
    pub fn of(home: &Home) -> Result<Self> {
        let path = home.settings();
        if !path.exists() {
            return Ok(Self::default());
        }
        let damaged = |why: &str| Error::Damaged { path: path.clone(), why: why.to_owned() };
        let bytes = files::read_bounded(&path, limits::TEXT_FILE)?;
        let text = String::from_utf8(bytes).map_err(|_| damaged("it is not UTF-8"))?;
        toml::from_str(&text).map_err(|error| damaged(error.message()))
    }

    /// Whether a model's licence permits what this machine is for.
    ///
    /// # Errors
    /// `Refused` with `LicenceForbids`.
    pub fn admit(&self, model: &Manifest) -> Result<()> {
        if model.commercial || !self.commercial {
            return Ok(());
        }
        let why = format!(
            "its licence ({}) forbids commercial use, and `commercial = true` stands in vault.toml",
            model.licence
        );
        Err(Error::refused(&format!("The model `{}`", model.id), Reason::LicenceForbids, &why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::tests::Scratch;
    use crate::manifest::tests::manifest;

    #[test]
    fn a_model_that_is_not_for_commerce_is_refused_there_only() {
        let mut model = manifest("m", b"w").model();
        let (at_home, at_work) = (Settings::default(), Settings { commercial: true, plain: true });
        at_work.admit(&model).unwrap();
        model.commercial = false;
        at_home.admit(&model).unwrap();
        let refused = at_work.admit(&model).unwrap_err();
        assert_eq!(refused.reason(), Some(Reason::LicenceForbids));
        assert!(refused.to_string().contains("MIT"), "{refused}");
    }

    #[test]
    fn the_file_is_optional_and_a_key_that_is_none_is_named() {
        let scratch = Scratch::new();
        let home = Home::at(&scratch.0);
        assert_eq!(Settings::of(&home).unwrap(), Settings::default());
        std::fs::write(home.settings(), "commercial = true\n").unwrap();
        assert!(Settings::of(&home).unwrap().commercial && Settings::of(&home).unwrap().plain);
        std::fs::write(home.settings(), "comercial = true\n").unwrap();
        assert!(Settings::of(&home).unwrap_err().to_string().contains("comercial"));
    }
}
