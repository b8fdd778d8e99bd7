//! A list that a server gives page by page: in all it holds no more than one message may.
//!
//! Each page is bounded as a message is. A server that always names a next one would have as many of them kept as are asked for, each as large
//! as a message, and whoever lists its tools would run out of memory. So what is kept is counted, a page that comes twice is the end, and so are
//! more pages than anybody reads. Threat S15 of `docs/security.md`. Proved by: the tests below, attack 12w.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::queue::size_of;
use crate::wire::MAX_LINE;

/// The most pages of a list that are asked for.
const MOST_PAGES: usize = 200;

/// A list, as far as its pages have come.
#[derive(Debug)]
pub struct Pages {
    what: &'static str,
    items: Vec<Value>,
    /// What is kept takes so many bytes of memory, about.
    size: usize,
    /// How many have come.
    count: usize,
    cursors: BTreeSet<String>,
}

impl Pages {
    /// The list of `what` (`tools`), of which nothing has come yet.
    pub fn of(what: &'static str) -> Self {
        Self { what, items: Vec::new(), size: 0, count: 0, cursors: BTreeSet::new() }
    }

    /// Adds a page. Returns the cursor of the next one, which is the server's own and goes back to it as it came; `None` where this was the last.
    ///
    /// # Errors
    /// There is more than is read; in words that follow the server's name.
    pub fn add(&mut self, items: Vec<Value>, next: Value) -> Result<Option<Value>, String> {
        self.count += 1;
        self.size += items.iter().map(size_of).sum::<usize>() + size_of(&next);
        if self.size > MAX_LINE {
            return Err(format!("its list of {} is longer than {MAX_LINE} bytes", self.what));
        }
        self.items.extend(items);
        // Nothing, and a text without letters, is the end.
        if matches!(next, Value::Null | Value::Bool(false)) || next == "" {
            return Ok(None);
        }
        if !self.cursors.insert(next.to_string()) {
            return Err(format!("its list of {} has no end: a page came twice", self.what));
        }
        if self.count >= MOST_PAGES {
            return Err(format!("its list of {} has more than {MOST_PAGES} pages", self.what));
        }
        Ok(Some(next))
    }

    /// What was kept.
    pub fn into_items(self) -> Vec<Value> {
        self.items
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_list_is_read_to_its_end_and_its_cursors_go_back_as_they_came() {
        let mut list = Pages::of("tools");
        assert_eq!(list.add(vec![json!("a")], json!({"at": 1})), Ok(Some(json!({"at": 1}))));
        assert_eq!(list.add(Vec::new(), json!("2")), Ok(Some(json!("2"))));
        assert_eq!(list.add(vec![json!("b")], Value::Null), Ok(None));
        assert_eq!(list.into_items(), [json!("a"), json!("b")]);
        for end in [json!(""), json!(false), Value::Null] {
            assert_eq!(Pages::of("tools").add(Vec::new(), end), Ok(None));
        }
    }

    #[test]
    fn s15_pages_without_end_are_left_before_they_fill_memory() {
        // Each page is less than a message may be, and another one.
        let page = || vec![json!({"name": "a", "description": "x".repeat(MAX_LINE / 10)})];
        let mut list = Pages::of("tools");
        let said = (0..).find_map(|number| list.add(page(), json!(number)).err()).unwrap();
        assert!(said.contains("its list of tools is longer than"), "{said}");
        assert!(list.items.len() < 10 && list.size <= 2 * MAX_LINE, "{} {}", list.items.len(), list.size);
        // Also where nothing but the cursors is large.
        let mut list = Pages::of("tools");
        let cursor = |number: usize| json!(format!("{number}{}", "x".repeat(MAX_LINE / 10)));
        let said = (0..).find_map(|number| list.add(Vec::new(), cursor(number)).err()).unwrap();
        assert!(said.contains("longer than") && list.cursors.len() < 10, "{said}");
        let mut list = Pages::of("tools");
        let said = (0..).find_map(|number| list.add(Vec::new(), json!(number)).err()).unwrap();
        assert!(said.contains(&format!("more than {MOST_PAGES} pages")), "{said}");
        let mut list = Pages::of("tools");
        assert_eq!(list.add(Vec::new(), json!("x")), Ok(Some(json!("x"))));
        assert!(list.add(Vec::new(), json!("x")).unwrap_err().contains("a page came twice"));
    }
}
