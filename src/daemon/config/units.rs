//! Numbers with units as people write them: `90 s`, `7 d`, `20 GiB`, `640x480`, `+02:00`.

use std::time::Duration;

/// A time span; the units are ms, s, min, h, d.
pub(super) fn span(text: &str) -> Option<Duration> {
    let (number, unit) = split(text)?;
    let ms: u64 = match unit {
        "ms" => 1,
        "s" => 1000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.checked_mul(ms).map(Duration::from_millis)
}

/// What `span` reads.
pub(super) fn span_text(span: Duration) -> String {
    let ms = span.as_millis();
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s")];
    let fits = units.into_iter().find(|(unit, _)| ms >= *unit && ms.is_multiple_of(*unit));
    let (unit, word) = fits.unwrap_or((1, "ms"));
    format!("{} {word}", ms / unit)
}

/// A number of bytes; the units are KiB, MiB, GiB, TiB.
pub(super) fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = split(text)?;
    let shift = match unit {
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

/// What `bytes` reads.
pub(super) fn bytes_text(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB")];
    let fits = units
        .into_iter()
        .find(|(shift, _)| bytes >= 1 << shift && bytes.is_multiple_of(1 << shift));
    let (shift, word) = fits.unwrap_or((10, "KiB"));
    format!("{} {word}", bytes >> shift)
}

fn split(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(end);
    Some((number.parse().ok()?, unit.trim_start_matches(' ')))
}

/// Width and height.
pub(super) fn size(text: &str) -> Option<(u32, u32)> {
    let (width, height) = text.split_once('x')?;
    let number = |text: &str| {
        let plain = text.bytes().all(|b| b.is_ascii_digit());
        text.parse().ok().filter(|_| plain)
    };
    Some((number(width)?, number(height)?))
}

/// Minutes of the day.
pub(super) fn clock(text: &str) -> Option<u16> {
    let (hours, minutes) = text.split_once(':')?;
    let number = |text: &str, below: u16| {
        let plain = text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit());
        text.parse::<u16>().ok().filter(|n| plain && *n < below)
    };
    Some(number(hours, 24)? * 60 + number(minutes, 60)?)
}

/// Seconds east of Greenwich.
pub(super) fn offset(text: &str) -> Option<i32> {
    let east = match text.get(..1)? {
        "+" => 1,
        "-" => -1,
        _ => return None,
    };
    let minutes = clock(text.get(1..)?)?;
    (minutes <= 14 * 60).then(|| east * i32::from(minutes) * 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read_and_nothing_is_guessed() {
        assert_eq!(span("90 s"), Some(Duration::from_secs(90)));
        assert_eq!(span("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(bytes("20 GiB"), Some(20 << 30));
        assert_eq!(size("640x480"), Some((640, 480)));
        assert_eq!(clock("23:59"), Some(1439));
        assert_eq!(offset("-03:30"), Some(-12_600));
        for wrong in ["", "s", "5", "-5 s", "5 S", "1.5 s", "99999999999999999999 s", "5 GB", "é"]
        {
            assert_eq!((span(wrong), bytes(wrong)), (None, None), "{wrong}");
        }
        for wrong in ["640", "640X480", "+640x480", "x", "640x480x3", "24:00", "7:00", "ab:cd"] {
            assert_eq!((size(wrong), clock(wrong)), (None, None), "{wrong}");
        }
        for wrong in ["", "02:00", "+15:00", "é2:00", "+2"] {
            assert_eq!(offset(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_printed_is_read_back() {
        for text in ["3 ms", "90 s", "2 min", "36 h", "7 d"] {
            assert_eq!(span_text(span(text).unwrap()), text);
        }
        for text in ["3 KiB", "90 MiB", "2 GiB", "1 TiB"] {
            assert_eq!(bytes_text(bytes(text).unwrap()), text);
        }
    }
}
