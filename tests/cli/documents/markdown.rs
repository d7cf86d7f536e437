//! As much of Markdown as the documents use.

/// A block of code.
#[derive(Debug, PartialEq)]
pub struct Block {
    /// What stands behind the fence; empty where the block is indented.
    pub language: String,
    pub text: String,
}

/// A document taken apart.
#[derive(Debug, Default, PartialEq)]
pub struct Document {
    /// The lines outside of blocks.
    pub prose: Vec<String>,
    pub blocks: Vec<Block>,
}

impl Document {
    pub fn parse(text: &str) -> Self {
        let mut document = Self::default();
        let (mut fenced, mut indented, mut blank) = (false, false, true);
        for line in text.lines() {
            if let Some(language) = line.strip_prefix("```") {
                fenced = !fenced;
                if fenced {
                    document.open(language);
                }
                (indented, blank) = (false, true);
                continue;
            }
            let begins = line.starts_with("    ") && (blank || indented);
            if begins && !indented && !fenced {
                document.open("");
            }
            indented = !fenced && (begins || indented && line.is_empty());
            blank = line.is_empty();
            match document.blocks.last_mut().filter(|_| fenced || indented) {
                Some(block) => {
                    block.text += if fenced { line } else { line.trim_start_matches("    ") };
                    block.text.push('\n');
                }
                None => document.prose.push(line.to_owned()),
            }
        }
        document
    }

    fn open(&mut self, language: &str) {
        self.blocks.push(Block { language: language.to_owned(), text: String::new() });
    }

    /// Anchors of the headings, as GitHub makes them.
    pub fn anchors(&self) -> Vec<String> {
        let mut anchors: Vec<String> = Vec::new();
        for line in self.prose.iter().filter(|line| heading(line).is_some()) {
            let base = slug(heading(line).unwrap_or_default().1);
            let numbered = |n: usize| if n == 0 { base.clone() } else { format!("{base}-{n}") };
            let free = (0..).map(numbered).find(|anchor| !anchors.contains(anchor));
            anchors.extend(free);
        }
        anchors
    }
}

/// Level and text of a heading.
pub fn heading(line: &str) -> Option<(usize, &str)> {
    let text = line.trim_start_matches('#');
    let level = line.len() - text.len();
    text.strip_prefix(' ').filter(|_| level > 0).map(|text| (level, text))
}

fn slug(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>().to_lowercase()
}

/// What stands between backticks.
pub fn spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// The cells of a row of a table; `\|` is no end of a cell.
pub fn cells(line: &str) -> Option<Vec<String>> {
    let row = line.strip_prefix("| ")?.trim_end().strip_suffix('|')?;
    let row = row.replace("\\|", "\0");
    Some(row.split('|').map(|cell| cell.trim().replace('\0', "|")).collect())
}

#[test]
fn a_document_is_taken_apart() {
    let document =
        Document::parse("# A `b`: c\n\n    code\n\n    more\ntext\n    text\n```toml\n# no\n```\n## A b c\n");
    let block = |language: &str, text: &str| Block { language: language.into(), text: text.into() };
    assert_eq!(document.blocks, [block("", "code\n\nmore\n"), block("toml", "# no\n")]);
    assert_eq!(document.prose, ["# A `b`: c", "", "text", "    text", "## A b c"]);
    assert_eq!(document.anchors(), ["a-b-c", "a-b-c-1"]);
    assert_eq!(spans("a `b` c `d`").collect::<Vec<_>>(), ["b", "d"]);
    assert_eq!(cells("| a | `b\\|c` | |"), Some(vec!["a".into(), "`b|c`".into(), String::new()]));
}
