//! The images of a document: found once, checked, and kept under names of our own.

use std::collections::BTreeMap;

use typst::foundations::Bytes;
use typst::visualize::{ExchangeFormat, RasterImage, SvgImage};

use crate::error::PdfError;
use crate::limits;

/// Where the bytes of an image come from, as in [`PdfOptions`](crate::PdfOptions).
pub(crate) type Find<'a> = &'a dyn Fn(&str) -> Result<Vec<u8>, String>;

/// The images met so far.
pub(crate) struct Images<'a> {
    find: Find<'a>,
    /// From what the Markdown says to the index in `files`.
    known: BTreeMap<String, usize>,
    files: Vec<(String, Bytes)>,
    bytes: usize,
    pixels: usize,
}

impl<'a> Images<'a> {
    pub(crate) fn new(find: Find<'a>) -> Self {
        Self { find, known: BTreeMap::new(), files: Vec::new(), bytes: 0, pixels: 0 }
    }

    /// The path of the image for the layout.
    pub(crate) fn path(&mut self, reference: &str, line: usize) -> Result<&str, PdfError> {
        let index = if let Some(index) = self.known.get(reference) {
            *index
        } else {
            let failed = |problem| PdfError::Image { reference: reference.to_owned(), line, problem };
            let file = self.load(reference).map_err(failed)?;
            self.files.push(file);
            let index = self.files.len() - 1;
            self.known.insert(reference.to_owned(), index);
            index
        };
        Ok(&self.files[index].0)
    }

    /// How many different images there are.
    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    /// The files by path.
    pub(crate) fn into_files(self) -> Vec<(String, Bytes)> {
        self.files
    }

    fn load(&mut self, reference: &str) -> Result<(String, Bytes), String> {
        if self.files.len() == limits::IMAGES {
            return Err(format!("the document has more than {} images", limits::IMAGES));
        }
        let bytes = (self.find)(reference)?;
        if bytes.len() > limits::IMAGE_BYTES {
            return Err(format!("it is larger than {} MiB", limits::IMAGE_BYTES >> 20));
        }
        self.bytes += bytes.len();
        if self.bytes > limits::ALL_IMAGE_BYTES {
            return Err(format!("the images are larger than {} MiB together", limits::ALL_IMAGE_BYTES >> 20));
        }
        let format = Format::of(&bytes).ok_or("it is not a PNG, JPEG, GIF, WebP or SVG")?;
        if format != Format::Svg {
            let size = imagesize::blob_size(&bytes).map_err(|error| format!("its size cannot be read: {error}"))?;
            let pixels = size.width.saturating_mul(size.height);
            if pixels > limits::IMAGE_PIXELS {
                return Err(format!("it has {} by {} pixels, which is too much", size.width, size.height));
            }
            self.pixels += pixels;
            if self.pixels > limits::ALL_IMAGE_PIXELS {
                return Err("the images have too many pixels together".to_owned());
            }
        }
        // The layout decodes it too, and keeps the result; but here it is still known what the image is called.
        let bytes = Bytes::new(bytes);
        let raster = |format| RasterImage::plain(bytes.clone(), format).map(drop).map_err(|error| error.to_string());
        match format {
            Format::Png => raster(ExchangeFormat::Png),
            Format::Jpeg => raster(ExchangeFormat::Jpg),
            Format::Gif => raster(ExchangeFormat::Gif),
            Format::WebP => raster(ExchangeFormat::Webp),
            Format::Svg => SvgImage::new(bytes.clone()).map(drop).map_err(|_| "it is not a valid SVG".to_owned()),
        }?;
        // The layout knows files by path for the life of the process, so the names are few and always the same.
        Ok((format!("/image-{}.{}", self.files.len(), format.extension()), bytes))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Png,
    Jpeg,
    Gif,
    WebP,
    Svg,
}

impl Format {
    /// What the bytes are; names may lie.
    fn of(bytes: &[u8]) -> Option<Self> {
        if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
            Some(Self::Png)
        } else if bytes.starts_with(b"\xff\xd8\xff") {
            Some(Self::Jpeg)
        } else if bytes.starts_with(b"GIF8") {
            Some(Self::Gif)
        } else if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
            Some(Self::WebP)
        } else {
            let start = bytes.get(..bytes.len().min(4096))?;
            let start = String::from_utf8_lossy(start);
            let is_xml = start.trim_start_matches('\u{feff}').trim_start().starts_with('<');
            (is_xml && start.contains("<svg")).then_some(Self::Svg)
        }
    }

    fn extension(self) -> &'static str {
        match self {
            Self::Png => "png",
            Self::Jpeg => "jpg",
            Self::Gif => "gif",
            Self::WebP => "webp",
            Self::Svg => "svg",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_say_what_an_image_is() {
        assert_eq!(Format::of(b"\x89PNG\r\n\x1a\nrest"), Some(Format::Png));
        assert_eq!(Format::of(b"RIFF\0\0\0\0WEBPVP8 "), Some(Format::WebP));
        assert_eq!(Format::of(b"\n<?xml version=\"1.0\"?>\n<svg/>"), Some(Format::Svg));
        assert_eq!(Format::of(b"<html></html>"), None);
        assert_eq!(Format::of(b""), None);
    }

    #[test]
    fn an_image_is_found_once_however_often_it_is_shown() {
        let asked = std::cell::Cell::new(0);
        let find = |_: &str| {
            asked.set(asked.get() + 1);
            Ok(b"<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>".to_vec())
        };
        let mut images = Images::new(&find);
        assert_eq!(images.path("a.svg", 1).unwrap(), "/image-0.svg");
        assert_eq!(images.path("b.svg", 1).unwrap(), "/image-1.svg");
        assert_eq!(images.path("a.svg", 2).unwrap(), "/image-0.svg");
        assert_eq!((asked.get(), images.into_files().len()), (2, 2));
    }

    #[test]
    fn large_images_are_refused_before_they_are_decoded() {
        let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
        png.extend(60_000_u32.to_be_bytes());
        png.extend(60_000_u32.to_be_bytes());
        png.extend([8, 2, 0, 0, 0, 0, 0, 0, 0]);
        let find = move |_: &str| Ok(png.clone());
        let error = Images::new(&find).path("bomb.png", 7).unwrap_err().to_string();
        assert_eq!(
            error,
            "the image \"bomb.png\" in line 7 cannot be shown: it has 60000 by 60000 pixels, which is too much"
        );
    }
}
