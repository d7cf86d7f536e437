//! Quoting for shell scripts.

/// `word` quoted for a shell: unchanged if it has no special characters, else in single quotes.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,+@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_quoted_words_back() {
        let words =
            ["a.toml", "", "my job.toml", "it's", "$HOME `ls` \"x\" \\", "k={ a = 1 }", "*", "a\nb", "-x"];
        for word in words {
            let script = format!("printf %s {}", quoted(word));
            let output = std::process::Command::new("sh").args(["-c", &script]).output().expect("sh");
            assert_eq!(String::from_utf8_lossy(&output.stdout), word);
        }
        assert_eq!(quoted("configs/mlp.toml"), "configs/mlp.toml");
    }
}
