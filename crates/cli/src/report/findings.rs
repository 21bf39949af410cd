//! The results of a benchmark, as a page with tables and charts.

use super::page::chart::{Bars, bars};
use super::page::{escape, figure, shell};
use longrun_bench::report::number;
use longrun_bench::{Chart, Findings, Table};
use std::fmt::Write as _;

/// The page. `whereof` says what was measured.
pub fn page<F: Findings>(whereof: &str, findings: &F) -> String {
    let mut body = sentences(&findings.sentences());
    body += &charts(&findings.charts());
    body += &table(&findings.table());
    shell("Longrun benchmark", &format!("{whereof}: {}", findings.title()), &body)
}

/// The findings, in words.
pub fn sentences(said: &[String]) -> String {
    let mut body = "<section class=\"card\"><ul class=\"benefit\">\n".to_owned();
    for sentence in said {
        _ = writeln!(body, "<li>{}</li>", escape(sentence));
    }
    body + "</ul></section>\n"
}

/// Pictures beside each other.
pub fn charts(charts: &[Chart]) -> String {
    let mut body = "<section class=\"charts\">\n".to_owned();
    for Chart { title, parts, groups } in charts {
        let drawn = bars(&Bars { title, parts, groups }, number);
        let names: Vec<&str> = parts.iter().map(String::as_str).collect();
        figure(&mut body, title, &drawn, &names);
    }
    body + "</section>\n"
}

/// A table; its first column says what a row is about.
pub fn table(table: &Table) -> String {
    let mut body = "<section class=\"card\"><div class=\"wide\"><table><thead><tr>".to_owned();
    for column in &table.columns {
        _ = write!(body, "<th>{}</th>", escape(column));
    }
    body += "</tr></thead><tbody>\n";
    for row in &table.rows {
        for (number, cell) in row.iter().enumerate() {
            let begin = if number == 0 { "<tr><th scope=\"row\">" } else { "<td>" };
            _ = write!(body, "{begin}{}{}", escape(cell), if number == 0 { "</th>" } else { "</td>" });
        }
        body += "</tr>\n";
    }
    body + "</tbody></table></div></section>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Serialize)]
    struct Found;

    impl Findings for Found {
        fn title(&self) -> String {
            "things & <more>".to_owned()
        }

        fn table(&self) -> Table {
            let mut table = Table::with_columns(&["what", "s"]);
            table.rows.push(vec!["<slow>".to_owned(), "2.5".to_owned()]);
            table
        }

        fn sentences(&self) -> Vec<String> {
            vec!["No benefit.".to_owned()]
        }

        fn charts(&self) -> Vec<Chart> {
            vec![Chart::new("Time, s", &["before", "after"], vec![("<slow>".to_owned(), vec![2.5, 1.0])])]
        }
    }

    #[test]
    fn a_page_has_what_was_found_in_words_charts_and_a_table() {
        let page = page("/mnt/<x>", &Found);
        for wanted in ["No benefit.", "things &amp; &lt;more&gt;", "/mnt/&lt;x&gt;", "<td>2.5</td>", "after", "<svg"] {
            assert!(page.contains(wanted), "{wanted}: {page}");
        }
        assert!(!page.contains("<x>") && !page.contains("<slow>"), "{page}");
        let balanced =
            |tag: &str| page.matches(&format!("<{tag}")).count() == page.matches(&format!("</{tag}>")).count();
        assert!(["svg", "table", "section", "figure", "ul", "td"].into_iter().all(balanced), "{page}");
    }
}
