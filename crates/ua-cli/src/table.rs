//! Tables: one line a row, as wide as the terminal.
//!
//! Where there is no terminal nothing is cut. On one, the widest columns give way first, cell by cell with `…`; the first column, by
//! which a row is named, is cut last of all; and where even that is not enough, columns that say least are left out.

use clap::builder::styling::AnsiColor;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::error::HostError;
use crate::output::{plain, print};
use crate::shown::Shown;

/// Between two columns.
const GAP: usize = 2;
/// A column that gives way keeps so much, if it ever had it.
const LEAST: usize = 12;

/// A column.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column<'a> {
    head: &'a str,
    /// How it gives way.
    gives: Gives,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gives {
    /// Not at all.
    Never,
    /// Its cells are cut.
    Cut,
    /// It is left out.
    Whole,
}

impl<'a> Column<'a> {
    /// One whose cells are shown whole.
    pub(crate) const fn whole(head: &'a str) -> Self {
        Self { head, gives: Gives::Never }
    }

    /// One whose cells may be cut.
    pub(crate) const fn text(head: &'a str) -> Self {
        Self { head, gives: Gives::Cut }
    }

    /// One that is left out where there is no room.
    pub(crate) const fn extra(head: &'a str) -> Self {
        Self { head, gives: Gives::Whole }
    }
}

/// Writes a table whose first column is shown whole; every cell is foreign text.
pub(crate) fn print_table(header: &[&str], rows: Vec<Vec<String>>) -> Result<(), HostError> {
    let columns: Vec<Column<'_>> = header
        .iter()
        .enumerate()
        .map(|(index, head)| if index == 0 { Column::whole(head) } else { Column::text(head) })
        .collect();
    print_columns(&columns, rows)
}

/// The same with a word about each column.
pub(crate) fn print_columns(columns: &[Column<'_>], rows: Vec<Vec<String>>) -> Result<(), HostError> {
    // Heads over nothing say nothing.
    if rows.is_empty() {
        return Ok(());
    }
    let rows: Vec<Vec<String>> = rows.into_iter().map(|row| row.iter().map(|cell| flat(cell)).collect()).collect();
    let widths = widths(columns, &rows, crate::terminal::width());
    let has_color = crate::terminal::out_has_color();
    let heads: Vec<String> = columns.iter().map(|column| column.head.to_owned()).collect();
    let lines = std::iter::once((&heads, false)).chain(rows.iter().map(|row| (row, true)));
    let mut out = Shown::default();
    for (row, is_body) in lines {
        out = out.then(laid_out(columns, row, &widths, has_color && is_body)).then("\n");
    }
    print(out)
}

fn flat(cell: &str) -> String {
    plain(cell).replace(['\n', '\t'], " ")
}

/// How wide each column is shown; `None` for one that is left out.
fn widths(columns: &[Column<'_>], rows: &[Vec<String>], room: Option<usize>) -> Vec<Option<usize>> {
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
    let cut_to = |widths: &mut Vec<Option<usize>>, least: usize, may: &dyn Fn(usize) -> bool| {
        while total(widths) > room {
            let widest = (0..columns.len()).filter(|index| may(*index)).max_by_key(|index| widths[*index].unwrap_or(0));
            let Some(width) = widest.and_then(|index| widths[index].as_mut()).filter(|width| **width > least) else {
                return;
            };
            *width -= 1;
        }
    };
    let is_text = |index: usize| columns[index].gives == Gives::Cut;
    cut_to(&mut widths, LEAST, &is_text);
    while total(&widths) > room {
        let extra = (0..columns.len()).rev().find(|i| columns[*i].gives == Gives::Whole && widths[*i].is_some());
        let Some(extra) = extra else { break };
        widths[extra] = None;
        // What was cut to make room may have it back.
        for (index, width) in widths.iter_mut().enumerate().filter(|(index, _)| is_text(*index)) {
            *width = width.map(|_| natural(index));
        }
        cut_to(&mut widths, LEAST, &is_text);
    }
    // A terminal that is narrower than that: whatever is not the name of the row, then columns from the end, then the name itself.
    cut_to(&mut widths, 6, &|index| index > 0);
    while total(&widths) > room {
        let last = (1..columns.len()).rev().find(|index| widths[*index].is_some());
        let Some(last) = last else { break };
        widths[last] = None;
    }
    cut_to(&mut widths, LEAST, &|_| true);
    widths
}

fn laid_out(columns: &[Column<'_>], row: &[String], widths: &[Option<usize>], has_color: bool) -> Shown {
    let mut out = Shown::default();
    // What separates a cell from the next, and what fills it up: nothing of it stands at the end of a line.
    let mut before = String::new();
    for ((column, cell), width) in columns.iter().zip(row).zip(widths) {
        let Some(width) = *width else { continue };
        let text = cut(cell, width);
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

/// `text`, or its beginning and `…`, in so many columns of a terminal.
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
    out.push('…');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNS: [Column<'_>; 5] = [
        Column::whole("RUN"),
        Column::whole("STATUS"),
        Column::extra("TURNS"),
        Column::extra("UPDATED"),
        Column::text("OBJECTIVE"),
    ];

    fn lines(room: Option<usize>) -> Vec<String> {
        let row = |cells: [&str; 5]| cells.map(str::to_owned).to_vec();
        let long = "Write a short, sourced report about tide mills from the given pages, publish it, and tell the team";
        let rows = vec![
            row(["7dc39827", "waiting for you", "3", "3 min ago", long]),
            row(["monthly", "succeeded", "12", "2 d ago", "水車についての短い報告を書き、公開し、チームに知らせる"]),
        ];
        let widths = widths(&RUNS, &rows, room);
        rows.iter().map(|row| laid_out(&RUNS, row, &widths, false).as_str().to_owned()).collect()
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
        assert_eq!(wide, "7dc39827  waiting for you  3      3 min ago  Write a short, sourced report abou…");
        assert!(other.ends_with('…') && other.contains("2 d ago"), "{other}");
        // What says least goes first.
        let narrow = &lines(Some(40))[0];
        assert_eq!(narrow, "7dc39827  waiting for you  Write a shor…".trim_end());
        assert!(lines(None)[0].ends_with("tell the team"), "no terminal, nothing cut");
        // Columns of which none may be cut or left out, on a terminal that is far too narrow.
        let head = ["TOOL", "CLASS", "WHEN IN DOUBT", "WHY"];
        let columns: Vec<Column<'_>> = head
            .iter()
            .enumerate()
            .map(|(n, head)| if n == 0 { Column::whole(head) } else { Column::text(head) })
            .collect();
        let row = ["mcp__ua__get_core_memory_blocks", "read_only", "redo", "rule own-reads of the shipped rules"];
        let rows = vec![row.map(str::to_owned).to_vec()];
        for room in [20, 30, 40, 60] {
            let shown = laid_out(&columns, &rows[0], &super::widths(&columns, &rows, Some(room)), false);
            assert!(
                shown.as_str().width() <= room && shown.as_str().starts_with("mcp__"),
                "{room}: {}",
                shown.as_str()
            );
        }
    }
}
