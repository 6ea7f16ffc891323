//! How actions and zones are written in arguments, files and reports: `blur:0.25`, `swap:alice`, `pass`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::limits;
use crate::recipe::{Action, Anonymise, Swap, Zone};

/// Default colour of a solid cover.
pub const GREY: [u8; 3] = [127; 3];
/// Default and greatest number of mosaic cells across a face.
pub const MOSAIC_CELLS: u32 = 6;
/// Default and least deviation of a blur, as fractions of the face's width.
pub const BLUR_SIGMA: f32 = 0.25;
/// See [`BLUR_SIGMA`].
pub const BLUR_SIGMA_LEAST: f32 = 0.15;

/// Text that is not an action.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadAction {
    /// Nothing of that name.
    #[error(
        "`{0}` is not an action; write pass, solid[:#rrggbb], mosaic[:CELLS], blur[:SIGMA], image, synthetic[:SEED] or swap:NAME"
    )]
    Unknown(String),
    /// The part after the colon does not fit.
    #[error("`{value}` does not fit `{action}`: {wanted}")]
    Value { action: &'static str, value: String, wanted: &'static str },
    /// Known to be reversible.
    #[error("`{what}` does not make a face anonymous: {why}; use solid, blur or mosaic")]
    NotAnonymous { what: String, why: &'static str },
}

fn printable(text: &str) -> String {
    text.chars().take(80).flat_map(char::escape_debug).collect()
}

fn colour(value: &str) -> Option<[u8; 3]> {
    let hex = value.strip_prefix('#')?;
    if hex.len() != 6 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let number = u32::from_str_radix(hex, 16).ok()?;
    let [_, r, g, b] = number.to_be_bytes();
    Some([r, g, b])
}

impl FromStr for Action {
    type Err = BadAction;

    fn from_str(text: &str) -> Result<Self, BadAction> {
        let (name, value) = match text.split_once(':') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        let bad = |action, wanted| BadAction::Value {
            action,
            value: printable(value.unwrap_or_default()),
            wanted,
        };
        match (name, value) {
            ("pass", None) => Ok(Self::Pass),
            ("swap", Some(source)) => {
                let wanted = "the name of an enrolled source";
                let source = source.parse().map_err(|_| bad("swap", wanted))?;
                Ok(Self::Swap(Swap { source, model: None, weight: 0.5, boost: 1 }))
            }
            ("swap", None) => Err(bad("swap", "write swap:NAME, the name of an enrolled source")),
            ("eyes" | "eye-bar" | "eyebar" | "bar", _) => Err(BadAction::NotAnonymous {
                what: printable(text),
                why: "a bar over the eyes left 20 of 20 faces recognisable",
            }),
            _ => anonymise(name, value, text).map(Self::Anonymise),
        }
    }
}

fn anonymise(name: &str, value: Option<&str>, text: &str) -> Result<Anonymise, BadAction> {
    let bad = |action, wanted| BadAction::Value {
        action,
        value: printable(value.unwrap_or_default()),
        wanted,
    };
    match name {
        "solid" => {
            let colour = match value {
                Some(value) => colour(value).ok_or_else(|| bad("solid", "a colour as #rrggbb"))?,
                None => GREY,
            };
            Ok(Anonymise::Solid { colour })
        }
        "mosaic" => match value {
            None => Ok(Anonymise::Mosaic { cells: MOSAIC_CELLS }),
            Some(value) if value.ends_with("px") => Err(BadAction::NotAnonymous {
                what: printable(text),
                why: "cells of a fixed number of pixels left 15 of 20 faces recognisable; cells are counted across the face",
            }),
            Some(value) => match value.parse() {
                Ok(cells @ 1..=MOSAIC_CELLS) => Ok(Anonymise::Mosaic { cells }),
                Ok(7..) => Err(BadAction::NotAnonymous {
                    what: printable(text),
                    why: "more than 6 cells across a face can be recognised",
                }),
                _ => Err(bad("mosaic", "a number of cells across the face, 1 to 6")),
            },
        },
        "blur" => match value.map(str::parse::<f32>) {
            None => Ok(Anonymise::Blur { sigma: BLUR_SIGMA }),
            Some(Ok(sigma)) if (BLUR_SIGMA_LEAST..=2.0).contains(&sigma) => {
                Ok(Anonymise::Blur { sigma })
            }
            Some(Ok(sigma)) if (0.0..BLUR_SIGMA_LEAST).contains(&sigma) => {
                Err(BadAction::NotAnonymous {
                    what: printable(text),
                    why: "below 0.15 of the face's width a blur can be recognised",
                })
            }
            _ => Err(bad("blur", "a deviation as a fraction of the face's width, 0.15 to 2")),
        },
        "image" if value.is_none() => Ok(Anonymise::Image),
        "synthetic" => match value.map(str::parse) {
            None => Ok(Anonymise::Synthetic { seed: 1 }),
            Some(Ok(seed)) => Ok(Anonymise::Synthetic { seed }),
            Some(Err(_)) => Err(bad("synthetic", "a seed, a whole number")),
        },
        _ => Err(BadAction::Unknown(printable(text))),
    }
}

/// An action as users write it, which may name a picture: `image=FILE`.
///
/// # Errors
/// As `Action::from_str`; `Value` for an `image` without a file.
pub fn action(text: &str) -> Result<(Action, Option<PathBuf>), BadAction> {
    let image = || Action::Anonymise(Anonymise::Image);
    let bare = |value: &str| BadAction::Value {
        action: "image",
        value: value.to_owned(),
        wanted: "write image=FILE",
    };
    match text.strip_prefix("image=") {
        Some("") => Err(bare("")),
        Some(file) => Ok((image(), Some(PathBuf::from(file)))),
        None => match text.parse()? {
            Action::Anonymise(Anonymise::Image) => Err(bare(text)),
            action => Ok((action, None)),
        },
    }
}

/// A zone that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no zone; write `x0,y0,x1,y1` or at least three corners `x,y x,y x,y`, each 0 to 100 percent"
)]
pub struct BadZone(String);

impl FromStr for Zone {
    type Err = BadZone;

    /// `x0,y0,x1,y1` or `x,y x,y x,y …`, in percent.
    fn from_str(text: &str) -> Result<Self, BadZone> {
        let bad = || BadZone(printable(text));
        let numbers = |part: &str| {
            part.split(',')
                .map(|n| n.trim().parse::<f32>().ok().filter(|n| (0.0..=100.0).contains(n)))
                .map(|n| n.map(|n| n / 100.0))
                .collect::<Option<Vec<f32>>>()
        };
        let parts: Vec<&str> = text.split_whitespace().take(limits::ZONE_POINTS + 1).collect();
        let points = match parts.as_slice() {
            [one] => match numbers(one).as_deref() {
                Some(&[x0, y0, x1, y1]) if x0 < x1 && y0 < y1 => {
                    vec![(x0, y0), (x1, y0), (x1, y1), (x0, y1)]
                }
                _ => return Err(bad()),
            },
            many if (3..=limits::ZONE_POINTS).contains(&many.len()) => many
                .iter()
                .map(|part| match numbers(part).as_deref() {
                    Some(&[x, y]) => Ok((x, y)),
                    _ => Err(bad()),
                })
                .collect::<Result<_, _>>()?,
            _ => return Err(bad()),
        };
        Ok(Self { points })
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pass => f.write_str("pass"),
            Self::Swap(swap) => write!(f, "swap:{}", swap.source),
            Self::Anonymise(Anonymise::Solid { colour: GREY }) => f.write_str("solid"),
            Self::Anonymise(Anonymise::Solid { colour: [r, g, b] }) => {
                write!(f, "solid:#{r:02x}{g:02x}{b:02x}")
            }
            Self::Anonymise(Anonymise::Mosaic { cells }) => write!(f, "mosaic:{cells}"),
            Self::Anonymise(Anonymise::Blur { sigma }) => write!(f, "blur:{sigma}"),
            Self::Anonymise(Anonymise::Image) => f.write_str("image"),
            Self::Anonymise(Anonymise::Synthetic { seed }) => write!(f, "synthetic:{seed}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_parses_to_the_same_action() {
        for text in [
            "pass",
            "solid",
            "solid:#00ff7f",
            "mosaic:4",
            "blur:0.25",
            "image",
            "synthetic:9",
            "swap:a.b-1",
        ] {
            let action: Action = text.parse().unwrap();
            assert_eq!(action.to_string(), text);
        }
    }

    #[test]
    fn what_can_be_undone_is_refused_with_the_reason() {
        for text in ["eyes", "eye-bar", "mosaic:20px", "mosaic:12", "blur:0.05"] {
            let Err(BadAction::NotAnonymous { .. }) = text.parse::<Action>() else {
                panic!("{text} was taken");
            };
        }
    }

    #[test]
    fn a_picture_is_named_where_one_is_laid_over_faces() {
        let (action, file) = action("image=a b.png").unwrap();
        assert_eq!((action.to_string(), file), ("image".to_owned(), Some("a b.png".into())));
        assert_eq!(super::action("pass").unwrap(), (Action::Pass, None));
        for bare in ["image", "image="] {
            assert!(super::action(bare).unwrap_err().to_string().contains("image=FILE"));
        }
    }

    #[test]
    fn zones_are_boxes_or_polygons_in_percent() {
        let found: Zone = "0,0,50,100".parse().unwrap();
        assert_eq!(found.points, [(0.0, 0.0), (0.5, 0.0), (0.5, 1.0), (0.0, 1.0)]);
        assert_eq!("0,0 100,0 50,100".parse::<Zone>().unwrap().points.len(), 3);
        for bad in ["", "1,2,3", "50,0,10,10", "0,0,nan,100", "0,0,101,5", "1,1 2,2", "a"] {
            assert!(bad.parse::<Zone>().is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_no_action_says_what_is() {
        for text in
            ["", "blur:x", "blur:nan", "solid:red", "mosaic:0", "swap", "swap:../x", "image:1"]
        {
            assert!(text.parse::<Action>().is_err(), "{text}");
        }
    }
}
