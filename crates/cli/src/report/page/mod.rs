//! Self-contained HTML pages, without scripts, images or external fonts. All HTML reports use this.
//!
//! Owns the escaping: labels, paths and texts are untrusted, and always become plain text.

pub mod chart;
pub mod scale;

use std::fmt::Write as _;

const STYLE: &str = include_str!("style.css");

/// Escapes text for the body of a page or for an attribute value.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

/// The head of a page, up to where its content begins.
fn head(title: &str, subtitle: &str) -> String {
    let (title, subtitle) = (escape(title), escape(subtitle));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n\
         </head>\n<body>\n<header>\n<h1>{title}</h1>\n<p class=\"period\">{subtitle}</p>\n</header>\n<main>\n"
    )
}

/// A whole page around `body`, which must be escaped already; title and subtitle need not be.
pub fn shell(title: &str, subtitle: &str, body: &str) -> String {
    shell_with_foot(title, subtitle, body, "")
}

/// As [`shell`], with `whereof` added to the last line.
pub fn shell_with_foot(title: &str, subtitle: &str, body: &str, whereof: &str) -> String {
    let foot = format!("Made by longrun {}{whereof}.", env!("CARGO_PKG_VERSION"));
    head(title, subtitle) + body + &format!("</main>\n<footer>{foot}</footer>\n</body>\n</html>\n")
}

/// Adds a picture with its title, and with a legend if it has several colours. `drawn` must be escaped already.
pub fn figure(page: &mut String, title: &str, drawn: &str, parts: &[&str]) {
    _ = write!(page, "<figure class=\"card\"><figcaption>{}", escape(title));
    if parts.len() > 1 {
        page.push_str("<span class=\"legend\">");
        for (nth, part) in parts.iter().enumerate() {
            _ = write!(page, "<span><i class=\"key{nth}\"></i>{}</span>", escape(part));
        }
        page.push_str("</span>");
    }
    _ = write!(page, "</figcaption>\n{drawn}</figure>\n");
}
