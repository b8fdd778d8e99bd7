//! How deep the elements of an HTML page are nested, found out without building the page.
//!
//! What reads a page walks its tree by recursion, so a page that is nested too deep would overflow the stack and abort
//! the process; and the parser looks through all open elements again and again, so it would never be done with
//! 200 000 of them. Here the parser runs into a sink that keeps only depths, and is stopped at the limit. Being the
//! parser itself, it knows void elements, scripts, comments and end tags that may be left out.
//!
//! Proved by: the tests below; `tests/it/wire/bad_pages.rs` for the way a refused page is reported.

use std::borrow::Cow;
use std::cell::Cell;
use std::rc::Rc;

use html5ever::interface::{ElementFlags, NodeOrText, QuirksMode, TreeSink};
use html5ever::tendril::StrTendril;
use html5ever::tokenizer::{BufferQueue, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts};
use html5ever::tree_builder::{TreeBuilder, TreeBuilderOpts};
use html5ever::{Attribute, ExpandedName, QualName, TokenizerResult, ns};

/// Whether elements of `html` are nested deeper than `limit` levels.
pub(super) fn is_deeper_than(limit: usize, html: &str) -> bool {
    let options = TreeBuilderOpts { scripting_enabled: false, ..TreeBuilderOpts::default() };
    let gauge = Gauge { limit, exceeded: Rc::default(), document: Node::new(QualName::new(None, ns!(), "".into())) };
    let exceeded = Rc::clone(&gauge.exceeded);
    let gate = Gate { builder: TreeBuilder::new(gauge, options), exceeded: Rc::clone(&exceeded) };
    let tokenizer = Tokenizer::new(gate, TokenizerOpts::default());
    let input = BufferQueue::default();
    // In pieces, so that a page that is refused costs no more than its beginning.
    for piece in pieces(html) {
        input.push_back(StrTendril::from_slice(piece));
        while !exceeded.get() {
            match tokenizer.feed(&input) {
                TokenizerResult::Done => break,
                // Scripts are not run and the encoding is known.
                TokenizerResult::Script(_) | TokenizerResult::EncodingIndicator(_) => {}
            }
        }
        if exceeded.get() {
            return true;
        }
    }
    tokenizer.end();
    exceeded.get()
}

/// The text in pieces of about 64 KiB, cut between characters.
fn pieces(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let end = (0..=text.len().min(64 * 1024)).rev().find(|end| text.is_char_boundary(*end))?;
        let (piece, rest) = text.split_at(end);
        text = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

/// Passes tokens on until the limit is exceeded.
struct Gate {
    builder: TreeBuilder<Rc<Node>, Gauge>,
    exceeded: Rc<Cell<bool>>,
}

impl TokenSink for Gate {
    type Handle = Rc<Node>;

    fn process_token(&self, token: Token, line_number: u64) -> TokenSinkResult<Rc<Node>> {
        if self.exceeded.get() {
            return TokenSinkResult::Continue;
        }
        self.builder.process_token(token, line_number)
    }

    fn end(&self) {
        self.builder.end();
    }

    fn adjusted_current_node_present_but_not_in_html_namespace(&self) -> bool {
        self.builder.adjusted_current_node_present_but_not_in_html_namespace()
    }
}

/// A node of the page: all that is kept of it.
#[derive(Debug)]
struct Node {
    name: QualName,
    depth: Cell<usize>,
}

impl Node {
    fn new(name: QualName) -> Rc<Self> {
        Rc::new(Self { name, depth: Cell::new(0) })
    }
}

/// The sink. A formatting element that the parser moves around keeps the depths below it, which is off by the few levels
/// that moving can make.
struct Gauge {
    limit: usize,
    exceeded: Rc<Cell<bool>>,
    document: Rc<Node>,
}

impl Gauge {
    fn place(&self, node: NodeOrText<Rc<Node>>, depth: usize) {
        if let NodeOrText::AppendNode(node) = node {
            node.depth.set(depth);
            if depth > self.limit {
                self.exceeded.set(true);
            }
        }
    }

    fn unnamed() -> Rc<Node> {
        Node::new(QualName::new(None, ns!(), "".into()))
    }
}

impl TreeSink for Gauge {
    type Handle = Rc<Node>;
    type Output = ();
    type ElemName<'a> = ExpandedName<'a>;

    fn finish(self) {}

    fn parse_error(&self, _message: Cow<'static, str>) {}

    fn get_document(&self) -> Rc<Node> {
        Rc::clone(&self.document)
    }

    fn elem_name<'a>(&'a self, target: &'a Rc<Node>) -> ExpandedName<'a> {
        target.name.expanded()
    }

    fn create_element(&self, name: QualName, _attributes: Vec<Attribute>, _flags: ElementFlags) -> Rc<Node> {
        Node::new(name)
    }

    fn create_comment(&self, _text: StrTendril) -> Rc<Node> {
        Self::unnamed()
    }

    fn create_pi(&self, _target: StrTendril, _data: StrTendril) -> Rc<Node> {
        Self::unnamed()
    }

    fn append(&self, parent: &Rc<Node>, child: NodeOrText<Rc<Node>>) {
        self.place(child, parent.depth.get() + 1);
    }

    fn append_based_on_parent_node(&self, element: &Rc<Node>, previous: &Rc<Node>, child: NodeOrText<Rc<Node>>) {
        self.place(child, element.depth.get().max(previous.depth.get() + 1));
    }

    fn append_doctype_to_document(&self, _name: StrTendril, _public_id: StrTendril, _system_id: StrTendril) {}

    fn get_template_contents(&self, target: &Rc<Node>) -> Rc<Node> {
        // What is in a template counts as being in the page.
        Rc::clone(target)
    }

    fn same_node(&self, one: &Rc<Node>, other: &Rc<Node>) -> bool {
        Rc::ptr_eq(one, other)
    }

    fn set_quirks_mode(&self, _mode: QuirksMode) {}

    fn append_before_sibling(&self, sibling: &Rc<Node>, node: NodeOrText<Rc<Node>>) {
        self.place(node, sibling.depth.get());
    }

    fn add_attrs_if_missing(&self, _target: &Rc<Node>, _attributes: Vec<Attribute>) {}

    fn remove_from_parent(&self, _target: &Rc<Node>) {}

    fn reparent_children(&self, _node: &Rc<Node>, _new_parent: &Rc<Node>) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_nested_counts() {
        let table = [
            ("<br>".repeat(5000), false),
            ("<p>x".repeat(5000), false),
            (format!("<ul>{}</ul>", "<li>x".repeat(5000)), false),
            (format!("<table>{}</table>", "<tr><td>x".repeat(5000)), false),
            ("<p><font size=2>x".repeat(5000), false),
            (format!("<script>{}</script>", "'<div>'+".repeat(5000)), false),
            (format!("<style>{}</style>", "<div>".repeat(5000)), false),
            (format!("<!-- {} -->", "<div>".repeat(5000)), false),
            ("<div title='<div><div>'>x</div>".repeat(5000), false),
            ("<div>".repeat(190) + &"</div>".repeat(190), false),
            ("<ul><li>".repeat(500), true),
            ("<div>".repeat(250), true),
            ("<span><div></span></div>".repeat(250), true),
            ("<div/>".repeat(250), true),
            ("<svg></p><style><!--</style>".to_owned() + &"<div>".repeat(250), true),
            ("<script><!--<script></script><!--</script>".to_owned() + &"<div>".repeat(250), true),
            (format!("<template>{}", "<i>".repeat(250)), true),
        ];
        for (html, expected) in table {
            let beginning: String = html.chars().take(60).collect();
            assert_eq!(is_deeper_than(200, &html), expected, "{beginning}");
        }
    }

    #[test]
    fn pieces_put_together_are_the_text() {
        let text = "aä€𝄞".repeat(40_000);
        assert!(pieces(&text).count() > 5);
        assert_eq!(pieces(&text).collect::<String>(), text);
    }
}
