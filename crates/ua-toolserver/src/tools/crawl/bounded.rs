//! A page in a form whose reading costs about as much as it is long.
//!
//! What finds the article in a page writes it out as HTML, and html5ever's serializer (0.40.1, `write_escaped`) looks from each `&` and each
//! byte 0xC2 of a text to the next `<` or `>` of the same text: a text of 300 kB without one costs minutes. It also compares the title of
//! the page with each heading. So texts are cut into pieces, which are one text again when the article is read; attributes that would
//! cost too much are left out; and where there are many headings, what may be the title is cut. Proved by: the tests below;
//! `page`'s `four_times_as_long_a_page_costs_about_four_times_as_much`.

use dom_query::{Document as Tree, NodeData};

use super::depth::pieces_of;

/// The longest piece of a text, in bytes.
const PIECE: usize = 1024;
/// The most that one attribute may cost, in bytes that are looked at: one of 2000 bytes may consist of nothing else than such signs.
const MOST_FOR_ATTRIBUTE: usize = 4_000_000;
/// The most that comparing the title with headings may cost, in bytes.
const MOST_FOR_TITLE: usize = 2_000_000;
/// The longest title of a page with more headings than that, in bytes; titles of pages that people write are shorter.
const TITLE: usize = 300;

/// The document of a page.
pub(super) fn bounded(html: &str) -> Tree {
    let document = Tree::from(html);
    // A tree of its own each, whose texts are not among those below; no reader shows it.
    document.select("template").remove();
    bound_title(&document);
    bound_texts(&document);
    document
}

fn bound_texts(document: &Tree) {
    for node in document.root().descendants() {
        let costly: Vec<String> = node.element_ref().map_or_else(Vec::new, |element| {
            let costly = element.attrs.iter().filter(|attribute| cost_of(&attribute.value, true) > MOST_FOR_ATTRIBUTE);
            costly.map(|attribute| attribute.name.local.to_string()).collect()
        });
        for name in costly {
            node.remove_attr(&name);
        }
        let text = node.query(|node| match &node.data {
            NodeData::Text { contents } if contents.len() > PIECE => Some(contents.to_string()),
            NodeData::Text { .. }
            | NodeData::Document
            | NodeData::Fragment
            | NodeData::Doctype { .. }
            | NodeData::Comment { .. }
            | NodeData::Element(_)
            | NodeData::ProcessingInstruction { .. } => None,
        });
        let Some(text) = text.flatten() else { continue };
        for piece in pieces_of(&text, PIECE) {
            node.insert_before(&document.tree.new_text(piece));
        }
        node.remove_from_parent();
    }
}

/// How many bytes are looked at when a text is written out, at most.
fn cost_of(text: &str, is_attribute: bool) -> usize {
    let ends = |byte: &u8| matches!(byte, b'<' | b'>') || (is_attribute && *byte == b'"');
    let parts = text.as_bytes().split(ends);
    parts.map(|part| part.len() * part.iter().filter(|byte| matches!(byte, b'&' | 0xC2)).count()).sum()
}

/// Cuts what may be the title, where it would be compared with so many headings.
fn bound_title(document: &Tree) {
    let headings = document.select("h1,h2").length();
    let titles = document.select("title");
    let metas = document.select("meta[content]");
    let data = document.select("script[type*=\"ld+json\" i]");
    let longest = |lengths: &mut dyn Iterator<Item = usize>| lengths.max().unwrap_or_default();
    let length = longest(&mut titles.nodes().iter().map(|node| node.text().len()))
        .max(longest(&mut metas.nodes().iter().map(|node| node.attr_or("content", "").len())))
        .max(longest(&mut data.nodes().iter().map(|node| node.text().len())));
    if headings.saturating_mul(length) <= MOST_FOR_TITLE {
        return;
    }
    let cut = |text: &str| pieces_of(text, TITLE).next().unwrap_or_default().to_owned();
    for title in titles.nodes() {
        title.set_text(cut(&title.text()));
    }
    for meta in metas.nodes() {
        meta.set_attr("content", &cut(&meta.attr_or("content", "")));
    }
    data.remove();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What writing out all texts and attributes of a page would cost.
    fn cost(document: &Tree) -> usize {
        let of_node = |node: dom_query::NodeRef<'_>| {
            let attributes: usize = node.attrs().iter().map(|attribute| cost_of(&attribute.value, true)).sum();
            attributes + if node.is_text() { cost_of(&node.text(), false) } else { 0 }
        };
        document.root().descendants().into_iter().map(of_node).sum()
    }

    #[test]
    fn what_a_page_costs_grows_with_its_length_and_not_faster() {
        let shapes: [&dyn Fn(usize) -> String; 5] = [
            &|of| "&amp;".repeat(of / 5),
            &|of| format!("<pre>{}</pre>", "&amp;lt; \n".repeat(of / 10)),
            &|of| format!("<p>{}</p>", "a\u{a0}".repeat(of / 3)),
            &|of| format!("<p><a href=\"{}\">x</a></p>", "&amp;".repeat(of / 5)),
            &|of| format!("<template><p>{}</p></template>x", "&amp;".repeat(of / 5)),
        ];
        for (nth, shape) in shapes.iter().enumerate() {
            for of in [1_000, 30_000, 300_000] {
                let html = shape(of);
                let found = cost(&bounded(&html));
                assert!(found <= 2 * PIECE * html.len(), "{nth}: {of}: {found}");
            }
        }
    }

    #[test]
    fn the_page_says_the_same_in_pieces() {
        let text = "a b&amp;c ä\u{a0}€ \n".repeat(500);
        let html = format!(
            "<html><head><title>x</title></head><body><p title=\"&amp;\">{text}</p><pre>{text}</pre><a href=\"/x?a=1&amp;b=2\">l</a></body></html>"
        );
        let (plain, cut) = (Tree::from(html.as_str()), bounded(&html));
        assert!(cut.root().descendants().len() > plain.root().descendants().len() + 5);
        assert_eq!(cut.html(), plain.html());
        assert_eq!(cut.text(), plain.text());
    }

    #[test]
    fn a_title_is_cut_only_where_it_would_be_compared_with_many_headings() {
        let title = "word ".repeat(2000);
        let page = |headings: usize| {
            format!(
                "<head><title>{title}</title><meta name=description content=\"{title}\"><script type=\"application/ld+json\">{{}}</script></head>{}",
                "<h2>x</h2>".repeat(headings)
            )
        };
        let lengths = |document: &Tree| {
            let title = document.select("title").text().len();
            (title, document.select("meta").attr_or("content", "").len(), document.select("script").length())
        };
        assert_eq!(lengths(&bounded(&page(10))), (title.len(), title.len(), 1));
        assert_eq!(lengths(&bounded(&page(3000))), (TITLE, TITLE, 0));
    }
}
