//! A table as kubectl writes it: headers once, columns as wide as their widest cell so far.

use std::io::{self, Write};

use kubecache::object::visible;

use crate::usage;

/// Stands in a cell that has nothing to say, as kubectl writes it.
pub(crate) const NONE: &str = "<none>";
/// What stands between two columns.
const GAP: &str = "   ";

/// What stands before a line below another.
const BELOW: &str = "    ";

/// A table to which lines are added as they come.
pub(crate) struct Table<const COLUMNS: usize> {
    headers: [String; COLUMNS],
    widths: [usize; COLUMNS],
    hidden: Vec<String>,
    /// How wide a line may be, and the column that stands below it.
    narrow: Option<(usize, &'static str)>,
    painted: Option<(&'static str, Paint)>,
    /// Whether the headers are written, or not wanted.
    has_headers: bool,
}

/// The terminal's code for the colour of a cell.
pub(crate) type Paint = fn(&str) -> &'static str;

impl<const COLUMNS: usize> Table<COLUMNS> {
    pub(crate) fn new(headers: [impl Into<String>; COLUMNS]) -> Self {
        let headers = headers.map(Into::into);
        Self {
            widths: headers.each_ref().map(|header| header.chars().count()),
            headers,
            hidden: Vec::new(),
            narrow: None,
            painted: None,
            has_headers: false,
        }
    }

    /// Leaves these columns out.
    #[must_use]
    pub(crate) fn without(mut self, hidden: &[&str]) -> Self {
        let hidden = hidden.iter().map(|header| (*header).to_owned());
        self.hidden.extend(hidden);
        self
    }

    /// Cuts cells in the middle, where a line would be wider than this, and writes one column on
    /// lines below.
    #[must_use]
    pub(crate) fn narrow(mut self, columns: usize, below: &'static str) -> Self {
        self.narrow = Some((columns, below));
        self.without(&[below])
    }

    #[must_use]
    pub(crate) fn without_headers(mut self) -> Self {
        self.has_headers = true;
        self
    }

    /// Colours a column, for a terminal.
    #[must_use]
    pub(crate) fn painted(mut self, header: &'static str, paint: Paint) -> Self {
        self.painted = Some((header, paint));
        self
    }

    /// Makes a column at least so wide from the start, for cells that may come later.
    #[must_use]
    pub(crate) fn at_least(mut self, header: &str, width: usize) -> Self {
        for (name, now) in self.headers.iter().zip(&mut self.widths) {
            if name == header {
                *now = width.max(*now);
            }
        }
        self
    }

    /// Writes these lines under what was written before, the first time under the headers.
    pub(crate) fn write(
        &mut self,
        to: &mut impl Write,
        lines: &[[String; COLUMNS]],
    ) -> io::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        for cells in lines {
            for (width, cell) in self.widths.iter_mut().zip(cells) {
                *width = (*width).max(visible(cell).chars().count());
            }
        }
        if !std::mem::replace(&mut self.has_headers, true) {
            self.line(to, &self.headers, None)?;
        }
        let painted = self.painted;
        let mut lines = lines.iter();
        lines.try_for_each(|cells| self.line(to, cells, painted))
    }

    /// The widths, of which the widest give way where a line would be too wide.
    fn fitted(&self) -> [usize; COLUMNS] {
        let mut widths = self.widths;
        for (width, header) in widths.iter_mut().zip(&self.headers) {
            if self.hidden.contains(header) {
                *width = 0;
            }
        }
        let most = self.narrow.map_or(usize::MAX, |(columns, _)| columns);
        let shown = widths.iter().filter(|width| **width > 0).count();
        let gaps = GAP.len().saturating_mul(shown.saturating_sub(1));
        let all: usize = widths.iter().sum();
        for _ in most..all.saturating_add(gaps) {
            if let Some(widest) = widths.iter_mut().max() {
                *widest = widest.saturating_sub(1);
            }
        }
        widths
    }

    fn line(
        &self,
        to: &mut impl Write,
        cells: &[String; COLUMNS],
        painted: Option<(&str, Paint)>,
    ) -> io::Result<()> {
        let mut line = String::new();
        let mut below = String::new();
        for ((width, cell), header) in self.fitted().iter().zip(cells).zip(&self.headers) {
            // What stands in a cell is a server's text.
            let cell = visible(cell);
            if *width == 0 {
                let is_below = self.narrow.is_some_and(|(_, below)| below == header);
                if is_below && !cell.is_empty() && *cell != **header {
                    below = usage::wrapped(&cell, BELOW);
                }
                continue;
            }
            let cell = cut(&cell, *width);
            match painted {
                Some((name, paint)) if name == header => {
                    line.extend([paint(&cell), &*cell, "\u{1b}[0m"]);
                }
                _ => line.push_str(&cell),
            }
            let padding = width.saturating_sub(cell.chars().count());
            line.extend(std::iter::repeat_n(' ', padding));
            line.push_str(GAP);
        }
        write!(to, "{}\n{below}", line.trim_end())?;
        to.flush()
    }
}

/// The begin and the end of what is wider than that, with a mark between them.
fn cut(cell: &str, width: usize) -> String {
    let letters = cell.chars().count();
    if letters <= width {
        return cell.to_owned();
    }
    let begin = width / 2;
    let left_out = letters.saturating_sub(width).saturating_add(1);
    let end = cell.chars().skip(begin.saturating_add(left_out));
    cell.chars()
        .take(begin)
        .chain(['\u{2026}'])
        .chain(end)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_headers_and_colours_are_chosen() {
        let mut written = Vec::new();
        let table = Table::new(["NAME", "SIZE", "STATE"]).without(&["SIZE"]);
        let red: Paint = |_| "\u{1b}[31m";
        let mut table = table.without_headers().painted("STATE", red);
        let cells = ["a", "1", "Gone"].map(str::to_owned);
        table.write(&mut written, &[cells]).unwrap();
        let expected = "a      \u{1b}[31mGone\u{1b}[0m\n";
        assert_eq!(String::from_utf8(written).unwrap(), expected);
    }

    #[test]
    fn a_narrow_table_marks_what_it_cuts_and_tells_one_column_below() {
        let mut written = Vec::new();
        let headers = ["POD", "NAME", "STATE", "REASON"];
        let mut table = Table::new(headers).without(&["STATE"]).narrow(24, "REASON");
        let short = ["web", "tls", "Synced", ""];
        let long = [
            "web-7d9f8b6c5d-x2k4p",
            "tls",
            "Waiting",
            "no word of the server yet",
        ];
        for cells in [short, long] {
            table
                .write(&mut written, &[cells.map(str::to_owned)])
                .unwrap();
        }
        let text = String::from_utf8(written).unwrap();
        let expected = "POD   NAME\nweb   tls\nweb-7d9f\u{2026}5d-x2k4p   tls\n    \
            no word of the server yet\n";
        assert_eq!(text, expected);
    }

    /// A name is a server's text: it forges no line and moves no cursor.
    #[test]
    fn a_cell_is_text() {
        let mut written = Vec::new();
        let mut table = Table::new(["NAME", "AGE"]);
        let cells = ["a\n\u{1b}[2J".to_owned(), "1s".to_owned()];
        table.write(&mut written, &[cells]).unwrap();
        let expected = "NAME           AGE\na\\n\\u{1b}[2J   1s\n";
        assert_eq!(String::from_utf8(written).unwrap(), expected);
    }
}
