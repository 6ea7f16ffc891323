//! INT8 models serve only after this device has measured them against the FP32 one.

use crate::errors::{Error, Result};
use crate::manifest::{Bounds, Manifest, Precision};
use crate::refusal::Reason;

/// True for a model that the device measures before it serves.
#[must_use]
pub fn needs_measuring(manifest: &Manifest) -> bool {
    manifest.precision == Precision::Int8
}

/// Holds what was measured against what was promised.
///
/// # Errors
/// `Refused` with `BoundsBroken`.
pub fn hold(manifest: &Manifest, measured: Option<&Bounds>) -> Result<()> {
    let what = format!("The model `{}` {}", manifest.id, manifest.version);
    let refuse = |why: &str| Err(Error::refused(&what, Reason::BoundsBroken, why));
    if manifest.bounds.is_empty() {
        return refuse("it is INT8, and its manifest has no bounds to hold it to");
    }
    let Some(measured) = measured else {
        return refuse("it is INT8, and it was not measured on this device");
    };
    let rows = [
        ("box overlap", manifest.bounds.box_iou, measured.box_iou, 1.0),
        ("landmark drift", manifest.bounds.landmark_drift, measured.landmark_drift, -1.0),
        ("embedding cosine", manifest.bounds.cosine, measured.cosine, 1.0),
        ("PSNR", manifest.bounds.psnr, measured.psnr, 1.0),
    ];
    for (name, bound, found, sign) in rows {
        let Some(bound) = bound else { continue };
        let Some(found) = found else {
            return refuse(&format!("its {name} was not measured on this device"));
        };
        // A NaN holds no bound.
        let holds = found * sign >= bound * sign;
        if !holds {
            return refuse(&format!("its {name} is {found} on this device, {bound} is promised"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::tests::manifest;

    #[test]
    fn each_bound_holds_or_is_named() {
        let mut made = manifest("m", b"w");
        assert!(!needs_measuring(&made));
        made.precision = Precision::Int8;
        assert!(needs_measuring(&made));
        let told = |made: &Manifest, measured: Option<&Bounds>| {
            hold(made, measured).err().map(|error| {
                assert_eq!(error.reason(), Some(Reason::BoundsBroken));
                error.to_string()
            })
        };
        let good = Bounds { box_iou: Some(0.95), landmark_drift: Some(0.01), ..Bounds::default() };
        assert!(told(&made, Some(&good)).unwrap().contains("no bounds"));
        made.bounds = Bounds { box_iou: Some(0.9), landmark_drift: Some(0.02), ..good };
        assert!(told(&made, None).unwrap().contains("not measured"));
        assert_eq!(told(&made, Some(&good)), None);
        for (bad, word) in [
            (Bounds { box_iou: Some(0.89), ..good }, "box overlap"),
            (Bounds { box_iou: Some(f32::NAN), ..good }, "box overlap"),
            (Bounds { landmark_drift: Some(0.03), ..good }, "landmark drift"),
            (Bounds { landmark_drift: None, ..good }, "landmark drift"),
        ] {
            assert!(told(&made, Some(&bad)).unwrap().contains(word), "{word}");
        }
    }
}
