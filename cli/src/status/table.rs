//! Tables and lists of text.

/// Maximum width of the first column.
const MAX_FIRST_WIDTH: usize = 64;

/// A table whose first column is aligned left, and all others right.
#[derive(Clone, Debug, Default)]
pub struct TextTable {
    /// The names of the columns.
    pub header: Vec<&'static str>,
    /// The rows, of as many cells.
    pub rows: Vec<Vec<String>>,
}

impl TextTable {
    /// Creates a table without rows.
    pub fn new(header: &[&'static str]) -> Self {
        Self {
            header: header.into(),
            rows: Vec::new(),
        }
    }

    /// Returns the lines of the table, the header first. A long first cell is cut.
    pub fn lines(&self) -> Vec<String> {
        let header: Vec<String> = self.header.iter().map(|name| (*name).into()).collect();
        let all = || std::iter::once(&header).chain(&self.rows);
        let width = |column: usize| {
            let cells = all().filter_map(|row| row.get(column));
            let width = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
            match column {
                0 => width.min(MAX_FIRST_WIDTH),
                _ => width,
            }
        };
        let widths: Vec<usize> = (0..header.len()).map(width).collect();
        all().map(|row| format_row(row, &widths)).collect()
    }
}

/// Returns the lines of a list of labelled values.
pub fn labelled_lines(values: &[(&str, String)]) -> Vec<String> {
    let lines = values.iter();
    lines
        .map(|(label, value)| format!("{label:<26}{value}"))
        .collect()
}

fn format_row(row: &[String], widths: &[usize]) -> String {
    let mut line = String::new();
    for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
        let width = *width;
        match column {
            0 => {
                let cut: String = cell.chars().take(width).collect();
                line += &format!("{cut:<width$}");
            }
            _ => line += &format!("  {cell:>width$}"),
        }
    }
    line.truncate(line.trim_end().len());
    line
}

#[cfg(test)]
mod tests {
    use super::TextTable;

    #[test]
    fn columns_are_aligned_and_the_first_is_cut() {
        let mut table = TextTable::new(&["Method", "Calls"]);
        table.rows.push(vec!["é".repeat(70), "1".into()]);
        table.rows.push(vec!["eth_call".into(), "12345".into()]);
        let lines = table.lines();
        assert_eq!(lines[0], format!("Method{}  Calls", " ".repeat(58)));
        assert_eq!(lines[1], format!("{}      1", "é".repeat(64)));
        assert_eq!(lines[2], format!("eth_call{}  12345", " ".repeat(56)));
        assert_eq!(TextTable::new(&["Key"]).lines(), ["Key"]);
    }
}
