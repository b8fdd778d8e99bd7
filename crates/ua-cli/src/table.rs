//! Tables: one line a row, as wide as the terminal.
//!
//! What is copied and has no room in its row (a path, an address) stands whole on a line of its own with it.
//!
//! Where there is no terminal nothing is cut. On one, every column has said how it gives way ([`Column`]), and every table is declared in
//! [`crate::listings`], where a test lays each of them out at every width. First texts are cut, the widest first; then what only stands
//! beside the others is left out, then columns that say least, from the end, and after them texts. What a person acts on (an id, a status,
//! what is next) is cut only where a terminal has no room for that alone. Words are cut at their end; names are cut in the middle, for those of one
//! family (`mcp__mail__read_email`, `mcp__mail__send_email`) begin alike.

use clap::builder::styling::AnsiColor;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::error::HostError;
use crate::output::{plain, print_exactly};
use crate::shown::Shown;

/// Between two columns.
const GAP: usize = 2;
/// A text keeps so much, if it ever had it, as long as there is a column that says less.
const LEAST: usize = 12;
/// A name keeps so much for as long.
const NAMED: usize = 20;
/// Where nothing is cut, a column is filled up to so much.
const ALIGNED: usize = 48;
/// A text that has less room than this is left out.
const FEW: usize = 8;

/// A table: what it is called in tests, and its columns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Listing {
    /// What shows it.
    #[cfg_attr(not(test), expect(dead_code, reason = "what tests say of it"))]
    pub(crate) name: &'static str,
    /// Its columns, the one by which a row is named first.
    pub(crate) columns: &'static [Column],
}

/// A column.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    pub(crate) head: &'static str,
    /// How it gives way.
    gives: Gives,
    /// A cell as wide as they usually come.
    #[cfg_attr(not(test), expect(dead_code, reason = "what tests lay out"))]
    widest: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gives {
    /// Not at all.
    Never,
    /// Its cells are cut.
    Cut,
    /// The same in the middle, and less.
    Name,
    /// The same, but what is cut there stands whole on a line of its own.
    Place,
    /// Its cells are cut, and it is left out before any other.
    First,
    /// It is left out.
    Whole,
}

impl Column {
    /// One that a person acts on: shown whole. `widest` is a cell as wide as they usually come.
    pub(crate) const fn whole(head: &'static str, widest: &'static str) -> Self {
        Self { head, gives: Gives::Never, widest }
    }

    /// One whose cells may be cut.
    pub(crate) const fn text(head: &'static str, widest: &'static str) -> Self {
        Self { head, gives: Gives::Cut, widest }
    }

    /// One with names, which differ at their ends: its cells may be cut in the middle.
    pub(crate) const fn name(head: &'static str, widest: &'static str) -> Self {
        Self { head, gives: Gives::Name, widest }
    }

    /// One with places (paths, addresses), which are copied: one that its column has no room for stands on a line of its own.
    pub(crate) const fn place(head: &'static str, widest: &'static str) -> Self {
        Self { head, gives: Gives::Place, widest }
    }

    /// One whose cells may be cut, and that is left out before any other column is: words beside what a person looks for.
    pub(crate) const fn aside(head: &'static str, widest: &'static str) -> Self {
        Self { head, gives: Gives::First, widest }
    }

    /// One that is left out where there is no room, the last of them first.
    pub(crate) const fn extra(head: &'static str, widest: &'static str) -> Self {
        Self { head, gives: Gives::Whole, widest }
    }
}

/// Writes a table; every cell is foreign text.
pub(crate) fn print_table(listing: &Listing, rows: Vec<Vec<String>>) -> Result<(), HostError> {
    // Heads over nothing say nothing.
    if rows.is_empty() {
        return Ok(());
    }
    let columns = listing.columns;
    let rows: Vec<Vec<String>> = rows.into_iter().map(|row| flat(&row)).collect();
    let widths = widths(columns, &rows, crate::terminal::width());
    let has_color = crate::terminal::out_has_color();
    let heads: Vec<String> = columns.iter().map(|column| column.head.to_owned()).collect();
    let mut out = laid_out(columns, &heads, &widths, false).then("\n");
    for row in &rows {
        out = out.then(in_lines(columns, row, &widths, has_color));
    }
    print_exactly(out)
}

/// The cells of a row, each on one line and with single blanks: more of them would pass for the room between two columns, and what follows for a cell
/// of ours. The first one may be set in, below what it belongs to.
fn flat(row: &[String]) -> Vec<String> {
    let cells = row.iter().map(|cell| plain(cell)).enumerate().map(|(nth, cell)| {
        let own = if nth == 0 { cell.len() - cell.trim_start_matches(' ').len() } else { 0 };
        let words: Vec<&str> = cell.split_whitespace().collect();
        format!("{:own$}{}", "", words.join(" "))
    });
    cells.collect()
}

/// How a table is laid out.
#[derive(Debug)]
struct Layout {
    /// How wide each column is shown; `None` for one that is left out.
    widths: Vec<Option<usize>>,
    /// Whether what is wider is cut. Where there is no terminal it is whole, and only stands out of line.
    cuts: bool,
}

/// How wide each column is shown.
fn widths(columns: &[Column], rows: &[Vec<String>], room: Option<usize>) -> Layout {
    if let Some(room) = room {
        return Layout { widths: widths_in(columns, rows, Some(room)), cuts: true };
    }
    // One long cell does not have every other row of a file filled up with spaces.
    let aligned = |(width, column): (Option<usize>, &Column)| {
        if column.gives == Gives::Never {
            width
        } else {
            width.map(|width| width.min(ALIGNED.max(column.head.width())))
        }
    };
    let widths = widths_in(columns, rows, None).into_iter().zip(columns).map(aligned).collect();
    Layout { widths, cuts: false }
}

fn widths_in(columns: &[Column], rows: &[Vec<String>], room: Option<usize>) -> Vec<Option<usize>> {
    let natural = |index: usize| {
        let cells = rows.iter().filter_map(|row| row.get(index)).map(|cell| cell.width());
        cells.chain([columns[index].head.width()]).max().unwrap_or(0)
    };
    let mut widths: Vec<Option<usize>> = (0..columns.len()).map(|index| Some(natural(index))).collect();
    let Some(room) = room else { return widths };
    let total = |widths: &[Option<usize>]| {
        let shown: Vec<usize> = widths.iter().copied().flatten().collect();
        shown.iter().sum::<usize>() + GAP * shown.len().saturating_sub(1)
    };
    // What is cut last is what is left out first.
    let is = |index: usize, gives: Gives| {
        columns[index].gives == gives
            || (gives == Gives::Cut && matches!(columns[index].gives, Gives::First | Gives::Place | Gives::Name))
    };
    let least_of = |index: usize, least: usize| match least {
        LEAST if columns[index].gives == Gives::Name => NAMED,
        FEW if columns[index].gives == Gives::Name => LEAST,
        _ => least,
    };
    // The widest of them give way, down to `least`.
    let cut_to = |widths: &mut Vec<Option<usize>>, least: usize, gives: Gives| {
        while total(widths) > room {
            let may_give = |index: &usize| {
                is(*index, gives) && widths[*index].is_some_and(|width| width > least_of(*index, least))
            };
            let widest = (0..columns.len()).filter(may_give).max_by_key(|index| widths[*index].unwrap_or(0));
            let Some(width) = widest.and_then(|index| widths[index].as_mut()) else { return };
            *width -= 1;
        }
    };
    // Columns of a kind go, the last first; what was cut to make room for them may have it back.
    let leave_out = |widths: &mut Vec<Option<usize>>, gives: Gives, least: usize| {
        while total(widths) > room {
            let last = (1..columns.len()).rev().find(|index| is(*index, gives) && widths[*index].is_some());
            let Some(last) = last else { return };
            widths[last] = None;
            for (index, width) in widths.iter_mut().enumerate().filter(|(index, _)| is(*index, Gives::Cut)) {
                *width = width.map(|_| natural(index));
            }
            cut_to(widths, least, Gives::Cut);
        }
    };
    cut_to(&mut widths, LEAST, Gives::Cut);
    leave_out(&mut widths, Gives::First, LEAST);
    leave_out(&mut widths, Gives::Whole, LEAST);
    cut_to(&mut widths, FEW, Gives::Cut);
    leave_out(&mut widths, Gives::Cut, FEW);
    // A terminal that is narrower than what is to be shown whole.
    cut_to(&mut widths, 1, Gives::Never);
    cut_to(&mut widths, 1, Gives::Cut);
    leave_out(&mut widths, Gives::Never, 1);
    widths
}

/// A row with what belongs to it: a place that its column has no room for stands in front of the row that it names, or below it.
fn in_lines(columns: &[Column], row: &[String], layout: &Layout, has_color: bool) -> Shown {
    let is_apart = |nth: usize| {
        let has_room = layout.widths[nth].is_some_and(|width| row[nth].width() <= width);
        layout.cuts && columns[nth].gives == Gives::Place && !row[nth].is_empty() && !has_room
    };
    let apart: Vec<usize> = (0..row.len().min(columns.len())).filter(|nth| is_apart(*nth)).collect();
    let mut beside = row.to_vec();
    for nth in &apart {
        beside[*nth].clear();
    }
    let line = laid_out(columns, &beside, layout, has_color).then("\n");
    let (first, below): (Vec<usize>, Vec<usize>) = apart.into_iter().partition(|nth| *nth == 0);
    let mut out = Shown::default();
    for nth in first {
        out = out.then(&row[nth]).then("\n");
    }
    out = out.then(line);
    for nth in below {
        out = out.then(format!("  {}\n", row[nth]));
    }
    out
}

fn laid_out(columns: &[Column], row: &[String], layout: &Layout, has_color: bool) -> Shown {
    let mut out = Shown::default();
    // What separates a cell from the next, and what fills it up: nothing of it stands at the end of a line.
    let mut before = String::new();
    for (nth, ((column, cell), width)) in columns.iter().zip(row).zip(&layout.widths).enumerate() {
        let Some(width) = *width else { continue };
        // By the first column a row is named.
        let is_name = column.gives == Gives::Name || (nth == 0 && column.gives == Gives::Never);
        let text = match (layout.cuts, is_name) {
            (false, _) => cell.clone(),
            (true, true) => cut_in_the_middle(cell, width),
            (true, false) => cut(cell, width),
        };
        let fill = width.saturating_sub(text.width());
        let color = status_color(column.head, cell).filter(|_| has_color && !text.is_empty());
        if !text.is_empty() {
            out = out.then(std::mem::take(&mut before));
            out = out.then(color.map_or_else(|| Shown::from(&text), |color| Shown::painted(&text, color, true)));
        }
        before.push_str(&" ".repeat(fill + GAP));
    }
    out
}

fn status_color(head: &str, cell: &str) -> Option<AnsiColor> {
    matches!(head, "STATUS" | "LEVEL").then(|| crate::terminal::status_color(cell)).flatten()
}

/// `text`, or its beginning and `…`, in so many columns of a terminal; of words, whole ones where that leaves most of the room.
fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 1;
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used > width {
            break;
        }
        out.push(c);
    }
    let ends_in_a_word = !text[out.len()..].starts_with(' ');
    let last = out.rfind(' ').filter(|at| ends_in_a_word && out[..*at].width() * 3 >= width * 2);
    out.truncate(last.unwrap_or(out.len()));
    out.truncate(out.trim_end_matches([' ', ',', ';', ':']).len());
    out.push('…');
    out
}

/// What the name of every tool of a server begins with.
const EVERY_TOOLS: &str = "mcp__";

/// A name, or its beginning, `…` and most of its end, in so many columns of a terminal.
fn cut_in_the_middle(name: &str, width: usize) -> String {
    if name.width() <= width {
        return name.to_owned();
    }
    let name = name.strip_prefix(EVERY_TOOLS).unwrap_or(name);
    if name.width() < width {
        return format!("…{name}");
    }
    let room = width.saturating_sub(1);
    let begin: String = taken(name.chars(), room / 3).collect();
    let mut end: Vec<char> = taken(name.chars().rev(), room - begin.width()).collect();
    end.reverse();
    begin + "…" + &String::from_iter(end)
}

/// So many of the characters as have room in so many columns.
fn taken(characters: impl Iterator<Item = char>, room: usize) -> impl Iterator<Item = char> {
    let mut used = 0;
    characters.take_while(move |c| {
        used += c.width().unwrap_or(0);
        used <= room
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::listings::{ALL, RUNS};

    fn lines(room: Option<usize>) -> Vec<String> {
        let row = |cells: [&str; 6]| cells.map(str::to_owned).to_vec();
        let long = "Write a short, sourced report about tide mills from the given pages, publish it, and tell the team";
        let rows = vec![
            row(["7dc39827", "waiting for you", "$0.0123", "3", "3 min ago", long]),
            row([
                "monthly",
                "succeeded",
                "$1.20",
                "12",
                "2 d ago",
                "水車についての短い報告を書き、公開し、チームに知らせる",
            ]),
        ];
        let columns = RUNS.columns;
        let widths = widths(columns, &rows, room);
        rows.iter().map(|row| laid_out(columns, row, &widths, false).as_str().to_owned()).collect()
    }

    #[test]
    fn what_stands_beside_gives_way_before_what_a_person_looks_for() {
        let columns = crate::listings::TOOLS.columns;
        let row =
            ["get_core_memory_blocks", "read_only", "hold", "rule own-reads of the built-in policy calls it read_only"];
        let row = row.map(str::to_owned).to_vec();
        let shown = |room| {
            let widths = widths(columns, std::slice::from_ref(&row), Some(room));
            laid_out(columns, &row, &widths, false).as_str().to_owned()
        };
        assert_eq!(shown(56), "get_core_memory_blocks  read_only  hold");
        assert_eq!(shown(62), "get_core_memory_blocks  read_only  hold        rule own-reads…");
        assert_eq!(shown(80), "get_core_memory_blocks  read_only  hold        rule own-reads of the built-in…");
    }

    /// A path or an address is copied: it is whole at every width, in its row or on a line of its own.
    #[test]
    fn what_is_copied_is_never_cut() {
        for listing in ALL {
            let columns = listing.columns;
            let row: Vec<String> = columns.iter().map(|column| column.widest.to_owned()).collect();
            for room in 20..=160 {
                let layout = widths(columns, std::slice::from_ref(&row), Some(room));
                let shown = in_lines(columns, &row, &layout, false);
                for (column, cell) in columns.iter().zip(&row).filter(|(column, _)| column.gives == Gives::Place) {
                    let is_whole = shown.as_str().lines().any(|line| line.contains(cell.as_str()));
                    assert!(is_whole, "{} of {} at {room}: {}", column.head, listing.name, shown.as_str());
                }
            }
        }
        let columns = crate::listings::SCHEDULES.columns;
        let row = [
            "nightly",
            "0 3 * * *",
            "UTC",
            "Wed 08:00 UTC in 59 min",
            "-",
            "/srv/reports/jobs/tide-mills/nightly.json",
        ];
        let row = row.map(str::to_owned).to_vec();
        let shown = |room| {
            let layout = widths(columns, std::slice::from_ref(&row), Some(room));
            in_lines(columns, &row, &layout, false).as_str().to_owned()
        };
        assert!(shown(80).ends_with("\n  /srv/reports/jobs/tide-mills/nightly.json\n"), "{}", shown(80));
        assert_eq!(shown(160).lines().count(), 1, "where there is room it is one line");
    }

    #[test]
    fn one_long_cell_does_not_fill_up_a_file_with_spaces() {
        let columns = crate::listings::SIDES.columns;
        let long = "words ".repeat(50).trim().to_owned();
        let rows = vec![
            vec!["output".to_owned(), long.clone(), "short".to_owned()],
            vec!["run".to_owned(), "7dc39827".to_owned(), "04204fd2".to_owned()],
        ];
        let layout = widths(columns, &rows, None);
        let line = |row: &[String]| laid_out(columns, row, &layout, false).as_str().to_owned();
        assert!(line(&rows[0]).contains(&format!("{long}  short")), "nothing is cut");
        assert!(line(&rows[1]).width() < 80, "{}", line(&rows[1]));
    }

    #[test]
    fn words_are_cut_between_words_where_that_leaves_most_of_them() {
        for (text, width, wanted) in [
            ("Write a short, sourced report", 20, "Write a short…"),
            ("Write a short, sourced report", 23, "Write a short, sourced…"),
            ("/home/somebody/projects/reports", 20, "/home/somebody/proj…"),
            ("Write about-a-very-long-word-that", 20, "Write about-a-very-…"),
            ("whole", 5, "whole"),
        ] {
            assert_eq!(cut(text, width), wanted, "{width}");
        }
    }

    /// Names of one family begin alike: cut at their ends they would be one name.
    #[test]
    fn names_are_cut_in_the_middle_and_stay_different() {
        for (name, width, wanted) in [
            ("mcp__mail__send_email", 21, "mcp__mail__send_email"),
            ("mcp__mail__send_email", 20, "…mail__send_email"),
            ("mcp__mail__send_email", 17, "…mail__send_email"),
            ("mcp__mail__send_email", 12, "mai…nd_email"),
            ("mcp__mail__read_email", 12, "mai…ad_email"),
            ("nightly-2026-11-01", 12, "nig…26-11-01"),
            ("水車についての報告", 8, "水…報告"),
            ("name", 1, "…"),
        ] {
            assert_eq!(cut_in_the_middle(name, width), wanted, "{width}");
            assert!(cut_in_the_middle(name, width).width() <= width);
        }
        let row = |tool: &str| {
            let cells = [
                "7dc39827",
                "59 min ago",
                "12.3",
                "mail",
                tool,
                "external",
                "succeeded",
                "1",
                "to: ada@example.org; subject: Invoice 12",
                "sent as <m-1@mail.example.org>, in the queue of the server",
            ];
            cells.map(str::to_owned).to_vec()
        };
        let rows = ["mcp__mail__send_email", "mcp__mail__read_email", "mcp__news__send_email"].map(row);
        for room in 40..=160 {
            let layout = widths(crate::listings::CALLS.columns, &rows, Some(room));
            let lines = rows.each_ref().map(|row| laid_out(crate::listings::CALLS.columns, row, &layout, false));
            let [one, other, third] = lines.each_ref().map(Shown::as_str);
            assert!(one != other && one != third, "{room}: {one}");
            // Where a terminal is as wide as most are, the whole of the tool can be read.
            assert!(room < 80 || one.contains("mail__send_email"), "{room}: {one}");
        }
    }

    #[test]
    fn a_row_is_one_line_of_the_terminals_width() {
        for room in [40, 50, 60, 80, 100, 200] {
            for line in lines(Some(room)) {
                assert!(line.width() <= room, "{room}: {line}");
                assert!(line.starts_with("7dc39827") || line.starts_with("monthly"), "{line}");
            }
        }
        let [wide, other] = &lines(Some(80))[..] else { panic!("two rows") };
        assert_eq!(wide, "7dc39827  waiting for you  $0.0123  3      3 min ago  Write a short, sourced…");
        assert!(other.ends_with('…') && other.contains("2 d ago"), "{other}");
        // What says least goes first.
        let narrow = &lines(Some(40))[0];
        assert_eq!(narrow, "7dc39827  waiting for you  Write a shor…".trim_end());
        assert!(lines(None)[0].ends_with("tell the team"), "no terminal, nothing cut");
    }

    /// Names that others gave: to servers, models, tools, workers, queues, schedules and people.
    const FORGED: [&str; 8] = [
        "a  succeeded  $0.00",
        "a\tsucceeded\tnow",
        "a\n7dc39827  succeeded",
        "a\r7dc39827  succeeded",
        "a\u{1b}[60Gsucceeded\u{9b}2K",
        "a\u{202e}dedeeccus  \u{a0}\u{3000}b",
        "a\u{2028}7dc39827\u{85}b\u{b}c",
        "   \u{2003}\u{2003} succeeded",
    ];

    #[test]
    fn s16_no_name_begins_a_row_or_passes_for_a_cell() {
        for name in FORGED {
            for listing in ALL {
                let columns = listing.columns;
                let rows = vec![flat(&vec![name.to_owned(); columns.len()])];
                for cell in &rows[0][1..] {
                    assert!(!cell.contains("  ") && !cell.starts_with(' '), "{name:?}: {cell:?}");
                    assert!(cell.chars().all(|c| c == ' ' || !c.is_whitespace()), "{name:?}: {cell:?}");
                }
                for room in [None, Some(80), Some(160)] {
                    let line = laid_out(columns, &rows[0], &widths(columns, &rows, room), false);
                    let line = line.as_str();
                    let what = format!("{name:?} in {} at {room:?}: {line:?}", listing.name);
                    assert!(!line.chars().any(|c| c.is_control() || ua_core::is_hidden(c)), "{what}");
                    let cells = line.split("  ").filter(|cell| !cell.trim().is_empty()).count();
                    assert!(cells <= columns.len(), "{what}");
                }
            }
        }
        assert_eq!(flat(&["  └ a".to_owned(), " b".to_owned()]), ["  └ a", "b"]);
    }

    /// Every table that there is, with cells as wide as they come, on every terminal.
    #[test]
    fn every_listing_fits_every_terminal_and_cuts_nothing_that_a_person_acts_on() {
        for listing in ALL {
            let columns = listing.columns;
            let rows = vec![columns.iter().map(|column| column.widest.to_owned()).collect::<Vec<_>>()];
            for room in 40..=160 {
                let widths = widths(columns, &rows, Some(room));
                let heads: Vec<String> = columns.iter().map(|column| column.head.to_owned()).collect();
                for row in [&heads, &rows[0]] {
                    let line = laid_out(columns, row, &widths, false);
                    let line = line.as_str();
                    let what = format!("{} at {room}: {line}", listing.name);
                    assert!(line.width() <= room, "{what}");
                    for (column, cell) in columns.iter().zip(row).filter(|(column, _)| column.gives == Gives::Never) {
                        assert!(line.contains(cell.as_str()), "{} is cut: {what}", column.head);
                    }
                }
            }
            // Where there is no terminal, nothing is cut and nothing is left out.
            let all = laid_out(columns, &rows[0], &super::widths(columns, &rows, None), false);
            assert!(columns.iter().all(|column| all.as_str().contains(column.widest)), "{}", listing.name);
            let is_named = columns.iter().any(|column| column.gives == Gives::Never);
            assert!(is_named, "{}: some column says what a row is about", listing.name);
        }
    }

    /// Names that people chose can be wider than a terminal: the row is one line all the same, and the rest of it is there.
    #[test]
    fn a_name_that_is_wider_than_the_terminal_takes_nothing_else_with_it() {
        let name = "a-run-with-a-rather-long-name-that-somebody-chose";
        let row = vec![[name, "waiting for you", "$0.01", "3", "3 min ago", "Write"].map(str::to_owned).to_vec()];
        for room in 20..=48 {
            let shown = laid_out(RUNS.columns, &row[0], &widths(RUNS.columns, &row, Some(room)), false);
            assert!(shown.as_str().width() <= room, "{room}: {}", shown.as_str());
            assert!(room < 32 || shown.as_str().contains("waiting for you"), "{room}: {}", shown.as_str());
        }
    }
}
