//! Reading image files of the workspace: PNG, JPEG, GIF (its first picture) and WebP, within limits.
//!
//! A small file may claim to hold a picture of any size, so the size is looked at before anything is unpacked.

use std::io::Cursor;

use image::codecs::jpeg::JpegEncoder;
use image::{DynamicImage, ImageDecoder as _, ImageError, ImageFormat, ImageReader, Limits};

use crate::answer::Failure;
use crate::sent::Said;
use crate::workspace::Workspace;

/// The largest file that is read.
pub(super) const MAX_FILE_BYTES: u64 = 32 * 1024 * 1024;
/// The longest side of a picture that is unpacked.
const MAX_SIDE: u32 = 16_384;
/// The most pixels that are unpacked.
const MAX_PIXELS: u64 = 64 * 1024 * 1024;
/// The most memory that unpacking may take.
const MAX_MEMORY: u64 = 512 * 1024 * 1024;
const JPEG_QUALITY: u8 = 85;

/// An image file, looked at and not yet unpacked.
pub(super) struct ImageFile {
    pub(super) bytes: Vec<u8>,
    pub(super) format: ImageFormat,
    pub(super) width: u32,
    pub(super) height: u32,
}

impl ImageFile {
    /// Reads `given`, a path in the workspace that stands in the argument `path`, if it is what is said of it.
    pub(super) fn read(files: &Said, workspace: &Workspace, given: &str) -> Result<Self, Failure> {
        let bytes = files.open("read", "path", workspace, given)?.read(MAX_FILE_BYTES, || {
            let problem = format!("{given:?} has more bytes than the limit of {MAX_FILE_BYTES}");
            Failure::refused(problem, "split the file, or make it smaller")
        })?;
        Self::look(bytes).map_err(|why| {
            Failure::refused(
                format!("{given:?} cannot be read as an image: {why}"),
                "name a PNG, JPEG, GIF or WebP file of at most 64 million pixels",
            )
        })
    }

    /// Finds out what the bytes are by what they are, not by a name.
    pub(super) fn look(bytes: Vec<u8>) -> Result<Self, String> {
        let reader = ImageReader::new(Cursor::new(&bytes)).with_guessed_format().map_err(|error| error.to_string())?;
        let format = reader.format().filter(|format| media_type(*format).is_some()).ok_or("it is of no known kind")?;
        let (width, height) = reader.into_dimensions().map_err(|error| said(&error))?;
        if width > MAX_SIDE || height > MAX_SIDE || u64::from(width) * u64::from(height) > MAX_PIXELS {
            return Err(format!("{width} by {height} pixels are too many"));
        }
        Ok(Self { bytes, format, width, height })
    }

    /// Unpacks the picture and turns it as the camera was held.
    pub(super) fn unpack(&self) -> Result<DynamicImage, String> {
        let mut limits = Limits::default();
        limits.max_image_width = Some(MAX_SIDE);
        limits.max_image_height = Some(MAX_SIDE);
        limits.max_alloc = Some(MAX_MEMORY);
        let mut reader = ImageReader::with_format(Cursor::new(&self.bytes), self.format);
        reader.limits(limits);
        let mut decoder = reader.into_decoder().map_err(|error| said(&error))?;
        let orientation = decoder.orientation().map_err(|error| said(&error))?;
        let mut picture = DynamicImage::from_decoder(decoder).map_err(|error| said(&error))?;
        picture.apply_orientation(orientation);
        Ok(picture)
    }

    pub(super) fn media_type(&self) -> &'static str {
        media_type(self.format).unwrap_or("application/octet-stream")
    }
}

/// What is read, and what it is called.
const READ: [(ImageFormat, &str); 4] = [
    (ImageFormat::Png, "image/png"),
    (ImageFormat::Jpeg, "image/jpeg"),
    (ImageFormat::Gif, "image/gif"),
    (ImageFormat::WebP, "image/webp"),
];

/// The media type of what is read; `None` for everything else.
pub(super) fn media_type(format: ImageFormat) -> Option<&'static str> {
    READ.iter().find(|(read, _)| *read == format).map(|(_, name)| *name)
}

/// The picture as a file.
pub(super) fn pack(picture: &DynamicImage, format: ImageFormat) -> Result<Vec<u8>, String> {
    let mut packed = Cursor::new(Vec::new());
    if format == ImageFormat::Jpeg {
        // It knows no transparency.
        let opaque = DynamicImage::ImageRgb8(over_white(picture));
        opaque
            .write_with_encoder(JpegEncoder::new_with_quality(&mut packed, JPEG_QUALITY))
            .map_err(|error| said(&error))?;
    } else {
        // Lossless WebP and PNG hold 8 bits a channel here; more are of no use to look at.
        DynamicImage::ImageRgba8(picture.to_rgba8()).write_to(&mut packed, format).map_err(|error| said(&error))?;
    }
    Ok(packed.into_inner())
}

fn over_white(picture: &DynamicImage) -> image::RgbImage {
    let mut opaque = image::RgbImage::new(picture.width(), picture.height());
    let blend = |part: u8, alpha: u8| {
        let (part, alpha) = (u16::from(part), u16::from(alpha));
        u8::try_from((part * alpha + 255 * (255 - alpha)) / 255).unwrap_or(u8::MAX)
    };
    for (to, from) in opaque.pixels_mut().zip(picture.to_rgba8().pixels()) {
        let [red, green, blue, alpha] = from.0;
        *to = image::Rgb([blend(red, alpha), blend(green, alpha), blend(blue, alpha)]);
    }
    opaque
}

fn said(error: &ImageError) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_that_is_too_large_is_known_by_its_head() {
        // A PNG of 60000 by 60000 pixels in 57 bytes: signature and IHDR, nothing more.
        let mut head = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
        head.extend(60_000_u32.to_be_bytes());
        head.extend(60_000_u32.to_be_bytes());
        head.extend([8, 6, 0, 0, 0]);
        let crc = crc(head.get(12..).unwrap_or_default());
        head.extend(crc.to_be_bytes());
        head.extend(b"\0\0\0\0IDAT\x35\xaf\x06\x1e\0\0\0\0IEND\xae\x42\x60\x82");
        let refused = ImageFile::look(head).err().unwrap_or_default();
        assert!(refused.contains("60000 by 60000"), "{refused}");
    }

    fn crc(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(u32::MAX, |sum, byte| {
            (0..8).fold(sum ^ u32::from(*byte), |sum, _| if sum & 1 == 1 { (sum >> 1) ^ 0xedb8_8320 } else { sum >> 1 })
        })
    }

    #[test]
    fn transparency_becomes_white_where_a_format_has_none() {
        let clear = DynamicImage::ImageRgba8(image::RgbaImage::from_pixel(4, 4, image::Rgba([9, 9, 9, 0])));
        let packed = ImageFile::look(pack(&clear, ImageFormat::Jpeg).unwrap()).unwrap();
        assert_eq!((packed.format, packed.width), (ImageFormat::Jpeg, 4));
        assert!(packed.unpack().unwrap().to_rgb8().pixels().all(|pixel| pixel.0.iter().all(|part| *part > 250)));
    }

    #[test]
    fn what_is_no_image_is_no_image_whatever_it_is_called() {
        for bytes in [b"<svg/>".to_vec(), b"BM      ".to_vec(), Vec::new(), b"\x89PNG\r\n\x1a\n".to_vec()] {
            assert!(ImageFile::look(bytes).is_err());
        }
    }
}
