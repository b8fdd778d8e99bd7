//! What macros of a crate make: a source with each use of one written out as the items that come of it.
//!
//! A macro counts that makes a type: at the margin, with one arm, in whose body a `pub struct $name` or `pub enum $name` stands. It is read like
//! the rest, by its lines, so a method that is added to it is a method of all its types. What is repeated in it at a line of its own is what
//! stands between the braces where it is used.

use std::collections::BTreeMap;

/// The lines of a macro's body, at the margin.
type Bodies = BTreeMap<String, Vec<String>>;

/// The sources of a crate with what its macros make.
pub(super) fn written_out(texts: &[String]) -> Vec<String> {
    let bodies: Bodies = texts.iter().flat_map(|text| bodies(text)).collect();
    texts.iter().map(|text| with_made(text, &bodies)).collect()
}

/// The macros of a source that make a type.
fn bodies(text: &str) -> Vec<(String, Vec<String>)> {
    let (mut found, mut lines) = (Vec::new(), text.lines());
    while let Some(line) = lines.next() {
        let Some(name) = line.strip_prefix("macro_rules! ").and_then(|rest| rest.strip_suffix(" {")) else { continue };
        let arms: Vec<&str> = lines.by_ref().take_while(|line| *line != "}").collect();
        let body = arms.iter().skip_while(|line| !line.ends_with("=> {")).skip(1).take_while(|line| **line != "    };");
        let body: Vec<String> = body.map(|line| line.strip_prefix("        ").unwrap_or(line).to_owned()).collect();
        if body.iter().any(|line| line.starts_with("pub struct $name") || line.starts_with("pub enum $name")) {
            found.push((name.to_owned(), body));
        }
    }
    found
}

/// A source with what macros make where it uses them.
fn with_made(text: &str, bodies: &Bodies) -> String {
    let (mut written, mut lines) = (String::new(), text.lines());
    while let Some(line) = lines.next() {
        let Some(body) = line.strip_suffix("! {").and_then(|name| bodies.get(name)) else {
            written.extend([line, "\n"]);
            continue;
        };
        let inside = lines.by_ref().take_while(|line| *line != "}");
        let inside: Vec<&str> = inside.map(|line| line.strip_prefix("    ").unwrap_or(line)).collect();
        let mut own = inside.iter().skip_while(|line| line.starts_with(['/', '#']));
        let Some(first) = own.next() else { continue };
        let name: String = first.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let between: Vec<&str> = own.copied().take_while(|line| *line != "}").collect();
        for line in body {
            if line.starts_with("    $(") {
                written.extend(between.iter().flat_map(|line| [*line, "\n"]));
            } else if !line.trim_start().starts_with("$(") {
                written.push_str(&line.replace("$name", &name));
                written.push('\n');
            }
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "\
macro_rules! part {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub enum $name {
            $($(#[$vdoc])* $variant),+
        }

        impl $name {
            /// All.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];
        }

        impl std::fmt::Display for $name {
            fn fmt(&self) {
                $($name::$variant),+
            }
        }
    };
}
pub(crate) use part;

macro_rules! twice {
    ($what:expr) => {
        $what + $what
    };
}

part! {
    /// A part.
    Part {
        /// One.
        One = \"one\",
    }
}
";

    #[test]
    fn what_a_macro_makes_is_written_out() {
        let texts = written_out(&[SOURCE.to_owned()]);
        assert_eq!(
            super::super::face("Part", texts.iter()),
            [
                "#[derive(Debug)]",
                "pub enum Part",
                "One = \"one\"",
                "pub const ALL: &'static [Self]",
                "impl std::fmt::Display for Part",
            ]
        );
        assert_eq!(bodies(SOURCE).len(), 1);
    }

    #[test]
    fn a_macro_of_one_file_is_used_in_another() {
        let (macros, uses) = SOURCE.split_once("part! {").unwrap();
        let texts = written_out(&[format!("part! {{{uses}"), macros.to_owned()]);
        assert!(texts[0].contains("\npub enum Part {\n    /// One.\n    One = \"one\",\n}\n"), "{}", texts[0]);
        assert_eq!(texts[1], macros);
    }
}
