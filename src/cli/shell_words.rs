//! Words as typed in a shell, and as the program gets them.

/// What a word is in at its end; what is typed next is quoted so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Quotes {
    #[default]
    None,
    Single,
    Double,
}

/// A word that is being typed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Typed {
    raw: String,
    /// Without quotes, with the values of `~` and of variables.
    pub plain: String,
    quotes: Quotes,
}

/// The value of a variable.
type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Typed {
    /// Reads a word of bash or zsh, or of `fish`, where a backslash quotes within `'` too.
    pub fn new(raw: &str, fish: bool, variables: Variables<'_>) -> Self {
        let (mut plain, mut quotes) = (String::new(), Quotes::None);
        let mut rest = raw;
        if let (Some(path), Some(home)) = (in_home(raw), variables("HOME")) {
            plain.push_str(home.trim_end_matches('/'));
            rest = path;
        }
        while let Some(c) = rest.chars().next() {
            rest = &rest[c.len_utf8()..];
            let next = rest.chars().next();
            match (quotes, c) {
                (Quotes::None, '\'') => quotes = Quotes::Single,
                (Quotes::None, '"') => quotes = Quotes::Double,
                (Quotes::Single, '\'') | (Quotes::Double, '"') => quotes = Quotes::None,
                (Quotes::Single, '\\') if fish && next.is_some_and(|next| "\\'".contains(next)) => {
                    rest = take(&mut plain, rest);
                }
                (Quotes::None, '\\') => rest = take(&mut plain, rest),
                (Quotes::Double, '\\') if next.is_some_and(|next| "$`\"\\".contains(next)) => {
                    rest = take(&mut plain, rest);
                }
                (Quotes::None | Quotes::Double, '$') => match variable(rest) {
                    Some((name, behind)) if variables(name).is_some() => {
                        plain.push_str(&variables(name).unwrap_or_default());
                        rest = behind;
                    }
                    _ => plain.push('$'),
                },
                _ => plain.push(c),
            }
        }
        let ends_quoted =
            quotes == Quotes::None && raw.chars().rev().take_while(|c| *c == '\\').count() % 2 == 1;
        let raw = if ends_quoted { &raw[..raw.len() - 1] } else { raw };
        Self { raw: raw.to_owned(), plain, quotes }
    }

    /// A word that has no quotes any more; a shell leaves the `~` of some.
    pub fn without_quotes(word: &str, variables: Variables<'_>) -> Self {
        let home =
            in_home(word).and_then(|path| Some(variables("HOME")?.trim_end_matches('/').to_owned() + path));
        Self { raw: word.to_owned(), plain: home.unwrap_or_else(|| word.to_owned()), quotes: Quotes::None }
    }

    /// `candidate` as a continuation of the typed text: in its quotes, or with a backslash before what means something to the shell.
    pub fn completed(&self, candidate: &str) -> String {
        let (mut word, rest) = match candidate.strip_prefix(&self.plain) {
            Some(rest) => (self.raw.clone(), rest),
            None => (String::new(), candidate),
        };
        let quotes = if word.is_empty() { Quotes::None } else { self.quotes };
        for c in rest.chars() {
            let special = match quotes {
                Quotes::None => {
                    let plain =
                        c.is_alphanumeric() || "/._-+=:,@%^".contains(c) || (c == '~' && !word.is_empty());
                    !plain && !c.is_control()
                }
                Quotes::Double => "$`\"\\".contains(c),
                Quotes::Single => false,
            };
            match c {
                '\'' if quotes == Quotes::Single => word.push_str(r"'\'"),
                _ if special => word.push('\\'),
                _ => {}
            }
            word.push(c);
        }
        word
    }

    /// `candidate` with the `~` with which this word begins.
    pub fn with_tilde(&self, candidate: &str, variables: Variables<'_>) -> String {
        let home = variables("HOME").filter(|_| in_home(&self.raw).is_some());
        let below =
            home.and_then(|home| Some(candidate.strip_prefix(home.trim_end_matches('/'))?.to_owned()));
        below.map_or_else(|| candidate.to_owned(), |below| format!("~{below}"))
    }
}

/// The rest of a path of this user after its `~`.
fn in_home(word: &str) -> Option<&str> {
    word.strip_prefix('~').filter(|rest| rest.starts_with('/'))
}

/// Moves the first character of `rest` to `plain`.
fn take<'a>(plain: &mut String, rest: &'a str) -> &'a str {
    let length = rest.chars().next().map_or(0, char::len_utf8);
    plain.push_str(&rest[..length]);
    &rest[length..]
}

/// The name of the variable at the start of `text`, after its `$`, and the rest.
fn variable(text: &str) -> Option<(&str, &str)> {
    if let Some(inner) = text.strip_prefix('{') {
        return inner.split_once('}');
    }
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(name: &str) -> Option<String> {
        match name {
            "HOME" => Some("/home/me".to_owned()),
            "D" => Some("/data".to_owned()),
            _ => None,
        }
    }

    #[test]
    fn quotes_and_variables_are_read_as_the_shell_reads_them() {
        for (raw, plain) in [
            ("job.toml", "job.toml"),
            (r"my\ jo", "my jo"),
            ("\"my jo", "my jo"),
            ("'my jo", "my jo"),
            (r#"a'b c'"d e"f"#, "ab cd ef"),
            (r#""q\"u\ote""#, r#"q"u\ote"#),
            (r"'a\b'", r"a\b"),
            ("~/x", "/home/me/x"),
            ("~", "~"),
            (r"\~/x", "~/x"),
            ("$HOME/x", "/home/me/x"),
            ("\"${D}/x", "/data/x"),
            ("'$D'", "$D"),
            (r"do\$llar", "do$llar"),
            ("$NONE/$", "$NONE/$"),
            ("a\\", "a"),
        ] {
            assert_eq!(Typed::new(raw, false, &variables).plain, plain, "{raw}");
        }
        assert_eq!(Typed::new(r"'it\'s", true, &variables).plain, "it's");
        assert_eq!(Typed::without_quotes("~/q'uote$D", &variables).plain, "/home/me/q'uote$D");
    }

    #[test]
    fn what_is_typed_goes_on_in_its_quotes() {
        for (raw, candidate, word) in [
            ("", "my job.toml", r"my\ job.toml"),
            ("b", "br(1).toml", r"br\(1\).toml"),
            ("", "~x.toml", r"\~x.toml"),
            (r"my\ jo", "my job.toml", r"my\ job.toml"),
            ("\"my jo", "my job $1.toml", "\"my job \\$1.toml"),
            ("'my jo", "my jo'b.toml", r"'my jo'\''b.toml"),
            ("~/x/jo", "/home/me/x/job.toml", "~/x/job.toml"),
            ("$D/jo", "/data/jo b/", r"$D/jo\ b/"),
            ("my\\", "my job.toml", r"my\ job.toml"),
            ("optimizer.be", "optimizer.betas=", "optimizer.betas="),
            ("--set=a=b:", "--set=a=b:c", "--set=a=b:c"),
            ("x", "ä b", r"ä\ b"),
        ] {
            assert_eq!(Typed::new(raw, false, &variables).completed(candidate), word, "{raw}");
        }
        let typed = Typed::new("~/x/jo", true, &variables);
        assert_eq!(typed.with_tilde("/home/me/x/job.toml", &variables), "~/x/job.toml");
        assert_eq!(Typed::new("/x", true, &variables).with_tilde("/home/me/x", &variables), "/home/me/x");
    }
}
