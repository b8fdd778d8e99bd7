//! The smallest renderer that makes a PDF: the Markdown as it is, line by line, on one page.
//!
//! What `render_pdf` does with files, images and its answer does not depend on the layout. With this one the tests of the tool server need no
//! layout engine; what `ua-pdf` lays out is tested there, with this server around it.

use std::fmt::Write as _;

use ua_pdf::{PdfError, PdfOptions, Rendered, limits};

/// A [`ua_pdf::Renderer`].
pub(crate) fn render(markdown: &str, options: &PdfOptions<'_>) -> Result<Rendered, PdfError> {
    if markdown.len() > limits::MARKDOWN_BYTES {
        return Err(PdfError::TooLarge { bytes: markdown.len(), limit: limits::MARKDOWN_BYTES });
    }
    let mut images = 0;
    for (at, line) in markdown.lines().enumerate() {
        if let Some((_, rest)) = line.split_once("](") {
            let reference = rest.split(')').next().unwrap_or_default();
            (options.images)(reference).map_err(|problem| PdfError::Image {
                reference: reference.to_owned(),
                line: at + 1,
                problem,
            })?;
            images += 1;
        }
    }
    let mut page = String::from("BT /F1 11 Tf 14 TL 50 780 Td\n");
    for line in markdown.lines() {
        let plain: String = line.chars().filter(|c| c.is_ascii() && !"()\\".contains(*c)).collect();
        writeln!(page, "({plain}) '").map_err(|error| PdfError::Renderer { problem: error.to_string() })?;
    }
    page.push_str("ET");
    let objects = [
        "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>".to_owned(),
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R /Resources << /Font << /F1 5 0 R >> >> >>"
            .to_owned(),
        format!("<< /Length {} >>\nstream\n{page}\nendstream", page.len()),
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>".to_owned(),
    ];
    let (mut pdf, mut table) = (String::from("%PDF-1.4\n"), String::from("0000000000 65535 f \n"));
    for (number, object) in objects.iter().enumerate() {
        table.push_str(&format!("{:010} 00000 n \n", pdf.len()));
        pdf.push_str(&format!("{} 0 obj\n{object}\nendobj\n", number + 1));
    }
    let at = pdf.len();
    pdf.push_str(&format!("xref\n0 6\n{table}trailer\n<< /Size 6 /Root 1 0 R >>\nstartxref\n{at}\n%%EOF\n"));
    Ok(Rendered {
        pdf: pdf.into_bytes(),
        pages: 1,
        title: options.title.clone(),
        images,
        missing_glyphs: Vec::new(),
        warnings: Vec::new(),
    })
}
