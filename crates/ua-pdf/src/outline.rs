//! The title of a document, and its headings as targets of links.

use std::collections::BTreeMap;

use crate::document::{Block, BlockKind, Document, Inline, plain};

/// What is known about a document before it is written.
#[derive(Debug)]
pub(crate) struct Outline {
    /// The title in the metadata.
    pub(crate) title: Option<String>,
    /// What stands in the title block; nothing when there is none.
    pub(crate) shown_title: Vec<Inline>,
    /// Whether the first heading became the title block and is taken out of the body.
    pub(crate) has_lead: bool,
    /// How much headings rise, so that the highest ones of the body have level 1.
    pub(crate) rise: usize,
    /// The number of the heading that an anchor names.
    anchors: BTreeMap<String, usize>,
}

impl Outline {
    /// Takes the title out of `document`; `given` is the one from the options.
    pub(crate) fn take(document: &mut Document, given: Option<String>) -> Self {
        let mut anchors = BTreeMap::new();
        let mut headings = Vec::new();
        collect(&document.blocks, &mut headings);
        // Where the search for a free name continues, by the words.
        let mut next: BTreeMap<String, usize> = BTreeMap::new();
        for (number, (_, text)) in headings.iter().enumerate() {
            let slug = slug(text);
            // There are fewer anchors than headings before this one, so one of these names is free. None becomes free again, so a heading of the
            // same words is looked for behind the name that the one before it got.
            let from = next.entry(slug.clone()).or_insert(0_usize);
            let name = |count: usize| if count == 0 { slug.clone() } else { format!("{slug}-{count}") };
            let free = (*from..=number).find(|count| !anchors.contains_key(&name(*count)));
            *from = free.map_or(*from, |count| count + 1);
            let free = free.map(name);
            anchors.extend(free.map(|slug| (slug, number)));
        }

        let lead = match document.blocks.first() {
            Some(Block { kind: BlockKind::Heading(1, content), .. }) => Some(plain(content).trim().to_owned()),
            Some(_) | None => None,
        };
        let given = [given, document.front.title.take()]
            .into_iter()
            .flatten()
            .map(|title| title.trim().to_owned())
            .find(|title| !title.is_empty());
        let first = headings.iter().find(|(level, text)| *level == 1 && !text.trim().is_empty());
        let title = given.clone().or_else(|| first.map(|(_, text)| text.trim().to_owned()));

        let has_lead = lead.is_some() && lead == title;
        let mut shown_title: Vec<Inline> = given.map(Inline::Text).into_iter().collect();
        if has_lead && let BlockKind::Heading(_, content) = document.blocks.remove(0).kind {
            shown_title = content;
        }
        let body = headings.iter().skip(usize::from(has_lead));
        let rise = body.map(|(level, _)| *level).min().unwrap_or(1) - 1;
        Self { title, shown_title, has_lead, rise, anchors }
    }

    /// The number of the heading that `anchor`, without its `#`, names.
    pub(crate) fn heading(&self, anchor: &str) -> Option<usize> {
        self.anchors.get(&anchor.to_lowercase()).copied()
    }
}

/// The levels and texts of the headings, in the order of the document.
fn collect(blocks: &[Block], headings: &mut Vec<(usize, String)>) {
    for block in blocks {
        match &block.kind {
            BlockKind::Heading(level, content) => headings.push((*level, plain(content))),
            BlockKind::Quote(_, blocks) => collect(blocks, headings),
            BlockKind::List(list) => list.items.iter().for_each(|item| collect(&item.blocks, headings)),
            BlockKind::Paragraph(_) | BlockKind::Code(..) | BlockKind::Table(_) | BlockKind::Rule => {}
        }
    }
}

/// The anchor that GitHub gives a heading.
fn slug(text: &str) -> String {
    text.trim()
        .to_lowercase()
        .chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            '-' | '_' => Some(c),
            c => c.is_alphanumeric().then_some(c),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::read;

    fn outline(markdown: &str, given: Option<&str>) -> Outline {
        Outline::take(&mut read(markdown).unwrap(), given.map(str::to_owned))
    }

    #[test]
    fn the_title_comes_from_the_options_the_front_matter_or_the_first_heading() {
        let title = |markdown, given| {
            let outline = outline(markdown, given);
            (outline.title.unwrap_or_default(), plain(&outline.shown_title), outline.has_lead)
        };
        let told = |title: &str, shown: &str, has_lead| (title.to_owned(), shown.to_owned(), has_lead);
        assert_eq!(title("# A *b*\n", None), told("A b", "A b", true));
        assert_eq!(title("# A\n", Some("A")), told("A", "A", true));
        assert_eq!(title("# A\n", Some("B")), told("B", "B", false));
        assert_eq!(title("---\ntitle: T\n---\n# A\n", None), told("T", "T", false));
        assert_eq!(title("---\ntitle: T\n---\n# A\n", Some("O")), told("O", "O", false));
        assert_eq!(title("text\n\n# A\n", None), told("A", "", false));
        assert_eq!(title("## A\n", Some(" ")), told("", "", false));
    }

    #[test]
    fn headings_rise_to_the_place_of_the_title() {
        assert_eq!(outline("# T\n\n## A\n\n### B\n", None).rise, 1);
        assert_eq!(outline("# T\n\n# A\n\n### B\n", None).rise, 0);
        assert_eq!(outline("text", None).rise, 0);
    }

    #[test]
    fn anchors_are_those_of_github() {
        let outline = outline("# T\n\n## What's *left*?\n\n## Same\n\n> ## Same\n", None);
        assert_eq!(outline.heading("whats-left"), Some(1));
        assert_eq!(outline.heading("same"), Some(2));
        assert_eq!(outline.heading("Same-1"), Some(3));
        assert_eq!(outline.heading("gone"), None);
    }

    #[test]
    fn headings_of_the_same_words_are_named_in_one_pass() {
        let outline = outline(&"# a\n".repeat(20_000), None);
        assert_eq!((outline.heading("a"), outline.heading("a-19999")), (Some(0), Some(19_999)));
        // A name that is taken by other words is left to them.
        let outline = super::tests::outline("# a\n# a-1\n# a\n# a\n", None);
        let named = |anchor| outline.heading(anchor);
        assert_eq!([named("a"), named("a-1"), named("a-2"), named("a-3")], [Some(0), Some(1), Some(2), Some(3)]);
    }
}
