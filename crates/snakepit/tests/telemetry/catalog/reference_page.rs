//! `docs/telemetry.md` contains the tables of the code, word for word.

use std::fmt::Write as _;
use std::path::Path;

use snakepit::telemetry::{CATALOG, MEASURES};

fn events() -> String {
    let mut table = String::from("| event | level | when | fields |\n|---|---|---|---|\n");
    for entry in CATALOG {
        let level = entry.level.as_str();
        let level = if entry.may_warn { format!("{level}, warn") } else { level.to_owned() };
        let fields: Vec<String> = entry
            .fields
            .iter()
            .map(|field| format!("`{}` ({}): {}", field.name, field.kind, field.meaning))
            .collect();
        let _ = writeln!(table, "| `{}` | {level} | {} | {} |", entry.name, entry.when, fields.join("<br>"));
    }
    table
}

fn measures() -> String {
    let mut table = String::from("| measure | kind | labels | meaning |\n|---|---|---|---|\n");
    for measure in MEASURES {
        let _ = writeln!(
            table,
            "| `{}` | {} | {} | {} |",
            measure.name, measure.kind, measure.labels, measure.meaning
        );
    }
    table
}

#[test]
fn the_page_has_the_tables_of_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/telemetry.md");
    let mut page = std::fs::read_to_string(&path).expect("docs/telemetry.md");
    for (name, table) in [("events", events()), ("measures", measures())] {
        let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->\n"));
        let from = page.find(&begin).expect("the begin of the table") + begin.len();
        let to = page.find(&end).expect("the end of the table");
        page.replace_range(from..to, &table);
    }
    if std::env::var_os("SNAKEPIT_BLESS").is_some() {
        std::fs::write(&path, &page).expect("written");
    }
    let written = std::fs::read_to_string(&path).expect("docs/telemetry.md");
    assert!(written == page, "docs/telemetry.md is not what the code says: SNAKEPIT_BLESS=1 writes it anew");
}
