//! What an HTML page asks of its reader, found out without building the page.
//!
//! What reads a page walks its tree by recursion, so a page that is nested too deep would overflow the stack and abort
//! the process; and the parser looks through all open elements again and again, so it would never be done with
//! 200 000 of them. It also compares each attribute of an element with all others, so that one element with a million of them takes hours.
//! Here the parser runs into a sink that keeps only depths and numbers, and is stopped at the limit. Being the
//! parser itself, it knows void elements, scripts, comments and end tags that may be left out. Inside a tag it says nothing until the tag
//! ends: there the signs are counted behind which an attribute may begin.
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

/// What a page may ask for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Levels of elements within one another.
    pub(super) levels: usize,
    /// Elements in all.
    pub(super) elements: usize,
    /// Times that an attribute is compared with another one.
    pub(super) comparisons: u64,
}

/// What a page asks too much of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Excess {
    Levels,
    Elements,
    Attributes,
}

/// What `html` asks for beyond `limits`, if anything. It costs no more than the page up to there.
pub(super) fn excess_of(html: &str, limits: Limits) -> Option<Excess> {
    let options = TreeBuilderOpts { scripting_enabled: false, ..TreeBuilderOpts::default() };
    let count = Rc::new(Count::of(limits));
    let gauge = Gauge { count: Rc::clone(&count), document: Node::new(QualName::new(None, ns!(), "".into())) };
    let gate = Gate { builder: TreeBuilder::new(gauge, options), count: Rc::clone(&count) };
    let tokenizer = Tokenizer::new(gate, TokenizerOpts::default());
    let input = BufferQueue::default();
    // Signs behind which an attribute may begin, since the parser said something.
    let mut signs = 0;
    // In pieces, so that a page that is refused costs no more than its beginning.
    for piece in pieces(html) {
        let said = count.tokens.get();
        input.push_back(StrTendril::from_slice(piece));
        while count.excess.get().is_none() {
            match tokenizer.feed(&input) {
                TokenizerResult::Done => break,
                // Scripts are not run and the encoding is known.
                TokenizerResult::Script(_) | TokenizerResult::EncodingIndicator(_) => {}
            }
        }
        if count.tokens.get() == said {
            signs += piece
                .bytes()
                .filter(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 12 | b'/' | b'"' | b'\''))
                .count();
            if pairs(signs) > count.comparisons.get() {
                return Some(Excess::Attributes);
            }
        } else {
            signs = 0;
        }
        if count.excess.get().is_some() {
            return count.excess.get();
        }
    }
    tokenizer.end();
    count.excess.get()
}

/// How often so many things are compared when each is compared with all before it.
fn pairs(things: usize) -> u64 {
    let things = things as u64;
    things.saturating_mul(things) / 2
}

/// What a page has asked for yet.
#[derive(Debug)]
struct Count {
    excess: Cell<Option<Excess>>,
    levels: usize,
    /// Left over.
    elements: Cell<usize>,
    /// Left over.
    comparisons: Cell<u64>,
    /// What the parser has said.
    tokens: Cell<u64>,
    /// Attributes that were added to elements which were there already.
    added: Cell<usize>,
}

impl Count {
    fn of(limits: Limits) -> Self {
        Self {
            excess: Cell::default(),
            levels: limits.levels,
            elements: Cell::new(limits.elements),
            comparisons: Cell::new(limits.comparisons),
            tokens: Cell::default(),
            added: Cell::default(),
        }
    }

    fn compare(&self, comparisons: u64) {
        match self.comparisons.get().checked_sub(comparisons) {
            Some(left) => self.comparisons.set(left),
            None => self.excess.set(Some(Excess::Attributes)),
        }
    }

    fn one_more_element(&self) {
        match self.elements.get().checked_sub(1) {
            Some(left) => self.elements.set(left),
            None => self.excess.set(Some(Excess::Elements)),
        }
    }
}

/// The text in pieces of about 4 KiB, cut between characters.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    pieces_of(text, 4 * 1024)
}

/// The text in pieces of at most so many bytes (four at least), cut between characters.
pub(super) fn pieces_of(mut text: &str, most: usize) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let end = (0..=text.len().min(most)).rev().find(|end| text.is_char_boundary(*end))?;
        let (piece, rest) = text.split_at(end);
        text = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

/// Passes tokens on until a limit is exceeded.
struct Gate {
    builder: TreeBuilder<Rc<Node>, Gauge>,
    count: Rc<Count>,
}

impl TokenSink for Gate {
    type Handle = Rc<Node>;

    fn process_token(&self, token: Token, line_number: u64) -> TokenSinkResult<Rc<Node>> {
        match &token {
            // The parser says what is wrong with a tag while it is in it.
            Token::ParseError(_) => {}
            Token::TagToken(tag) => {
                self.count.tokens.set(self.count.tokens.get() + 1);
                self.count.compare(pairs(tag.attrs.len()));
            }
            Token::DoctypeToken(_)
            | Token::CommentToken(_)
            | Token::CharacterTokens(_)
            | Token::NullCharacterToken
            | Token::EOFToken => {
                self.count.tokens.set(self.count.tokens.get() + 1);
            }
        }
        if self.count.excess.get().is_some() {
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
    count: Rc<Count>,
    document: Rc<Node>,
}

impl Gauge {
    fn place(&self, node: NodeOrText<Rc<Node>>, depth: usize) {
        if let NodeOrText::AppendNode(node) = node {
            node.depth.set(depth);
            if depth > self.count.levels {
                self.count.excess.set(Some(Excess::Levels));
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
        self.count.one_more_element();
        Node::new(name)
    }

    fn create_comment(&self, _text: StrTendril) -> Rc<Node> {
        self.count.one_more_element();
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

    /// A second `<body …>` adds to the first: each time all that are there are looked through.
    fn add_attrs_if_missing(&self, _target: &Rc<Node>, attributes: Vec<Attribute>) {
        let added = self.count.added.get() + attributes.len();
        self.count.added.set(added);
        self.count.compare(added as u64);
    }

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
            let limits = Limits { levels: 200, ..super::super::page::LIMITS };
            assert_eq!(excess_of(&html, limits), expected.then_some(Excess::Levels), "{beginning}");
        }
    }

    #[test]
    fn what_is_compared_with_each_other_is_paid_for() {
        let attributes = |many: usize| (0..many).map(|n| format!("a{n}=1 ")).collect::<Vec<_>>().concat();
        let limits = Limits { levels: 200, elements: 10_000, comparisons: 1_000_000 };
        let table = [
            (format!("<a {}>x</a>", attributes(1000)), None),
            (format!("<p>x<a {}>x</a>", attributes(100_000)), Some(Excess::Attributes)),
            // A tag that never ends, and one in which nothing stands between attributes.
            (format!("<p>x<a {}", attributes(100_000)), Some(Excess::Attributes)),
            (format!("<p>x<a {}", attributes(100_000).replace(' ', "/")), Some(Excess::Attributes)),
            (format!("<p>x<a {}", attributes(100_000).replace("=1 ", "='1'")), Some(Excess::Attributes)),
            (format!("<a {}>", attributes(300)).repeat(100), Some(Excess::Attributes)),
            (format!("<body {}>", attributes(3)).repeat(1000), Some(Excess::Attributes)),
            ((0..5000).map(|n| format!("<body a{n}>")).collect::<Vec<_>>().concat(), Some(Excess::Attributes)),
            ("<p>x".repeat(20_000), Some(Excess::Elements)),
            ("<!---->".repeat(20_000), Some(Excess::Elements)),
            // Much text in one piece is none of these.
            (format!("<img src='data:image/png;base64,{}'>", "aGk".repeat(100_000)), None),
            (format!("<p>{}</p>", "word ".repeat(100_000)), None),
            (format!("<script>{}</script>", "if (a <b ) ".repeat(100_000)), None),
            (format!("<!--{}-->", "x".repeat(100_000)), None),
        ];
        for (html, expected) in table {
            let beginning: String = html.chars().take(60).collect();
            assert_eq!(excess_of(&html, limits), expected, "{beginning}");
        }
    }

    #[test]
    fn pieces_put_together_are_the_text() {
        let text = "aä€𝄞".repeat(4_000);
        assert!(pieces(&text).count() > 5);
        assert_eq!(pieces(&text).collect::<String>(), text);
    }
}
