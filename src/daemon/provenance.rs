//! Content credentials (C2PA) over finished files: signed here, where the key is; never in the worker.
//!
//! A manifest holds who signed, what was done (the IPTC digital source type) and, as soft binding,
//! the payload of the invisible mark, so that a file whose manifest was lost can be matched again.
//! Nothing is fetched. A signed file differs each time (the manifest has an id of its own).
//! `examine` parses a file with a large foreign parser in the root program: give it only files
//! that mien has just written.

use std::fs::File;
use std::io::{Cursor, Seek as _, SeekFrom};

use c2pa::assertions::{Actions, SoftBinding};
use c2pa::{BoxedSigner, Builder, Context, Reader, SigningAlg, ValidationState};
use mien_base::clock::Wall;
use mien_base::limits;
use mien_base::report::{ClipReport, PictureReport};
use mien_base::wire::Format;
use serde_json::json;

use crate::supervise::Seal;
use crate::{Error, Result};

const SOURCE_TYPE: &str = "http://cv.iptc.org/newscodes/digitalsourcetype/";
/// Name of the invisible mark as a soft binding.
const BINDING: &str = "mien.stdm.1";

/// A grey picture of eight by eight pixels, to try a key on.
const PROBE: &[u8] = &[
    137, 80, 78, 71, 13, 10, 26, 10, 0, 0, 0, 13, 73, 72, 68, 82, 0, 0, 0, 8, 0, 0, 0, 8, 8, 0, 0,
    0, 0, 225, 100, 225, 87, 0, 0, 0, 14, 73, 68, 65, 84, 120, 156, 99, 104, 128, 2, 6, 202, 24, 0,
    128, 132, 32, 1, 13, 128, 36, 97, 0, 0, 0, 0, 73, 69, 78, 68, 174, 66, 96, 130,
];

/// An Ed25519 key and the certificates that vouch for it.
pub struct Signer(BoxedSigner);

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Signer")
    }
}

impl Signer {
    /// From PEM texts: the certificates, the signer's own first, and its private key (PKCS #8).
    /// They are tried on a picture of ours.
    ///
    /// # Errors
    /// `SigningKey`.
    pub fn new(chain: &[u8], key: &[u8]) -> Result<Self> {
        let bad = |detail: String| Error::SigningKey { detail };
        if chain.len() as u64 > limits::TEXT_FILE || key.len() as u64 > limits::TEXT_FILE {
            return Err(bad("it is far too long".to_owned()));
        }
        let signer = c2pa::create_signer::from_keys(chain, key, SigningAlg::Ed25519, None)
            .map_err(|e| bad(e.to_string()))?;
        if signer.certs().map_err(|e| bad(e.to_string()))?.is_empty() {
            return Err(bad("there is no certificate".to_owned()));
        }
        // Better now than after the first picture: the pair is tried.
        let signer = Self(signer);
        let claim = Claim { title: "probe", generated: false, payload: None, made: Wall(0) };
        let signed = sign(PROBE, Format::Png, &claim, &signer).map_err(|e| bad(e.to_string()))?;
        match examine(&signed, Format::Png, None)? {
            Some(found) if found.standing != Standing::Invalid => Ok(signer),
            found => Err(bad(found.map_or_else(String::new, |f| f.faults.join(", ")))),
        }
    }
}

/// What a manifest says of a file.
#[derive(Debug, Clone, Copy)]
pub struct Claim<'a> {
    /// Name of the file, as shown.
    pub title: &'a str,
    /// Faces were made; otherwise they were only covered.
    pub generated: bool,
    /// Payload of the invisible mark, 16 hex digits; `None` when the file carries none.
    pub payload: Option<&'a str>,
    pub made: Wall,
}

/// Signs each finished picture of a run.
#[derive(Debug)]
pub struct Sealer {
    pub signer: Signer,
    /// Wall clock of the run.
    pub made: Wall,
}

impl Seal for Sealer {
    fn seal(&self, file: &[u8], format: Format, report: &PictureReport) -> Result<Vec<u8>> {
        let marks = report.marks.as_ref().filter(|marks| marks.invisible);
        let claim = Claim {
            title: "A picture with altered faces",
            generated: report.faces.iter().any(|face| made_up(&face.done)),
            payload: marks.map(|marks| marks.payload.as_str()),
            made: self.made,
        };
        sign(file, format, &claim, &self.signer)
    }

    fn seal_clip(&self, mut clip: File, mut sealed: File, report: &ClipReport) -> Result<u64> {
        let whole = report.marks.gops > 0 && report.marks.marked == report.marks.gops;
        let claim = Claim {
            title: "A clip with altered faces",
            generated: report.done.iter().any(|(done, _)| made_up(done)),
            payload: whole.then_some(report.marks.payload.as_str()),
            made: self.made,
        };
        builder(CLIP, &claim)?
            .sign(self.signer.0.as_ref(), CLIP, &mut clip, &mut sealed)
            .map_err(|e| failed(&e))?;
        let end = sealed.seek(SeekFrom::End(0));
        end.map_err(|e| Error::Credentials { detail: e.to_string() })
    }
}

const CLIP: &str = "video/mp4";

fn made_up(done: &str) -> bool {
    done.starts_with("swap") || done.starts_with("synthetic")
}

const fn mime(format: Format) -> &'static str {
    match format {
        Format::Jpeg => "image/jpeg",
        Format::Png => "image/png",
        Format::WebP => "image/webp",
    }
}

fn failed(error: &c2pa::Error) -> Error {
    Error::Credentials { detail: error.to_string() }
}

/// Nothing is fetched, and only certificates under `anchors` (PEM) are trusted.
fn context(anchors: Option<&str>) -> Result<Context> {
    let mut settings = json!({
        "verify": { "remote_manifest_fetch": false, "ocsp_fetch": false },
    });
    if let Some(anchors) = anchors {
        settings["trust"] = json!({ "trust_anchors": anchors });
    }
    Context::new().with_settings(settings.to_string().as_str()).map_err(|e| failed(&e))
}

/// The file with a signed manifest inside.
///
/// # Errors
/// `Credentials` when the file can't carry a manifest or the key can't sign.
pub fn sign(file: &[u8], format: Format, claim: &Claim<'_>, signer: &Signer) -> Result<Vec<u8>> {
    let mut signed = Cursor::new(Vec::with_capacity(file.len() + (16 << 10)));
    builder(mime(format), claim)?
        .sign(signer.0.as_ref(), mime(format), &mut Cursor::new(file), &mut signed)
        .map_err(|e| failed(&e))?;
    Ok(signed.into_inner())
}

/// What makes the manifest of a file.
fn builder(mime: &str, claim: &Claim<'_>) -> Result<Builder> {
    let (kind, done) = if claim.generated {
        ("compositeWithTrainedAlgorithmicMedia", "Faces were replaced by generated ones")
    } else {
        ("algorithmicallyEnhanced", "Faces were covered")
    };
    let (kind, when) = (format!("{SOURCE_TYPE}{kind}"), claim.made.to_string());
    let mut assertions = vec![json!({
        "label": "c2pa.actions.v2",
        "data": { "actions": [
            { "action": "c2pa.created", "when": when, "digitalSourceType": kind },
            {
                "action": "c2pa.edited", "when": when, "digitalSourceType": kind,
                "description": done,
            },
        ] },
    })];
    assertions.extend(claim.payload.map(|payload| {
        let blocks = json!([{ "scope": {}, "value": payload }]);
        let data = json!({ "alg": BINDING, "name": "invisible mark", "blocks": blocks, "pad": [] });
        json!({ "label": SoftBinding::LABEL, "data": data })
    }));
    let definition = json!({
        "claim_generator_info": [{ "name": "mien", "version": env!("CARGO_PKG_VERSION") }],
        "title": claim.title,
        "format": mime,
        "assertions": assertions,
    });
    Builder::from_context(context(None)?)
        .with_definition(definition.to_string().as_str())
        .map_err(|e| failed(&e))
}

/// What a signature is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// The file is as it was signed, and the signer is vouched for.
    Trusted,
    /// The file is as it was signed; who signed is not vouched for.
    Valid,
    /// The file was changed since, or the manifest is broken.
    Invalid,
}

/// What the manifest of a file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provenance {
    pub standing: Standing,
    /// Common name in the signer's certificate.
    pub signer: Option<String>,
    /// Last word of the digital source type.
    pub source_type: Option<String>,
    /// Payload of the invisible mark.
    pub payload: Option<String>,
    /// Codes of what is wrong.
    pub faults: Vec<String>,
}

/// Reads the manifest of a file of ours; `None` when it has none. `anchors`: certificates (PEM)
/// that vouch for signers.
///
/// # Errors
/// `Credentials` when the file can't be parsed.
pub fn examine(file: &[u8], format: Format, anchors: Option<&str>) -> Result<Option<Provenance>> {
    let read = Reader::from_context(context(anchors)?).with_stream(mime(format), Cursor::new(file));
    let reader = match read {
        Ok(reader) => reader,
        Err(c2pa::Error::JumbfNotFound) => return Ok(None),
        Err(error) => return Err(failed(&error)),
    };
    let Some(manifest) = reader.active_manifest() else { return Ok(None) };
    let standing = match reader.validation_state() {
        ValidationState::Trusted => Standing::Trusted,
        ValidationState::Valid => Standing::Valid,
        _ => Standing::Invalid,
    };
    let actions = manifest.find_assertion::<Actions>(Actions::LABEL).ok();
    let source_type = actions.iter().flat_map(|a| a.actions()).find_map(|action| {
        let url = serde_json::to_value(action.source_type()?).ok()?;
        Some(url.as_str()?.rsplit('/').next()?.to_owned())
    });
    let binding = manifest.find_assertion::<SoftBinding>(SoftBinding::LABEL).ok();
    let payload = binding
        .filter(|b| b.alg.as_deref() == Some(BINDING))
        .and_then(|b| Some(b.blocks.into_iter().next()?.value));
    let faults = reader.validation_status().unwrap_or_default().iter();
    Ok(Some(Provenance {
        standing,
        signer: manifest.common_name(),
        source_type,
        payload,
        faults: faults.map(|status| status.code().to_owned()).collect(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made for these tests alone: a root, and a signer under it, valid until 2123.
    const CHAIN: &str = "\
-----BEGIN CERTIFICATE-----
MIIBhTCCATegAwIBAgIBAjAFBgMrZXAwLTEXMBUGA1UEAwwObWllbiB0ZXN0IHJv
b3QxEjAQBgNVBAoMCW1pZW4gdGVzdDAgFw0yNDAxMDEwMDAwMDBaGA8yMTIzMTIz
MTIzNTk1OVowLzEZMBcGA1UEAwwQbWllbiB0ZXN0IHNpZ25lcjESMBAGA1UECgwJ
bWllbiB0ZXN0MCowBQYDK2VwAyEAyvjFhVXoijtbQvsBN+eTSw5GtvHbnWRgjx2y
JBFTNROjeDB2MAwGA1UdEwEB/wQCMAAwDgYDVR0PAQH/BAQDAgeAMBYGA1UdJQEB
/wQMMAoGCCsGAQUFBwMEMB0GA1UdDgQWBBRyCuulfKPo5FUbM9fXJjD/pKL0uzAf
BgNVHSMEGDAWgBRVoKOJB8yGrIjFtSF3E8/3PpAXuDAFBgMrZXADQQCHB9FmDdVs
zKGXoR7dZt2AOhaHj3b1cs24nPabhEF37LOxtBAWeHF4bnPx09RABsGynUTWv2FU
lY5Sn9FgzfgC
-----END CERTIFICATE-----
-----BEGIN CERTIFICATE-----
MIIBTDCB/6ADAgECAgEBMAUGAytlcDAtMRcwFQYDVQQDDA5taWVuIHRlc3Qgcm9v
dDESMBAGA1UECgwJbWllbiB0ZXN0MCAXDTI0MDEwMTAwMDAwMFoYDzIxMjMxMjMx
MjM1OTU5WjAtMRcwFQYDVQQDDA5taWVuIHRlc3Qgcm9vdDESMBAGA1UECgwJbWll
biB0ZXN0MCowBQYDK2VwAyEAyTcF09dznABiyUgfOLololacb1UOloCjDWj2HujY
lPGjQjBAMA8GA1UdEwEB/wQFMAMBAf8wDgYDVR0PAQH/BAQDAgEGMB0GA1UdDgQW
BBRVoKOJB8yGrIjFtSF3E8/3PpAXuDAFBgMrZXADQQDOYz35B0OkyRPIlO/B1owI
8KTBlRgI0HKfz5emFHECauSN1eiQ8ub8FsUKimJybCKK8v/70QeD1WoedjgadL0B
-----END CERTIFICATE-----
";
    const KEY: &str = "\
-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIJWUa68b/i0SfPT5ilvrrCbhFOv9efEzRgn0XR4HCGag
-----END PRIVATE KEY-----
";

    /// The root's key: not the one that the signer's certificate names.
    const OTHER_KEY: &str = "\
-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIEw3IJ+52CmiDaZU7hMCfyv/yOd77Gsvk7kFLl21W8AT
-----END PRIVATE KEY-----
";

    const CLAIM: Claim<'_> = Claim {
        title: "a.png",
        generated: true,
        payload: Some("7000004d00003039"),
        made: Wall(1_796_063_974),
    };

    fn signed(claim: &Claim<'_>) -> Vec<u8> {
        let signer = Signer::new(CHAIN.as_bytes(), KEY.as_bytes()).unwrap();
        sign(PROBE, Format::Png, claim, &signer).unwrap()
    }

    #[test]
    fn signed_file_says_what_was_done_and_by_whom() {
        let found = examine(&signed(&CLAIM), Format::Png, None).unwrap().unwrap();
        assert_eq!(found.standing, Standing::Valid, "{found:?}");
        assert_eq!(found.signer.as_deref(), Some("mien test signer"));
        assert_eq!(found.source_type.as_deref(), Some("compositeWithTrainedAlgorithmicMedia"));
        assert_eq!(found.payload.as_deref(), CLAIM.payload);

        let covered = Claim { generated: false, payload: None, ..CLAIM };
        let found = examine(&signed(&covered), Format::Png, None).unwrap().unwrap();
        assert_eq!(found.source_type.as_deref(), Some("algorithmicallyEnhanced"));
        assert_eq!(found.payload, None);
    }

    #[test]
    fn signer_under_a_given_root_is_trusted() {
        let found = examine(&signed(&CLAIM), Format::Png, Some(CHAIN)).unwrap().unwrap();
        assert_eq!(found.standing, Standing::Trusted, "{found:?}");
    }

    #[test]
    fn changed_picture_is_found_out() {
        let mut file = signed(&CLAIM);
        let at = file.len() - 20;
        file[at] ^= 1;
        let found = examine(&file, Format::Png, None);
        let caught = match &found {
            Ok(Some(found)) => found.standing == Standing::Invalid && !found.faults.is_empty(),
            Ok(None) => false,
            Err(_) => true,
        };
        assert!(caught, "{found:?}");
    }

    #[test]
    #[ignore = "needs pictures: tests/run sets MIEN_PICTURES"]
    fn photograph_is_signed_and_one_flipped_bit_is_found_out() {
        let folder = std::env::var_os("MIEN_PICTURES").expect("MIEN_PICTURES names a folder");
        let file = std::fs::read(std::path::Path::new(&folder).join("hopper.jpg")).unwrap();
        let signer = Signer::new(CHAIN.as_bytes(), KEY.as_bytes()).unwrap();
        let mut signed = sign(&file, Format::Jpeg, &CLAIM, &signer).unwrap();
        assert!(signed.len() < file.len() + (16 << 10), "{}", signed.len() - file.len());
        let found = examine(&signed, Format::Jpeg, None).unwrap().unwrap();
        assert_eq!(found.standing, Standing::Valid, "{found:?}");
        let middle = signed.len() - file.len() / 2;
        signed[middle] ^= 1;
        let found = examine(&signed, Format::Jpeg, None).unwrap().unwrap();
        assert_eq!(found.standing, Standing::Invalid);
    }

    #[test]
    fn plain_file_has_no_manifest() {
        assert_eq!(examine(PROBE, Format::Png, None).unwrap(), None);
    }

    #[test]
    fn key_and_certificate_must_be_ones_and_belong_together() {
        assert!(Signer::new(CHAIN.as_bytes(), OTHER_KEY.as_bytes()).is_err());
        assert!(Signer::new(b"", KEY.as_bytes()).is_err());
        assert!(Signer::new(CHAIN.as_bytes(), b"nonsense").is_err());
        assert!(Signer::new(&vec![b'a'; 1 << 20], KEY.as_bytes()).is_err());
    }
}
