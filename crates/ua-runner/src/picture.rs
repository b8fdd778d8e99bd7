//! Pictures as tools answer them, and as models take them.
//!
//! A server says of a picture what kind it is, and may be wrong; what it sends may be half of one, or none. A provider refuses the whole
//! request for it, and the same again after each resume. So a picture is told by its bytes, and one that is not whole, or larger than
//! providers take, stays a place in the text.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use ua_llm::MAX_IMAGE_BYTES;

/// The most pixels of a side that providers take.
const MAX_SIDE: u32 = 8_000;

/// Base64 with and without its padding.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A whole picture of a kind that models take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Picture {
    /// Its kind, `image/png` and the like.
    pub(crate) media_type: &'static str,
    /// Its bytes in Base64.
    pub(crate) data: String,
}

impl Picture {
    /// Reads what a tool answered: Base64 of either alphabet, in lines or in one, also as a `data:` address. `None` where it is no whole picture.
    pub(crate) fn read(said: &str) -> Option<Self> {
        let said = match said.trim_start().strip_prefix("data:") {
            Some(address) => address.split_once(";base64,")?.1,
            None => said,
        };
        if said.len() > MAX_IMAGE_BYTES * 2 {
            return None;
        }
        let signs = said.bytes().filter(|byte| !byte.is_ascii_whitespace()).map(|byte| match byte {
            b'-' => b'+',
            b'_' => b'/',
            byte => byte,
        });
        let bytes = LENIENT.decode(signs.collect::<Vec<u8>>()).ok()?;
        let media_type = kind_of(&bytes)?;
        let (width, height) = size_of_whole(media_type, &bytes)?;
        let is_taken = (1..=MAX_SIDE).contains(&width) && (1..=MAX_SIDE).contains(&height);
        is_taken.then(|| Self { media_type, data: STANDARD.encode(bytes) })
    }
}

/// The kind of a picture by its first bytes; `None` for those that models do not take.
pub(crate) fn kind_of(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

/// The width and the height of a picture that is there to its end.
fn size_of_whole(media_type: &str, bytes: &[u8]) -> Option<(u32, u32)> {
    match media_type {
        "image/png" => png(bytes),
        "image/jpeg" => jpeg(bytes),
        "image/gif" => {
            (bytes.last() == Some(&0x3b)).then(|| Some((little(bytes, 6, 2)?, little(bytes, 8, 2)?))).flatten()
        }
        _ => webp(bytes),
    }
}

fn big(bytes: &[u8], at: usize, count: usize) -> Option<u32> {
    let number = bytes.get(at..at.checked_add(count)?)?;
    Some(number.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte)))
}

fn little(bytes: &[u8], at: usize, count: usize) -> Option<u32> {
    let number = bytes.get(at..at.checked_add(count)?)?;
    Some(number.iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte)))
}

/// Chunks up to the one that ends it, the first of which has the size.
fn png(bytes: &[u8]) -> Option<(u32, u32)> {
    let mut at = 8;
    let (mut size, mut has_pixels) = (None, false);
    loop {
        let length = usize::try_from(big(bytes, at, 4)?).ok()?;
        // Its length, its name and its checksum.
        let end = at.checked_add(12)?.checked_add(length)?;
        let name = bytes.get(at + 4..at + 8).filter(|_| end <= bytes.len())?;
        match name {
            b"IHDR" => size = Some((big(bytes, at + 8, 4)?, big(bytes, at + 12, 4)?)),
            b"IDAT" => has_pixels = true,
            b"IEND" => return size.filter(|_| has_pixels),
            _ => {}
        }
        at = end;
    }
}

/// Segments up to the one with the size; the last bytes say whether it is whole.
fn jpeg(bytes: &[u8]) -> Option<(u32, u32)> {
    // Some writers fill up what is behind the end.
    let is_whole = bytes.windows(2).rev().take(4_096).any(|pair| pair == [0xff, 0xd9]);
    let mut at = 2;
    loop {
        let marker = *bytes.get(at + 1).filter(|_| is_whole && bytes.get(at) == Some(&0xff))?;
        match marker {
            0xff => at += 1,
            // These have no length.
            0x01 | 0xd0..=0xd8 => at += 2,
            0xc0..=0xcf if !matches!(marker, 0xc4 | 0xc8 | 0xcc) => {
                return Some((big(bytes, at + 7, 2)?, big(bytes, at + 5, 2)?));
            }
            0xd9 | 0xda => return None,
            _ => at = at.checked_add(2)?.checked_add(usize::try_from(big(bytes, at + 2, 2)?).ok()?)?,
        }
    }
}

/// The size that the container says is there, and the size of the picture in each of its three forms.
fn webp(bytes: &[u8]) -> Option<(u32, u32)> {
    let said = usize::try_from(little(bytes, 4, 4)?).ok()?;
    let is_whole = said.checked_add(8)? <= bytes.len();
    match bytes.get(12..16).filter(|_| is_whole)? {
        b"VP8X" => Some((little(bytes, 24, 3)? + 1, little(bytes, 27, 3)? + 1)),
        b"VP8L" => {
            let packed = little(bytes, 21, 4)?;
            Some(((packed & 0x3fff) + 1, (packed >> 14 & 0x3fff) + 1))
        }
        b"VP8 " => Some((little(bytes, 26, 2)? & 0x3fff, little(bytes, 28, 2)? & 0x3fff)),
        _ => None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A picture of this many pixels. Nobody looks at them.
    pub(crate) fn png_of(width: u32, height: u32) -> Vec<u8> {
        let chunk = |name: &[u8; 4], data: &[u8]| {
            let length = u32::try_from(data.len()).unwrap().to_be_bytes();
            [&length[..], name, data, &[0; 4]].concat()
        };
        let header = [&width.to_be_bytes()[..], &height.to_be_bytes(), &[8, 6, 0, 0, 0]].concat();
        let chunks = [chunk(b"IHDR", &header), chunk(b"IDAT", b"pixels"), chunk(b"IEND", b"")];
        [&b"\x89PNG\r\n\x1a\n"[..], &chunks.concat()].concat()
    }

    fn jpeg_of(width: u16, height: u16) -> Vec<u8> {
        let size = [&height.to_be_bytes()[..], &width.to_be_bytes()].concat();
        let frame = [&[0xff, 0xc0, 0, 11, 8][..], &size, &[1, 1, 0x11, 0]].concat();
        [&[0xff, 0xd8, 0xff, 0xe0, 0, 4, 0, 0][..], &frame, &[0xff, 0xda, 0, 2, 1, 2, 3, 0xff, 0xd9]].concat()
    }

    fn gif_of(width: u16, height: u16) -> Vec<u8> {
        [&b"GIF89a"[..], &width.to_le_bytes(), &height.to_le_bytes(), &[0, 0, 0, 0x2c, 0, 0x3b]].concat()
    }

    fn webp_of(width: u32, height: u32) -> Vec<u8> {
        let side = |side: u32| (side - 1).to_le_bytes()[..3].to_vec();
        let data = [&b"WEBPVP8X\x0a\0\0\0\0\0\0\0"[..], &side(width), &side(height)].concat();
        [&b"RIFF"[..], &u32::try_from(data.len()).unwrap().to_le_bytes(), &data].concat()
    }

    #[test]
    fn a_whole_picture_is_told_by_its_bytes_and_any_part_of_one_is_none() {
        for (bytes, kind) in [
            (png_of(3, 2), "image/png"),
            (jpeg_of(3, 2), "image/jpeg"),
            (gif_of(3, 2), "image/gif"),
            (webp_of(3, 2), "image/webp"),
        ] {
            assert_eq!(size_of_whole(kind, &bytes), Some((3, 2)), "{kind}");
            let encoded = STANDARD.encode(&bytes);
            let picture = Picture::read(&encoded).unwrap();
            assert_eq!((picture.media_type, &picture.data), (kind, &encoded));
            for length in 0..bytes.len() {
                assert_eq!(Picture::read(&STANDARD.encode(&bytes[..length])), None, "{kind}: the first {length} bytes");
            }
        }
    }

    #[test]
    fn what_is_larger_than_providers_take_is_none() {
        for (width, height, is_taken) in
            [(1, 1, true), (8_000, 8_000, true), (1, 9_000, false), (9_000, 1, false), (0, 1, false)]
        {
            let bytes = png_of(width, height);
            assert_eq!(Picture::read(&STANDARD.encode(bytes)).is_some(), is_taken, "{width} x {height}");
        }
        for nothing in ["", "AAAA", "not base64!", "data:image/png,x", "iVBORw0KGgo="] {
            assert_eq!(Picture::read(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn base64_is_read_however_it_is_written() {
        let encoded = STANDARD.encode(png_of(3, 2));
        let lines = encoded.as_bytes().chunks(20).map(|line| String::from_utf8_lossy(line).into_owned());
        for said in [
            lines.collect::<Vec<_>>().join("\r\n"),
            encoded.replace('+', "-").replace('/', "_"),
            encoded.trim_end_matches('=').to_owned(),
            format!("data:image/jpeg;base64,{encoded}"),
        ] {
            assert_eq!(Picture::read(&said).unwrap().data, encoded, "{said}");
        }
    }
}
